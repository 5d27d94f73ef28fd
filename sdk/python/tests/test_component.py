"""The bridge to the contract, over stand-ins for the modules that componentize-py generates."""

import logging
import sys
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent / "generated"))

from componentize_py_types import Err, Ok
from wit_world.imports import call as wit_call
from wit_world.imports import emit as wit_emit
from wit_world.imports import http as wit_http
from wit_world.imports import listener_types as wit
from wit_world.imports import log as wit_log
from wit_world.imports import publish as wit_publish
from wit_world.imports import settings as wit_settings
from wit_world.imports import state as wit_state

from outbox_sdk import Answer, Event, Failure, _component, _host, call, dead, emit, http, log, publish, retry_after, settings, state
from outbox_sdk.log import LogHandler
from outbox_sdk.plugin import Plugin, this_plugin

EVENT = wit.Event(
    id="01JD",
    delivery_id="01JD:7",
    route=wit.Route("A", "B"),
    aggregate_id=None,
    tenant_id="t",
    sequence=2**64 - 1,
    occurred_at_ms=1_732_000_000_000,
    attempt=2**32 - 1,
    content_type="application/json",
    payload=b"{}",
    headers=[("h", "1")],
    attributes=[("max-attempts", "10")],
)


class Component(unittest.TestCase):
    def setUp(self) -> None:
        # One plugin a component: its registry is swapped for each test.
        before = this_plugin.__dict__.copy()
        self.addCleanup(this_plugin.__dict__.update, before)
        this_plugin.__dict__.update(Plugin().__dict__)
        host, in_component = _host.current, _host.in_component
        self.addCleanup(setattr, _host, "current", host)
        self.addCleanup(setattr, _host, "in_component", in_component)
        root = logging.getLogger()
        level, handlers = root.level, root.handlers[:]
        self.addCleanup(setattr, root, "handlers", handlers)
        self.addCleanup(root.setLevel, level)
        root.handlers = []
        wit_log.lines.clear()
        wit_log.kept = wit_log.Level.TRACE

    def answer(self, function: object, event: wit.Event = EVENT) -> wit.DispatchResult:
        _component.begin_build()
        this_plugin.listener("A", "B")(function)  # type: ignore[type-var]
        _component.end_build("totals", "1.2.3")
        return _component.Handler().on_event(event)

    def failure(self, function: object) -> wit.Failure:
        with self.assertRaises(Err) as raised:
            self.answer(function)
        failure = raised.exception.value
        assert isinstance(failure, wit.Failure)
        return failure


