from dataclasses import dataclass
from enum import Enum


@dataclass
class Route:
    aggregate_type: str
    event_type: str


@dataclass
class Description:
    name: str
    version: str
    routes: list[Route]
    attributes: list[tuple[str, str]]


@dataclass
class Event:
    id: str
    delivery_id: str
    route: Route
    aggregate_id: str | None
    tenant_id: str | None
    sequence: int
    occurred_at_ms: int
    attempt: int
    content_type: str
    payload: bytes
    headers: list[tuple[str, str]]
    attributes: list[tuple[str, str]]


@dataclass
class DispatchResult_Done:
    pass


@dataclass
class DispatchResult_RetryAfter:
    value: int


@dataclass
class DispatchResult_Dead:
    value: str | None


DispatchResult = DispatchResult_Done | DispatchResult_RetryAfter | DispatchResult_Dead


@dataclass
class FailureKind_Retryable:
    pass


@dataclass
class FailureKind_RetryableAfter:
    value: int


@dataclass
class FailureKind_Unrecoverable:
    pass


FailureKind = FailureKind_Retryable | FailureKind_RetryableAfter | FailureKind_Unrecoverable


@dataclass
class Failure:
    message: str
    code: str | None
    kind: FailureKind
    attributes: list[tuple[str, str]]


class RefusalKind(Enum):
    NOT_GRANTED = 0
    INVALID = 1
    OVER_LIMIT = 2
    UNAVAILABLE = 3


@dataclass
class Refusal:
    kind: RefusalKind
    message: str
