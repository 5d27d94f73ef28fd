"""The bridge between the contract's generated modules and the rest of the SDK. Only a component imports it.

`wit_world` and `componentize_py_types` come from componentize-py while the component is built. Their values are plain: a u64 is
an int, a list of bytes is bytes, an option is the value or None, a failed result is a raised `Err`, an enum is an Enum, and each
case of a variant is a class of its own. On the way back a value of the wrong class, or a number out of range, traps the component,
so everything is made here from values that were checked.
"""

from __future__ import annotations

# Nothing can be loaded later, so what is often loaded late is loaded here: `strptime`, and codecs that data comes in.
import _strptime  # type: ignore[import-not-found]  # noqa: F401
import encodings.ascii
import encodings.cp1252
import encodings.idna
import encodings.iso8859_1
import encodings.iso8859_15
import encodings.latin_1
import encodings.punycode
import encodings.utf_8_sig
import encodings.utf_16
import encodings.utf_32  # noqa: F401
import logging
from typing import TYPE_CHECKING, NoReturn

from componentize_py_types import Err, Ok, Result
from wit_world.imports import call as wit_call
from wit_world.imports import listener_types as wit
from wit_world.imports import log as wit_log
from wit_world.imports import settings as wit_settings

from . import _host, log
from ._emit import Envelope
from ._host import Level
from ._values import text
from .answer import Dead, Done, Failure, FailureKind, Outcome, RetryAfter
from .event import Event, Route
from .plugin import this_plugin
from .publish import Message
from .refusal import RefusalKind, Refused

if TYPE_CHECKING:
    from .http import Request

# A component imports only what it was built to use; `outbox-python build --uses` leaves the others out.
try:
    from wit_world.imports import emit as wit_emit
except ImportError:
    wit_emit = None  # type: ignore[assignment]
try:
    from wit_world.imports import http as wit_http

    from . import http
except ImportError:
    wit_http = http = None  # type: ignore[assignment]
try:
    from wit_world.imports import publish as wit_publish
except ImportError:
    wit_publish = None  # type: ignore[assignment]
try:
    from wit_world.imports import state as wit_state
except ImportError:
    wit_state = None  # type: ignore[assignment]


class ComponentHost:
    """The host behind the component's imports."""

    def __init__(self) -> None:
        self._max_level: Level | None = None
        self._max_level_is_known = False

    def begin_call(self) -> None:
        """Forgets what holds for one call only: the operator may change the level of the log between two calls."""
        self._max_level_is_known = False

    def write_log(self, level: Level, message: str, fields: list[tuple[str, str]]) -> None:
        wit_log.write(wit_log.Level(level.value), message, fields)

    def max_level(self) -> Level | None:
        # Asked once a call, since the host counts what is asked of it.
        if not self._max_level_is_known:
            most = wit_log.max_level()
            self._max_level = None if most is None else Level(most.value)
            self._max_level_is_known = True
        return self._max_level

    def setting(self, key: str) -> str | None:
        return wit_settings.get(key)

    def settings(self) -> list[tuple[str, str]]:
        return wit_settings.get_all()

    def secret(self, key: str) -> str | None:
        return wit_settings.secret(key)

    def remaining_ms(self) -> int:
        return wit_call.remaining_ms()

    def emit(self, envelope: Envelope) -> str:
        if wit_emit is None:
            _not_built_in("emit", "--uses emit")
        try:
            return wit_emit.emit(
                wit_emit.Envelope(
                    route=wit.Route(envelope.route.aggregate_type, envelope.route.event_type),
                    aggregate_id=envelope.aggregate_id,
                    tenant_id=envelope.tenant_id,
                    content_type=envelope.content_type,
                    payload=envelope.payload,
                    headers=list(envelope.headers),
                    id=envelope.id,
                    deliver_after_ms=envelope.deliver_after_ms,
                    expires_after_ms=envelope.expires_after_ms,
                    attributes=list(envelope.attributes),
                )
            )
        except Err as error:
            raise _refused("emit", error.value) from None

    def send(self, sink: str, message: Message) -> None:
        if wit_publish is None:
            _not_built_in("publish.send", "--uses publish")
        try:
            wit_publish.send(sink, _wit_message(message))
        except Err as error:
            raise _refused(f"publish.send to {sink}", error.value) from None

    def send_all(self, sink: str, messages: list[Message]) -> list[Refused | None]:
        if wit_publish is None:
            _not_built_in("publish.send_all", "--uses publish")
        answers = wit_publish.send_all(sink, [_wit_message(message) for message in messages])
        return [_refused(f"publish.send_all to {sink}", answer.value) if isinstance(answer, Err) else None for answer in answers]

    def state_get(self, key: str) -> bytes | None:
        if wit_state is None:
            _not_built_in("state.get", "--uses state")
        try:
            return wit_state.get(key)
        except Err as error:
            raise _refused("state.get", error.value) from None

    def state_set(self, key: str, value: bytes) -> None:
        if wit_state is None:
            _not_built_in("state.set", "--uses state")
        try:
            wit_state.set(key, value)
        except Err as error:
            raise _refused("state.set", error.value) from None

    def state_delete(self, key: str) -> None:
        if wit_state is None:
            _not_built_in("state.delete", "--uses state")
        try:
            wit_state.delete(key)
        except Err as error:
            raise _refused("state.delete", error.value) from None

    def http(self, request: Request) -> http.Response:
        if wit_http is None:
            _not_built_in("http.request", "--uses http")
        try:
            got = wit_http.send(
                wit_http.Request(
                    method=request.method,
                    url=request.url,
                    headers=list(request.headers),
                    body=request.body,
                    timeout_ms=request.timeout_ms,
                    attributes=list(request.attributes),
                )
            )
        except Err as error:
            # Without path and query, which may hold a secret.
            origin = "/".join(request.url.split("/", 3)[:3])
            raise _refused(f"a request to {origin}", error.value) from None
        return http.Response(status=got.status, headers=tuple(got.headers), body=got.body)


