from dataclasses import dataclass

from componentize_py_types import Err

from . import listener_types as types


@dataclass
class Envelope:
    route: types.Route
    aggregate_id: str | None
    tenant_id: str | None
    content_type: str
    payload: bytes
    headers: list[tuple[str, str]]
    id: str | None
    deliver_after_ms: int | None
    expires_after_ms: int | None
    attributes: list[tuple[str, str]]


emitted: list[Envelope] = []
refusal: types.Refusal | None = None


def emit(event: Envelope) -> str:
    if refusal is not None:
        raise Err(refusal)
    emitted.append(event)
    return event.id or "made-by-the-host"
