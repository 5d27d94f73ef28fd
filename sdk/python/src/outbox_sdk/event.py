"""One delivery of one event."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, TypeVar, overload

from . import _shape
from ._values import from_json
from .answer import Failure

Payload = TypeVar("Payload")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Route:
    """The pair that picks the listener of an event. One listener each."""

    aggregate_type: str
    """The aggregate type: what kind of thing it happened to; `__GLOBAL__` if the writer gave none."""
    event_type: str
    """What happened."""

    def __str__(self) -> str:
        return f"{self.aggregate_type}/{self.event_type}"


@dataclass(frozen=True, slots=True)
class Event:
    """One delivery of one event."""

    id: str
    """The same on every delivery: the key for deduplication."""
    delivery_id: str
    """`id:fence`, with a larger fence on every delivery: lets a downstream refuse a late one."""
    route: Route
    """The aggregate type and the event type."""
    aggregate_id: str | None
    """The aggregate's id: which thing it happened to, if the writer gave one."""
    tenant_id: str | None
    """The tenant that the event belongs to, if the writer gave one."""
    sequence: int
    """The order in which the database took the events in; 0 for an event that was never stored."""
    occurred_at_ms: int
    """When it happened, in milliseconds since 1970-01-01T00:00:00Z. See `occurred_at`."""
    attempt: int
    """1 on the first attempt; one more after each counted failure."""
    content_type: str
    """`application/json` unless the writer said otherwise."""
    payload: bytes
    """The bytes exactly as the writer wrote them."""
    headers: tuple[tuple[str, str], ...]
    """The writer's headers, in the writer's order. See `header`."""
    attributes: tuple[tuple[str, str], ...]
    """The host's own notes, such as `max-attempts`. Later hosts may add keys. See `attribute`."""

    @overload
    def json(self) -> Any: ...

    @overload
    def json(self, shape: type[Payload]) -> Payload: ...

    def json(self, shape: type[Any] | None = None) -> Any:
        """The payload, parsed as JSON; with a dataclass, as an instance of it.

        A field of the dataclass is a str, int, float, bool, Decimal, another dataclass, a list or a dict of these, or one of
        them `| None`; one that has a default may be missing. More fields in the payload do no harm.

        Raises an unrecoverable `Failure` that names the route and what is missing or wrong: the same bytes will never parse.
        """
        try:
            if shape is None:
                return from_json(self.payload)
            # As decimals first: a float would already have lost the digits that a Decimal field asks for.
            return _shape.read(from_json(self.payload, decimals=True), shape)
        # A whole number may be larger than a float field holds, and a dataclass that holds itself nested too deep for Python.
        except (ValueError, OverflowError, RecursionError) as error:
            self._unreadable(error)

    def text(self) -> str:
        """The payload, as UTF-8 text. Raises an unrecoverable `Failure` when it is no UTF-8."""
        try:
            return self.payload.decode()
        except UnicodeDecodeError as error:
            self._unreadable(error)

    def _unreadable(self, error: Exception) -> NoReturn:
        raise Failure.unrecoverable(f"invalid payload: {error}") from None

    @property
    def occurred_at(self) -> datetime:
        """When it happened, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.occurred_at_ms)

    def header(self, name: str) -> str | None:
        """The first header of this name, written exactly so; None if there is none."""
        return _find(self.headers, name)

    def attribute(self, key: str) -> str | None:
        """The host's note under this key; None if there is none."""
        return _find(self.attributes, key)


def _find(pairs: tuple[tuple[str, str], ...], key: str) -> str | None:
    return next((value for name, value in pairs if name == key), None)