class Handler:
    """The contract's `handler`."""

    name = ""
    version = ""

    def describe(self) -> wit.Description:
        """Says what the plugin is."""
        routes = [wit.Route(text(route.aggregate_type), text(route.event_type)) for route in this_plugin.routes()]
        return wit.Description(name=self.name, version=self.version, routes=routes, attributes=[])

    def on_event(self, event: wit.Event) -> wit.DispatchResult:
        """Answers one event."""
        _component_host.begin_call()
        result = _result(this_plugin.answer(_event(event)))
        if isinstance(result, Err):
            raise result
        return result.value


class BatchHandler:
    """The contract's `batch-handler`."""

    def on_events(self, events: list[wit.Event]) -> list[Result[wit.DispatchResult, wit.Failure]]:
        """Answers events of one claim."""
        _component_host.begin_call()
        return [_result(outcome) for outcome in this_plugin.answer_all([_event(event) for event in events])]


class SettingsCheck:
    """The contract's `settings-check`."""

    def check_settings(self) -> None:
        """Looks at the settings."""
        _component_host.begin_call()
        complaint = this_plugin.settings_complaint()
        if complaint is not None:
            raise Err(text(complaint))


_component_host = ComponentHost()


def begin_build() -> None:
    """What the entry module calls before it imports the plugin."""
    _host.current = _host.Building()


def end_build(name: str, version: str) -> None:
    """What the entry module calls after it has imported the plugin."""
    if not this_plugin.routes():
        raise ValueError("the module lists no listener: put @listener(…) above a function, and import its module here")
    Handler.name, Handler.version = name, version
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(log.LogHandler())
        # The host says which levels it keeps, so the root logger lets all of them through, unless it was told otherwise.
        if root.level == logging.WARNING:
            root.setLevel(logging.NOTSET)
    _host.in_component = True
    _host.current = _component_host


def _event(event: wit.Event) -> Event:
    return Event(
        id=event.id,
        delivery_id=event.delivery_id,
        route=Route(event.route.aggregate_type, event.route.event_type),
        aggregate_id=event.aggregate_id,
        tenant_id=event.tenant_id,
        sequence=event.sequence,
        occurred_at_ms=event.occurred_at_ms,
        attempt=event.attempt,
        content_type=event.content_type,
        payload=event.payload,
        headers=tuple(event.headers),
        attributes=tuple(event.attributes),
    )


def _result(outcome: Outcome) -> Ok[wit.DispatchResult] | Err[wit.Failure]:
    match outcome:
        case Done():
            return Ok(wit.DispatchResult_Done())
        case RetryAfter(milliseconds):
            return Ok(wit.DispatchResult_RetryAfter(milliseconds))
        case Dead(reason):
            return Ok(wit.DispatchResult_Dead(None if reason is None else text(reason)))
        case Failure():
            return Err(_failure(outcome))


def _failure(failure: Failure) -> wit.Failure:
    kind: wit.FailureKind
    match failure.kind:
        case FailureKind.RETRYABLE:
            kind = wit.FailureKind_Retryable()
        case FailureKind.RETRYABLE_AFTER:
            kind = wit.FailureKind_RetryableAfter(failure.delay_ms or 0)
        case FailureKind.UNRECOVERABLE:
            kind = wit.FailureKind_Unrecoverable()
    return wit.Failure(message=text(failure.message), code=failure.code, kind=kind, attributes=list(failure.attributes))


def _wit_message(message: Message) -> wit_publish.Message:
    return wit_publish.Message(
        subject=message.subject,
        key=message.key,
        content_type=message.content_type,
        body=message.body,
        headers=list(message.headers),
        attributes=list(message.attributes),
    )


_REFUSALS = {
    wit.RefusalKind.NOT_GRANTED: RefusalKind.NOT_GRANTED,
    wit.RefusalKind.INVALID: RefusalKind.INVALID,
    wit.RefusalKind.OVER_LIMIT: RefusalKind.OVER_LIMIT,
    wit.RefusalKind.UNAVAILABLE: RefusalKind.UNAVAILABLE,
}


def _refused(asked: str, refusal: wit.Refusal) -> Refused:
    return Refused(asked, _REFUSALS[refusal.kind], refusal.message)


def _not_built_in(asked: str, option: str) -> NoReturn:
    raise _host.NoHost(f"this component was built without what {asked} needs; build it with `{option}`")
