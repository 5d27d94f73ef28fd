"""For tests of plugins: a host in memory, and events that no database delivered. Plain CPython; no component is built.

::

    import app                                   # its decorators list its listeners
    from outbox_sdk import done, testing

    def test_an_order_is_counted() -> None:
        with testing.FakeHost(settings={"currency": "SEK"}) as host:
            answer = host.deliver(testing.event("Order", "OrderPlaced", {"order_id": 7, "total": 9.5}))

        assert answer == done()
        assert host.state["orders"] == b"1"
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from . import _host
from ._emit import Envelope
from ._host import Level
from ._values import Body, Pairs, encode, pairs
from .answer import Failure, Outcome
from .event import Event, Route
from .http import Request, Response
from .plugin import Plugin, this_plugin
from .publish import Message
from .refusal import RefusalKind, Refused

__all__ = ["FakeHost", "Line", "event"]

Line = tuple[Level, str, dict[str, str]]
"""A line of the log: level, message, fields."""


def event(
    aggregate_type: str,
    event_type: str,
    payload: Body = None,
    *,
    aggregate_id: str | None = None,
    tenant_id: str | None = None,
    attempt: int = 1,
    content_type: str | None = None,
    headers: Pairs | None = None,
    attributes: Pairs | None = None,
    id: str = "01JD7ZS0000000000000000000",
    sequence: int = 0,
    occurred_at_ms: int = 1_732_000_000_000,
) -> Event:
    """A delivery on this route. `payload`: bytes go as they are, a `str` as text, anything else as JSON."""
    body, _ = encode(payload)
    return Event(
        id=id,
        delivery_id=f"{id}:1",
        route=Route(aggregate_type, event_type),
        aggregate_id=aggregate_id,
        tenant_id=tenant_id,
        sequence=sequence,
        occurred_at_ms=occurred_at_ms,
        attempt=attempt,
        content_type="application/json" if content_type is None else content_type,
        payload=body,
        headers=pairs(headers),
        attributes=pairs(attributes),
    )


class FakeHost:
    """A host in memory. While it is entered with `with`, every capability leads to it.

    It keeps the contract's promise: what a listener emitted and wrote to its state is there after `deliver` unless the answer
    is a failure; what it published stays sent.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        state: Mapping[str, bytes] | None = None,
        denied: Iterable[str] = (),
        remaining: float = 5.0,
        http: Callable[[Request], Response] | None = None,
        plugin: Plugin | None = None,
    ) -> None:
        """A host with these settings, secrets and values in its state.

        `denied` names capabilities that the operator did not grant: `emit`, `publish`, `state`, `http`. `http` answers requests,
        or raises `Refused`; without it every request is refused. `plugin` is for tests of the SDK itself.
        """
        self.settings_by_key = dict(settings or {})
        """What `settings.get` finds."""
        self.secrets_by_key = dict(secrets or {})
        """What `settings.secret` finds."""
        self.state: dict[str, bytes] = dict(state or {})
        """The values that are committed."""
        self.denied = set(denied)
        """The capabilities that are refused."""
        self.remaining = remaining
        """What `call.remaining` says, in seconds."""
        self.emitted: list[Envelope] = []
        """The follow-up events that are committed."""
        self.sent: list[tuple[str, Message]] = []
        """The messages that were sent, each with its sink."""
        self.requests: list[Request] = []
        """The HTTP requests that were made."""
        self.lines: list[Line] = []
        """The lines of the log."""
        self._http = http
        self._plugin = this_plugin if plugin is None else plugin
        self._before: list[_host.Host] = []

    def __enter__(self) -> Self:
        self._before.append(_host.current)
        _host.current = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _host.current = self._before.pop()

    def deliver(self, event: Event) -> Outcome:
        """Delivers an event to its listener. A `Failure` is returned, not raised."""
        state, emitted = dict(self.state), list(self.emitted)
        with self:
            outcome = self._plugin.answer(event)
        if isinstance(outcome, Failure):
            self.state, self.emitted = state, emitted
        return outcome

    def deliver_all(self, events: Iterable[Event]) -> list[Outcome]:
        """Delivers events in one call, as `isolation = "batch"` does."""
        with self:
            return self._plugin.answer_all(list(events))

    def check_settings(self) -> str | None:
        """What the plugin's own look at its settings says against them; None when it has nothing to say."""
        with self:
            return self._plugin.settings_complaint()

    def write_log(self, level: Level, message: str, fields: list[tuple[str, str]]) -> None:
        """Keeps the line."""
        self.lines.append((level, message, dict(fields)))

    def max_level(self) -> Level | None:
        """Every level is kept."""
        return Level.TRACE

    def setting(self, key: str) -> str | None:
        """One of the settings."""
        return self.settings_by_key.get(key)

    def settings(self) -> list[tuple[str, str]]:
        """All of the settings, sorted by key."""
        return sorted(self.settings_by_key.items())

    def secret(self, key: str) -> str | None:
        """One of the secrets."""
        return self.secrets_by_key.get(key)

    def remaining_ms(self) -> int:
        """What is left of the call."""
        return int(self.remaining * 1000)

    def emit(self, envelope: Envelope) -> str:
        """Takes a follow-up event, and makes its id when it has none."""
        self._granted("emit", "emit")
        id = f"01JD7ZS000000000000000{len(self.emitted) + 1:04d}" if envelope.id is None else envelope.id
        if all(earlier.id != id for earlier in self.emitted):
            self.emitted.append(replace(envelope, id=id))
        return id

    def send(self, sink: str, message: Message) -> None:
        """Takes a message."""
        self._granted("publish", f"publish.send to {sink}")
        self.sent.append((sink, message))

    def send_all(self, sink: str, messages: list[Message]) -> list[Refused | None]:
        """Takes messages."""
        answers: list[Refused | None] = []
        for message in messages:
            try:
                self.send(sink, message)
                answers.append(None)
            except Refused as refused:
                answers.append(refused)
        return answers

    def state_get(self, key: str) -> bytes | None:
        """The value under a key."""
        self._granted("state", "state.get")
        return self.state.get(_state_key(key, "state.get"))

    def state_set(self, key: str, value: bytes) -> None:
        """Puts a value under a key."""
        self._granted("state", "state.set")
        self.state[_state_key(key, "state.set")] = value

    def state_delete(self, key: str) -> None:
        """Removes a key."""
        self._granted("state", "state.delete")
        self.state.pop(_state_key(key, "state.delete"), None)

    def http(self, request: Request) -> Response:
        """Answers a request."""
        self._granted("http", "http.request")
        self.requests.append(request)
        if self._http is None:
            raise Refused("http.request", RefusalKind.UNAVAILABLE, "no test says what answers it: FakeHost(http=…)")
        return self._http(request)

    def _granted(self, capability: str, asked: str) -> None:
        if capability in self.denied:
            raise Refused(asked, RefusalKind.NOT_GRANTED, f"`{capability}` is not granted in the plugin's manifest")


def _state_key(key: str, asked: str) -> str:
    if not 1 <= len(key.encode()) <= 255:
        raise Refused(asked, RefusalKind.INVALID, "a key is 1 to 255 bytes of text")
    return key