class Answers(Component):
    def test_the_plugin_describes_itself(self) -> None:
        self.answer(lambda event: None)

        described = _component.Handler().describe()

        self.assertEqual(described, wit.Description("totals", "1.2.3", [wit.Route("A", "B")], []))

    def test_an_event_arrives_whole(self) -> None:
        seen: list[Event] = []
        self.answer(seen.append)

        (event,) = seen
        self.assertEqual((event.id, event.delivery_id, event.sequence, event.attempt), ("01JD", "01JD:7", 2**64 - 1, 2**32 - 1))
        self.assertEqual((str(event.route), event.aggregate_id, event.tenant_id), ("A/B", None, "t"))
        self.assertEqual((event.headers, event.attributes), ((("h", "1"),), (("max-attempts", "10"),)))
        self.assertEqual((event.payload, event.content_type, event.occurred_at.year), (b"{}", "application/json", 2024))

    def test_each_answer_becomes_its_case(self) -> None:
        self.assertEqual(self.answer(lambda event: None), wit.DispatchResult_Done())
        this_plugin.__dict__.update(Plugin().__dict__)
        self.assertEqual(self.answer(lambda event: retry_after(2)), wit.DispatchResult_RetryAfter(2000))
        this_plugin.__dict__.update(Plugin().__dict__)
        self.assertEqual(self.answer(lambda event: dead("half \ud800")), wit.DispatchResult_Dead("half ?"))
        this_plugin.__dict__.update(Plugin().__dict__)
        self.assertEqual(self.answer(lambda event: dead()), wit.DispatchResult_Dead(None))

    def test_each_failure_becomes_its_kind(self) -> None:
        def unrecoverable(event: Event) -> Answer:
            raise Failure.unrecoverable("never", code="no-way", attributes={"k": "v"})

        def later(event: Event) -> Answer:
            raise Failure.retryable_after(0, "later")

        self.assertEqual(self.failure(unrecoverable), wit.Failure("never", "no-way", wit.FailureKind_Unrecoverable(), [("k", "v")]))
        this_plugin.__dict__.update(Plugin().__dict__)
        self.assertEqual(self.failure(later), wit.Failure("later", None, wit.FailureKind_RetryableAfter(0), []))

    def test_any_exception_is_a_retryable_failure_and_no_trap(self) -> None:
        def broken(event: Event) -> Answer:
            raise ValueError("half \ud800")

        failure = self.failure(broken)
        self.assertEqual((failure.message, failure.kind), ("ValueError: half ?", wit.FailureKind_Retryable()))

    def test_a_module_that_is_imported_late_says_what_to_do(self) -> None:
        def late(event: Event) -> Answer:
            import no_such_module  # type: ignore[import-not-found]  # noqa: F401

            return None

        self.assertIn("No module named 'no_such_module' (modules are only loaded while", self.failure(late).message)

    def test_events_of_one_claim_have_an_answer_each(self) -> None:
        self.answer(lambda event: 1 // 0 if event.id == "2" else None)
        events = [wit.Event(**vars(EVENT) | {"id": id}) for id in ("1", "2", "3")]

        answers = _component.BatchHandler().on_events(events)

        self.assertEqual([type(answer) for answer in answers], [Ok, Err, Ok])

    def test_the_look_at_the_settings_is_an_error_with_its_text(self) -> None:
        self.answer(lambda event: None)
        _component.SettingsCheck().check_settings()

        @this_plugin.check_settings
        def check() -> None:
            settings.require("endpoint")

        with self.assertRaises(Err) as raised:
            _component.SettingsCheck().check_settings()
        self.assertIn("has no `endpoint` in [config]", raised.exception.value)


class Capabilities(Component):
    def test_each_leads_to_its_import(self) -> None:
        wit_settings.config["a"], wit_settings.secrets["s"] = "1", "2"

        def ask(event: Event) -> Answer:
            log.warn("hello", n=1)
            state.set_json("k", {"v": state.get("missing")})
            emit("C", "D", b"x", deliver_after=1, headers={"h": "v"})
            publish.send("orders", b"y", key="k")
            return dead(f"{settings.get('a')} {settings.get_all()} {settings.secret('s')} {call.remaining()} {state.get('k')!r}")

        self.assertEqual(self.answer(ask), wit.DispatchResult_Dead("""1 {'a': '1'} 2 5.0 b'{"v":null}'"""))

        self.assertEqual(wit_log.lines, [(wit_log.Level.WARN, "hello", [("n", "1")])])
        self.assertEqual(
            wit_emit.emitted[-1],
            wit_emit.Envelope(
                wit.Route("C", "D"), None, None, "application/octet-stream", b"x", [("h", "v")], None, 1000, None, []
            ),
        )
        self.assertEqual(wit_publish.sent[-1], ("orders", wit_publish.Message("", "k", "application/octet-stream", b"y", [], [])))

    def test_what_the_operator_has_not_granted_is_a_retryable_failure_with_the_line_to_add(self) -> None:
        refusal = wit.Refusal(wit.RefusalKind.NOT_GRANTED, "add `state = true` to totals.toml")
        wit_state.refusal = wit_emit.refusal = refusal
        self.addCleanup(setattr, wit_state, "refusal", None)
        self.addCleanup(setattr, wit_emit, "refusal", None)
        asked = {
            "state.get": lambda event: state.get("k"),
            "state.set": lambda event: state.set("k", b""),
            "state.delete": lambda event: state.delete("k"),
            "emit": lambda event: emit("C", "D"),
        }

        for name, function in asked.items():
            this_plugin.__dict__.update(Plugin().__dict__)
            failure = self.failure(function)
            self.assertEqual((failure.code, failure.kind), ("not-granted", wit.FailureKind_Retryable()))
            self.assertEqual(failure.message, f"the host refused {name} (not-granted): add `state = true` to totals.toml")

    def test_a_sink_that_is_down_is_named(self) -> None:
        wit_publish.refusals["bad"] = wit.Refusal(wit.RefusalKind.UNAVAILABLE, "no route to the broker")

        def one(event: Event) -> Answer:
            publish.send("orders", 1, subject="bad")
            return None

        def many(event: Event) -> Answer:
            publish.send_all("orders", [publish.message(1), publish.message(2, subject="bad")])
            return None

        self.assertEqual(self.failure(one).message, "the host refused publish.send to orders (unavailable): no route to the broker")
        this_plugin.__dict__.update(Plugin().__dict__)
        failure = self.failure(many)
        self.assertIn("1 of 2 messages were not sent", failure.message)
        self.assertEqual(failure.code, "unavailable")

    def test_a_request_goes_out_and_its_response_comes_back(self) -> None:
        self.addCleanup(setattr, wit_http, "answer", wit_http.answer)
        wit_http.answer = lambda request: wit_http.Response(201, [("x", "1")], b"ab", [])

        def ask(event: Event) -> Answer:
            response = http.request("POST", "https://a.b/c?key=secret", {"k": "v"}, b"z", timeout=1)
            return dead(f"{response.status} {response.header('X')} {response.body!r} {response.request}")

        self.assertEqual(self.answer(ask), wit.DispatchResult_Dead("201 1 b'ab' POST https://a.b/c"))
        fields = [("k", "v"), ("content-type", "application/octet-stream")]
        self.assertEqual(wit_http.requests[-1], wit_http.Request("POST", "https://a.b/c?key=secret", fields, b"z", 1000, []))

    def test_a_request_says_for_which_of_many_events_it_is(self) -> None:
        def ask(event: Event) -> Answer:
            http.request("GET", "https://a.b", attributes={"event-id": event.id})
            return None

        self.assertEqual(self.answer(ask), wit.DispatchResult_Done())
        self.assertEqual(wit_http.requests[-1].attributes, [("event-id", "01JD")])

    def test_a_request_that_is_refused_names_its_origin_alone(self) -> None:
        def refuse(request: wit_http.Request) -> wit_http.Response:
            raise Err(wit.Refusal(wit.RefusalKind.NOT_GRANTED, 'add "https://a.b" to http.allow'))

        def ask(event: Event) -> Answer:
            http.request("GET", "https://a.b/c?key=secret")
            return None

        self.addCleanup(setattr, wit_http, "answer", wit_http.answer)
        wit_http.answer = refuse
        failure = self.failure(ask)
        self.assertEqual((failure.code, failure.kind), ("not-granted", wit.FailureKind_Retryable()))
        self.assertEqual(failure.message, 'the host refused a request to https://a.b (not-granted): add "https://a.b" to http.allow')

    def test_what_was_not_built_in_says_how_to_build_it_in(self) -> None:
        self.enterContext(mock.patch.object(_component, "wit_state", None))

        def ask(event: Event) -> Answer:
            state.get("k")
            return None

        message = self.failure(ask).message
        self.assertIn("this component was built without what state.get needs; build it with `--uses state`", message)

    def test_settings_cannot_be_frozen_into_the_component(self) -> None:
        _component.begin_build()
        for ask in (lambda: settings.get("a"), settings.get_all, lambda: settings.secret("a"), lambda: state.get("k")):
            with self.assertRaisesRegex(_host.NoHost, "the component is being built; ask inside a listener"):
                ask()

    def test_a_module_without_listeners_is_refused_when_it_is_built(self) -> None:
        with self.assertRaisesRegex(ValueError, "lists no listener"):
            _component.end_build("x", "1")

    def test_what_is_left_is_what_the_host_says(self) -> None:
        self.addCleanup(setattr, wit_call, "left_ms", wit_call.left_ms)
        wit_call.left_ms = 40
        self.assertEqual(self.answer(lambda event: retry_after(call.remaining())), wit.DispatchResult_RetryAfter(40))


class Log(Component):
    def test_the_level_is_asked_once_a_call_and_lines_below_it_stay_here(self) -> None:
        wit_log.kept = wit_log.Level.WARN
        wit_log.asked = 0

        def speak(event: Event) -> Answer:
            log.info("not kept")
            log.error("kept")
            return None

        self.answer(speak)
        self.assertEqual([line[1] for line in wit_log.lines], ["kept"])
        wit_log.kept = None
        _component.Handler().on_event(EVENT)

        self.assertEqual((len(wit_log.lines), wit_log.asked), (1, 2))

    def test_the_standard_logging_leads_to_the_host(self) -> None:
        self.answer(lambda event: logging.getLogger("shop").info("placed %d", 7))

        self.assertEqual(wit_log.lines, [(wit_log.Level.INFO, "placed 7", [("logger", "shop")])])

    def test_a_plugin_that_set_up_its_own_logging_keeps_it(self) -> None:
        logging.getLogger().addHandler(logging.NullHandler())
        self.answer(lambda event: logging.getLogger("shop").warning("placed"))

        self.assertEqual(wit_log.lines, [])
        self.assertFalse(any(isinstance(handler, LogHandler) for handler in logging.getLogger().handlers))


if __name__ == "__main__":
    unittest.main()
