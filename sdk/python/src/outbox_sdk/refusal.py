"""Why the host did not do what a listener asked of it."""

from enum import Enum


class RefusalKind(Enum):
    """What stands behind a refusal, and so whether asking again may help."""

    NOT_GRANTED = "not-granted"
    """The operator has not granted it; the message has the line to add to the plugin's manifest."""
    INVALID = "invalid"
    """The request itself is wrong; it will be wrong again."""
    OVER_LIMIT = "over-limit"
    """A limit or a quota is used up."""
    UNAVAILABLE = "unavailable"
    """It did not work now, and may work later."""


class Refused(Exception):
    """The host did not do what was asked of it.

    Uncaught, it becomes a failure whose code is the kind of the refusal: an unrecoverable one for `invalid`, else a retryable one.
    """

    def __init__(self, asked: str, kind: RefusalKind, message: str) -> None:
        super().__init__(f"the host refused {asked} ({kind.value}): {message}")
        self.asked = asked
        """What was asked, such as `state.set`."""
        self.kind = kind
        """What stands behind it."""
        self.message = message
        """The host's own words: what was refused, why, and what to do."""

    @property
    def code(self) -> str:
        """The code of the failure that it becomes: its kind, such as `not-granted`."""
        return self.kind.value
