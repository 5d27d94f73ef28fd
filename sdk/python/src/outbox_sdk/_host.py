"""The host as the rest of the SDK sees it, and which one is there.

Three kinds of host exist: the one behind a component's imports (`_component`), the one that a test makes (`testing.FakeHost`),
and the one below for code that runs with neither. Nothing else in the SDK knows the modules that componentize-py generates.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import TYPE_CHECKING, NoReturn, Protocol

if TYPE_CHECKING:
    from ._emit import Envelope
    from .http import Request, Response
    from .publish import Message
    from .refusal import Refused


class Level(IntEnum):
    """How much a line of the log matters. In the order of the contract, so a number is all that must cross."""

    TRACE = 0
    """Every step."""
    DEBUG = 1
    """Details for finding a fault."""
    INFO = 2
    """What happened."""
    WARN = 3
    """Odd, but it goes on."""
    ERROR = 4
    """Something failed."""


class Host(Protocol):
    """What a listener may ask of its host. Text and numbers have been checked already."""

    def write_log(self, level: Level, message: str, fields: list[tuple[str, str]]) -> None:
        """Writes one line."""

    def max_level(self) -> Level | None:
        """The most detailed level that the host keeps; None when it keeps no lines at all."""

    def setting(self, key: str) -> str | None:
        """One value of `[config]`."""

    def settings(self) -> list[tuple[str, str]]:
        """All of `[config]`."""

    def secret(self, key: str) -> str | None:
        """One value of `[secrets]`."""

    def remaining_ms(self) -> int:
        """What is left of the call."""

    def emit(self, envelope: Envelope) -> str:
        """Takes a follow-up event; returns its id. Raises `Refused`."""

    def send(self, sink: str, message: Message) -> None:
        """Sends a message and waits until it is confirmed. Raises `Refused`."""

    def send_all(self, sink: str, messages: list[Message]) -> list[Refused | None]:
        """Sends messages together; one answer for each, in order."""

    def state_get(self, key: str) -> bytes | None:
        """The value under a key. Raises `Refused`."""

    def state_set(self, key: str, value: bytes) -> None:
        """Puts a value under a key. Raises `Refused`."""

    def state_delete(self, key: str) -> None:
        """Removes a key. Raises `Refused`."""

    def http(self, request: Request) -> Response:
        """Makes a request. Raises `Refused`."""


class NoHost(Exception):
    """Something was asked of a host where there is none."""


class Absent:
    """The host where there is none: lines of the log go to standard error, settings are empty, and the rest is refused."""

    def __init__(self, why: str) -> None:
        self._why = why

    def write_log(self, level: Level, message: str, fields: list[tuple[str, str]]) -> None:
        words = "".join(f" {name}={value}" for name, value in fields)
        print(f"{level.name.lower()}: {message}{words}", file=sys.stderr)

    def max_level(self) -> Level | None:
        return Level.TRACE

    def setting(self, key: str) -> str | None:
        return None

    def settings(self) -> list[tuple[str, str]]:
        return []

    def secret(self, key: str) -> str | None:
        return None

    def remaining_ms(self) -> int:
        return self._refuse("call.remaining")

    def emit(self, envelope: Envelope) -> str:
        return self._refuse("emit")

    def send(self, sink: str, message: Message) -> None:
        self._refuse("publish.send")

    def send_all(self, sink: str, messages: list[Message]) -> list[Refused | None]:
        return self._refuse("publish.send_all")

    def state_get(self, key: str) -> bytes | None:
        return self._refuse("state.get")

    def state_set(self, key: str, value: bytes) -> None:
        self._refuse("state.set")

    def state_delete(self, key: str) -> None:
        self._refuse("state.delete")

    def http(self, request: Request) -> Response:
        return self._refuse("http.request")

    def _refuse(self, asked: str) -> NoReturn:
        raise NoHost(f"{asked} needs a host, and there is none: {self._why}")


class Building(Absent):
    """The host while a component is built. Settings are refused too: what they were now would be frozen into the component."""

    def __init__(self) -> None:
        super().__init__("the component is being built; ask inside a listener, not at the top of a module")

    def setting(self, key: str) -> str | None:
        return self._refuse("settings.get")

    def settings(self) -> list[tuple[str, str]]:
        return self._refuse("settings.get_all")

    def secret(self, key: str) -> str | None:
        return self._refuse("settings.secret")


current: Host = Absent("in a test, use `with outbox_sdk.testing.FakeHost():`")
"""The host that is there. Always read as `_host.current`, since it changes."""

in_component = False
"""Whether this is a component, where no module can be loaded any more."""
