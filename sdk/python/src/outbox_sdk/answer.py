"""How a listener ends a delivery: with an answer, or with an exception that becomes a failure."""

import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Self

from . import _host
from ._values import Delay, Pairs, pairs, retry_milliseconds
from .refusal import RefusalKind, Refused


@dataclass(frozen=True, slots=True)
class Done:
    """The event is finished."""


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Deliver the event again after so many milliseconds. Not counted as an attempt. See `retry_after`."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class Dead:
    """Never deliver the event again, for this reason. See `dead`."""

    reason: str | None = None


Answer = Done | RetryAfter | Dead | None
"""What every listener function returns. None means done."""


def done() -> Done:
    """The event is finished. A listener may just as well return None."""
    return Done()


def retry_after(delay: Delay) -> RetryAfter:
    """Not now: deliver the event again after `delay`, in seconds or as a `timedelta`; at most 24 hours, a longer delay is cut.

    Nothing failed, so this is not counted as an attempt.
    """
    return RetryAfter(retry_milliseconds(delay))


def dead(reason: object = None) -> Dead:
    """Never deliver the event again. The reason is kept with it, for people."""
    return Dead(None if reason is None else str(reason))


class FailureKind(Enum):
    """What follows a failure."""

    RETRYABLE = "retryable"
    """Counted; delivered again when the host's retry policy says, until its last attempt."""
    RETRYABLE_AFTER = "retryable-after"
    """Counted; delivered again after the failure's delay."""
    UNRECOVERABLE = "unrecoverable"
    """It will never work: the event is dead."""


class Failure(Exception):
    """The listener could not do it. Raise it; what it emitted and wrote to its state in this call did not happen.

    `Failure("why")` is retryable, as is any other exception that leaves a listener. `raise Failure.retryable("why") from error`
    keeps the error's text in the message.
    """

    def __init__(
        self,
        message: object,
        *,
        kind: FailureKind = FailureKind.RETRYABLE,
        delay_ms: int | None = None,
        code: str | None = None,
        attributes: Pairs | None = None,
    ) -> None:
        super().__init__(str(message))
        if code is not None and not _is_code(code):
            raise ValueError(f"the code {code!r} of a failure must be 1 to 64 of a-z, 0-9 and dashes")
        if (delay_ms is None) is (kind is FailureKind.RETRYABLE_AFTER):
            raise ValueError("a failure has a delay when it is retryable-after, and only then")
        self.message = str(message)
        """What went wrong, for people; kept with the event."""
        self.kind = kind
        """What follows."""
        self.delay_ms = delay_ms
        """When it is retryable-after: after how many milliseconds."""
        self.code = code
        """A short constant for metrics and filters, such as `payment-declined`."""
        self.attributes = pairs(attributes)
        """Details for people; kept with the message as far as there is room."""

    @classmethod
    def retryable(cls, message: object, *, code: str | None = None, attributes: Pairs | None = None) -> Self:
        """A failure that is counted and tried again when the host's retry policy says."""
        return cls(message, code=code, attributes=attributes)

    @classmethod
    def retryable_after(cls, delay: Delay, message: object, *, code: str | None = None, attributes: Pairs | None = None) -> Self:
        """A failure that is counted and tried again after `delay`, in seconds or as a `timedelta`; at most 24 hours."""
        return cls(
            message,
            kind=FailureKind.RETRYABLE_AFTER,
            delay_ms=retry_milliseconds(delay),
            code=code,
            attributes=attributes,
        )

    @classmethod
    def unrecoverable(cls, message: object, *, code: str | None = None, attributes: Pairs | None = None) -> Self:
        """A failure that will never become a success: the event is dead."""
        return cls(message, kind=FailureKind.UNRECOVERABLE, code=code, attributes=attributes)

    def _key(self) -> tuple[object, ...]:
        return (self.message, self.kind, self.delay_ms, self.code, self.attributes)

    def __eq__(self, other: object) -> bool:
        """Two failures are equal when the host would see no difference, which is what a test asks."""
        return self._key() == other._key() if isinstance(other, Failure) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        delay = "" if self.delay_ms is None else f" after {self.delay_ms} ms"
        code = "" if self.code is None else f" [{self.code}]"
        return f"<Failure {self.kind.value}{delay}{code}: {self.message}>"


Outcome = Done | RetryAfter | Dead | Failure
"""What a delivery came to, as the host sees it."""


def failure_from(error: BaseException) -> Failure:
    """Makes the failure of whatever left a listener.

    Retryable, unless it is a `Failure` that says otherwise or the host refused a request that is wrong in itself: an error that
    nobody looked at is more often a passing one, and a retry loses nothing.
    """
    if isinstance(error, Failure):
        # The author chose this message, so only a cause that the author named, with `from`, is added to it.
        causes = "" if error.__cause__ is None else "; caused by " + _with_causes(error.__cause__)
        return Failure(
            error.message + causes, kind=error.kind, delay_ms=error.delay_ms, code=error.code, attributes=error.attributes
        )
    # The SDK's own exceptions have a code that a failure can take over.
    code = getattr(error, "code", None) if _is_ours(error) else None
    # A request that is wrong in itself will be wrong again.
    hopeless = isinstance(error, Refused) and error.kind is RefusalKind.INVALID
    return Failure(
        _with_causes(error),
        kind=FailureKind.UNRECOVERABLE if hopeless else FailureKind.RETRYABLE,
        code=code,
        attributes=_place(error),
    )


def _place(error: BaseException) -> list[tuple[str, str]]:
    """Where in the plugin it was raised: the innermost frame that is neither the SDK's nor, in a component, Python's own."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if "outbox_sdk" not in frame.filename and not frame.filename.startswith("/python/"):
            return [("at", f"{frame.filename.rpartition('/')[2]}:{frame.lineno} in {frame.name}")]
    return []


def _with_causes(error: BaseException) -> str:
    """The type and text of an exception and of each of its causes."""
    return "; caused by ".join(_describe(link) for link in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    # Causes can form a circle.
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ if link.__cause__ is not None or link.__suppress_context__ else link.__context__


def _describe(error: BaseException) -> str:
    # The SDK's own exceptions are whole sentences.
    name = "" if _is_ours(error) else type(error).__qualname__
    try:
        words = str(error)
    except Exception:
        words = "(its text cannot be had)"
    description = f"{name}: {words}" if name and words else name or words
    if isinstance(error, BaseExceptionGroup):
        description += " [" + " | ".join(_with_causes(one) for one in error.exceptions) + "]"
    for note in getattr(error, "__notes__", ()):
        description += f" ({note})"
    if isinstance(error, ModuleNotFoundError) and _host.in_component:
        description += " (modules are only loaded while the component is built: import it at the top of a file)"
    return description


def _is_ours(error: BaseException) -> bool:
    return type(error).__module__.startswith("outbox_sdk.")


def _is_code(code: str) -> bool:
    return 1 <= len(code) <= 64 and all(char in "abcdefghijklmnopqrstuvwxyz0123456789-" for char in code)
