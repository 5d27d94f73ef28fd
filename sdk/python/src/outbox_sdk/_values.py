"""Values on their way to the host: delays, bodies, pairs and text.

Every check is made here, in Python. A value that the generated code cannot lower (a number that is too large, text that is no
UTF-8) is no exception there: it traps the whole component.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from itertools import accumulate
from typing import Any, NoReturn

Delay = float | timedelta
"""How long: a number of seconds, or a `timedelta`."""

Body = object
"""What is sent: bytes go as they are, a `str` as UTF-8 text, and anything else as JSON."""

Pairs = Mapping[str, str] | Iterable[tuple[str, str]]
"""Headers or attributes: a mapping, or pairs in order, where a name may come twice."""

_MOST_MILLISECONDS = 2**32 - 1
_DAY_MILLISECONDS = 24 * 60 * 60 * 1000


def milliseconds(delay: Delay) -> int:
    """A delay in whole milliseconds, rounded up so that nothing comes too early.

    Raises `ValueError` when it is negative, not a number, or above the 49 days that the contract's 32 bits hold.
    """
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"a delay is zero or more seconds, not {seconds}")
    # Rounded to a microsecond first, or 0.1 + 0.2 seconds would come to 301 milliseconds.
    whole = math.ceil(round(seconds * 1000, 3))
    if whole > _MOST_MILLISECONDS:
        raise ValueError(f"a delay of {seconds} seconds is longer than the contract can say, which is 49 days")
    return whole


def retry_milliseconds(delay: Delay) -> int:
    """A delay until the next delivery in whole milliseconds, cut to 24 hours, the longest that the contract allows."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    if seconds * 1000 >= _DAY_MILLISECONDS:
        return _DAY_MILLISECONDS
    return milliseconds(delay)


def encode(body: Body) -> tuple[bytes, str]:
    """The bytes of a body, and the content type that they have unless the author says otherwise."""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), "application/octet-stream"
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    return to_json(body), "application/json"


def to_json(value: object) -> bytes:
    """Compact JSON in UTF-8. Raises `TypeError` or `ValueError` for a value that JSON cannot hold, such as NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def from_json(data: bytes, *, decimals: bool = False) -> Any:
    """What the JSON in UTF-8 says; with `decimals`, numbers that are not whole as a Decimal, with every digit.

    Raises `ValueError` for anything else, and for JSON that is nested deeper than 500: Python's parser calls itself for each level,
    and in a component some thousand levels end the stack, which is a trap and no RecursionError.
    """
    if _depth(data) > _DEEPEST:
        raise ValueError(f"it is nested more than {_DEEPEST} levels deep")
    try:
        return json.loads(data.decode(), parse_constant=_no_constant, parse_float=Decimal if decimals else None)
    # A number may have more digits in its exponent than a Decimal takes.
    except ArithmeticError as error:
        raise ValueError(f"a number is out of range: {error!r}") from error


def _depth(data: bytes) -> int:
    """At least as deep as the parser would go; exact where that matters."""
    brackets = data.count(b"[") + data.count(b"{")
    if brackets <= _DEEPEST:
        return brackets
    outside_strings = _STRING.sub(b"", data)
    return max(accumulate(_STEPS[byte] for byte in outside_strings.translate(None, _NO_BRACKETS)), default=0)


_DEEPEST = 500
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(set(range(256)) - _STEPS.keys())


def _no_constant(name: str) -> NoReturn:
    # Python's parser takes NaN and Infinity, which JSON does not have.
    raise ValueError(f"{name} is not JSON")


def pairs(given: Pairs | None) -> tuple[tuple[str, str], ...]:
    """Headers or attributes as pairs, in order."""
    if given is None:
        return ()
    items = given.items() if isinstance(given, Mapping) else given
    return tuple((text(name), text(value)) for name, value in items)


def text(value: object) -> str:
    """Text that UTF-8 can hold. A half of a surrogate pair, which JSON can smuggle into a `str`, becomes a question mark."""
    string = value if isinstance(value, str) else str(value)
    try:
        string.encode()
    except UnicodeEncodeError:
        return string.encode("utf-8", "replace").decode()
    return string
