"""The call that is under way."""

from . import _host


def remaining() -> float:
    """How many seconds are left until the host cuts the call off, which counts as a failed attempt."""
    return _host.current.remaining_ms() / 1000
