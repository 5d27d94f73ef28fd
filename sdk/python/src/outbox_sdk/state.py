"""Values that the plugin keeps in the outbox's database, by key, with a quota.

Writes are committed together with the answer to the event, in one transaction: both, or neither; a call that ends with a failure
wrote nothing. When another call has changed a key since this one read it, the answer is not taken and the event is delivered
again at once, so reading, changing and writing a value is safe.

Needs `state = true` in the plugin's manifest; without it every function here raises `Refused`. A key is 1 to 255 bytes of text.
"""

from typing import Any

from . import _host
from ._values import from_json, text, to_json


def get(key: str) -> bytes | None:
    """The value under a key; None when there is none. Sees what this call has written."""
    return _host.current.state_get(text(key))


def get_text(key: str, default: str | None = None) -> str | None:
    """The value under a key as UTF-8 text; `default` when there is none. Raises `ValueError` when it is no UTF-8."""
    value = get(key)
    return default if value is None else value.decode()


def get_json(key: str, default: Any = None) -> Any:
    """The value under a key, parsed as JSON; `default` when there is none. Raises `ValueError` when it is no JSON."""
    value = get(key)
    return default if value is None else from_json(value)


def set(key: str, value: bytes) -> None:
    """Puts bytes under a key."""
    _host.current.state_set(text(key), bytes(memoryview(value)))


def set_text(key: str, value: str) -> None:
    """Puts text under a key, as UTF-8."""
    set(key, value.encode())


def set_json(key: str, value: object) -> None:
    """Puts a value under a key, as compact JSON. Raises `TypeError` or `ValueError` when JSON cannot hold it."""
    set(key, to_json(value))


def delete(key: str) -> None:
    """Removes a key, if it is there."""
    _host.current.state_delete(text(key))
