"""Follow-up events."""

from dataclasses import dataclass

from . import _host
from ._values import Body, Delay, Pairs, encode, milliseconds, pairs, text
from .event import Route


@dataclass(frozen=True, slots=True)
class Envelope:
    """A follow-up event as it goes to the host. See `emit`."""

    route: Route
    payload: bytes
    content_type: str
    aggregate_id: str | None = None
    tenant_id: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    id: str | None = None
    deliver_after_ms: int | None = None
    expires_after_ms: int | None = None
    attributes: tuple[tuple[str, str], ...] = ()


def emit(
    aggregate_type: str,
    event_type: str,
    payload: Body = None,
    *,
    aggregate_id: str | None = None,
    tenant_id: str | None = None,
    content_type: str | None = None,
    headers: Pairs | None = None,
    id: str | None = None,
    deliver_after: Delay | None = None,
    expires_after: Delay | None = None,
    attributes: Pairs | None = None,
) -> str:
    """Emits an event, and returns its id. It is written together with the answer to this event: both, or neither.

    `payload`: bytes go as they are, a `str` as text, anything else as JSON; `content_type` says otherwise what it is.
    `aggregate_id` is the key for order. `tenant_id` is that of the event being answered unless it is given. `id`: the host makes
    one unless it is given; an event whose id is in the outbox already is not emitted again. `deliver_after` counts from the
    commit, `expires_after` from now, in seconds or as a `timedelta`. `attributes` are for later hosts; unknown ones are refused.

    Needs `emit = true` in the plugin's manifest; raises `Refused` without it.
    """
    body, usual_type = encode(payload)
    return _host.current.emit(
        Envelope(
            route=Route(text(aggregate_type), text(event_type)),
            payload=body,
            content_type=usual_type if content_type is None else text(content_type),
            aggregate_id=None if aggregate_id is None else text(aggregate_id),
            tenant_id=None if tenant_id is None else text(tenant_id),
            headers=pairs(headers),
            id=None if id is None else text(id),
            deliver_after_ms=None if deliver_after is None else milliseconds(deliver_after),
            expires_after_ms=None if expires_after is None else milliseconds(expires_after),
            attributes=pairs(attributes),
        )
    )
