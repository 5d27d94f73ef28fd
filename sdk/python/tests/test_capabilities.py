import contextlib
import io
import logging
import unittest
from datetime import timedelta

from outbox_sdk import Failure, FailureKind, Refused, Route, call, emit, http, log, publish, settings, state, testing
from outbox_sdk._host import NoHost
from outbox_sdk.log import Level, LogHandler


class WithHost(unittest.TestCase):
    def setUp(self) -> None:
        self.host = testing.FakeHost(settings={"b": "2", "a": "1"}, secrets={"token": "t"})
        self.enterContext(self.host)


class Log(WithHost):
    def test_lines_carry_level_message_and_fields(self) -> None:
        log.info("order {placed}", order_id=7, message="m", level=None)
        for write in (log.trace, log.debug, log.warn, log.error):
            write("line")

        self.assertEqual(self.host.lines[0], (Level.INFO, "order {placed}", {"order_id": "7", "message": "m", "level": "None"}))
        self.assertEqual([line[0] for line in self.host.lines[1:]], [Level.TRACE, Level.DEBUG, Level.WARN, Level.ERROR])

    def test_text_that_is_no_utf_8_is_mended(self) -> None:
        log.info("half \ud800", field="\udfff")

        self.assertEqual(self.host.lines[0][1:], ("half ?", {"field": "?"}))

    def test_the_standard_logging_leads_to_the_host(self) -> None:
        logger = logging.getLogger("shop.orders")
        logger.propagate, logger.level = False, logging.DEBUG
        handler = LogHandler()
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)

        logger.warning("order %d is late", 7, extra={"order_id": 7})
        try:
            raise KeyError("k")
        except KeyError:
            logger.exception("lost")
        logger.log(1, "not kept by the logger")
        logger.critical("the end")

        (first, second, third) = self.host.lines
        self.assertEqual(first, (Level.WARN, "order 7 is late", {"order_id": "7", "logger": "shop.orders"}))
        self.assertEqual(second[:2], (Level.ERROR, "lost"))
        self.assertIn("KeyError: 'k'", second[2]["exception"])
        self.assertEqual(third[0], Level.ERROR)


class Settings(WithHost):
    def test_settings_and_secrets_are_read(self) -> None:
        self.assertEqual(settings.get("a"), "1")
        self.assertIsNone(settings.get("c"))
        self.assertEqual(settings.get("c", "3"), "3")
        self.assertEqual(list(settings.get_all().items()), [("a", "1"), ("b", "2")])
        self.assertEqual(settings.secret("token"), "t")
        self.assertIsNone(settings.secret("a"))
        self.assertEqual(settings.require("a") + settings.require_secret("token"), "1t")

    def test_a_required_setting_that_is_missing_says_which_line_to_add(self) -> None:
        with self.assertRaises(Failure) as raised:
            settings.require("sender")
        self.assertEqual(
            raised.exception,
            Failure.retryable('the plugin\'s manifest has no `sender` in [config]; add sender = "…" there', code="setting-missing"),
        )
        with self.assertRaisesRegex(Failure, r"\[secrets\]"):
            settings.require_secret("key")


class Call(WithHost):
    def test_what_is_left_is_in_seconds(self) -> None:
        self.assertEqual(call.remaining(), 5.0)


class Emit(WithHost):
    def test_everything_is_passed_on(self) -> None:
        id = emit(
            "Mail",
            "MailWanted",
            {"to": "grüß@example.com"},
            aggregate_id="7",
            tenant_id="t",
            headers={"a": "b"},
            id="x",
            deliver_after=timedelta(minutes=1),
            expires_after=0.5,
            attributes=[("k", "v")],
        )

        self.assertEqual(id, "x")
        (envelope,) = self.host.emitted
        self.assertEqual(envelope.route, Route("Mail", "MailWanted"))
        self.assertEqual(envelope.payload.decode(), '{"to":"grüß@example.com"}')
        self.assertEqual(envelope.content_type, "application/json")
        self.assertEqual((envelope.deliver_after_ms, envelope.expires_after_ms), (60_000, 500))
        self.assertEqual((envelope.headers, envelope.attributes), ((("a", "b"),), (("k", "v"),)))

    def test_bytes_and_text_go_as_they_are(self) -> None:
        emit("A", "B", b"\x00\xff")
        emit("A", "B", "text")
        emit("A", "B", b"<a/>", content_type="application/xml")

        self.assertEqual(
            [(envelope.payload, envelope.content_type) for envelope in self.host.emitted],
            [
                (b"\x00\xff", "application/octet-stream"),
                (b"text", "text/plain; charset=utf-8"),
                (b"<a/>", "application/xml"),
            ],
        )

    def test_what_the_contract_cannot_hold_is_refused_before_the_host_is_asked(self) -> None:
        with self.assertRaisesRegex(ValueError, "49 days"):
            emit("A", "B", deliver_after=timedelta(days=50))
        with self.assertRaises(ValueError):
            emit("A", "B", {"x": float("nan")})
        with self.assertRaises(TypeError):
            emit("A", "B", {"x": object()})

    def test_without_the_grant_it_is_refused(self) -> None:
        self.host.denied = {"emit"}
        with self.assertRaisesRegex(Refused, r"the host refused emit \(not-granted\)"):
            emit("A", "B")


class Publish(WithHost):
    def test_a_message_is_sent(self) -> None:
        publish.send("orders", {"id": 7}, subject="placed", key="k", headers={"a": "b"})

        ((sink, message),) = self.host.sent
        self.assertEqual((sink, message.subject, message.key, message.body), ("orders", "placed", "k", b'{"id":7}'))

    def test_messages_are_sent_together(self) -> None:
        publish.send_all("orders", (publish.message(n, subject=str(n)) for n in range(3)))

        self.assertEqual([message.body for _, message in self.host.sent], [b"0", b"1", b"2"])

    def test_a_message_that_was_refused_cannot_be_overlooked(self) -> None:
        self.host.denied = {"publish"}
        with self.assertRaisesRegex(publish.NotAllSent, "2 of 2 messages were not sent; the first of them: the host"):
            publish.send_all("orders", [publish.message(1), publish.message(2)])


class State(WithHost):
    def test_values_are_kept_as_bytes_text_and_json(self) -> None:
        state.set("b", b"\x00")
        state.set_text("t", "ü")
        state.set_json("j", {"n": 1})

        self.assertEqual((state.get("b"), state.get_text("t"), state.get_json("j")), (b"\x00", "ü", {"n": 1}))
        self.assertEqual(self.host.state["j"], b'{"n":1}')

    def test_a_key_that_is_not_there_gives_the_default(self) -> None:
        self.assertIsNone(state.get("x"))
        self.assertEqual((state.get_text("x", "d"), state.get_json("x", [])), ("d", []))
        state.delete("x")

    def test_a_key_that_the_contract_forbids_is_refused(self) -> None:
        for key in ("", "ü" * 128):
            with self.assertRaisesRegex(Refused, "invalid"):
                state.set(key, b"")

    def test_a_value_that_is_no_bytes_is_a_mistake(self) -> None:
        with self.assertRaises(TypeError):
            state.set("k", 5)  # type: ignore[arg-type]


class Http(WithHost):
    def send(self, *arguments: object, **named: object) -> http.Request:
        self.host._http = lambda request: http.Response(200, (("Content-Type", "text/plain"),), b'{"ok":true}')
        response = http.request(*arguments, **named)  # type: ignore[arg-type]
        self.assertTrue(response.ok)
        self.assertEqual((response.header("content-type"), response.json()), ("text/plain", {"ok": True}))
        return self.host.requests[-1]

    def test_a_url_is_escaped_and_loses_its_fragment(self) -> None:
        request = self.send("get", "https://api.example.com:8443/a b/%20ü?q=x y&z=%26#fragment")

        self.assertEqual(
            (request.method, request.url), ("GET", "https://api.example.com:8443/a%20b/%20%C3%BC?q=x%20y&z=%26")
        )
        self.assertEqual(self.send("GET", "http://h").url, "http://h/")

    def test_a_request_ends_before_the_call_does(self) -> None:
        self.host.remaining = 5.0
        self.assertEqual(self.send("GET", "http://h").timeout_ms, 4500)
        self.assertEqual(self.send("GET", "http://h", timeout=0).timeout_ms, 1)

    def test_a_body_brings_its_content_type_unless_there_is_one(self) -> None:
        self.assertEqual(self.send("POST", "http://h", body={"a": 1}).headers, (("content-type", "application/json"),))
        request = self.send("POST", "http://h", {"Content-Type": "x/y"}, b"z", timeout=1.5)
        self.assertEqual((request.headers, request.body, request.timeout_ms), ((("Content-Type", "x/y"),), b"z", 1500))
        self.assertEqual(self.send("GET", "http://h").headers, ())

    def test_what_can_never_be_sent_is_refused_without_naming_the_url(self) -> None:
        for url in ("ftp://h/secret", "/secret", "https://user:secret@h/"):
            with self.assertRaises(ValueError) as raised:
                http.request("GET", url)
            self.assertNotIn("secret", str(raised.exception))
        with self.assertRaisesRegex(ValueError, "not an HTTP method"):
            http.request("GE T", "http://h")

    def failure(self, status: int, *headers: tuple[str, str], body: bytes = b"") -> Failure:
        self.host._http = lambda request: http.Response(status, headers, body)
        with self.assertRaises(Failure) as raised:
            http.request("GET", "https://h/a?key=secret").require_ok().json()
        return raised.exception

    def test_a_status_that_passes_is_retryable_and_another_is_not(self) -> None:
        for status in (408, 425, 429, 500, 503):
            self.assertEqual(self.failure(status).kind, FailureKind.RETRYABLE, status)
        for status in (301, 400, 404, 422):
            self.assertEqual(self.failure(status).kind, FailureKind.UNRECOVERABLE, status)

        failure = self.failure(404)
        self.assertEqual((failure.message, failure.code), ("GET https://h/a was answered with the status 404", "http-404"))

    def test_a_server_says_when_to_come_back(self) -> None:
        self.assertEqual(self.failure(429, ("Retry-After", "3")).delay_ms, 3000)
        self.assertEqual(self.failure(503, ("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT")).kind, FailureKind.RETRYABLE)

    def test_a_body_that_is_no_json_is_retryable(self) -> None:
        failure = self.failure(200, body=b"<html>")
        self.assertEqual((failure.kind, failure.code), (FailureKind.RETRYABLE, "bad-response"))
        self.assertNotIn("secret", failure.message)

    def test_no_answer_is_a_refusal(self) -> None:
        with self.assertRaisesRegex(Refused, "unavailable"):
            http.request("GET", "http://h")
        self.host.denied = {"http"}
        with self.assertRaisesRegex(Refused, "not-granted"):
            http.request("GET", "http://h")


class WithoutHost(unittest.TestCase):
    def test_lines_go_to_standard_error_and_settings_are_empty(self) -> None:
        error = io.StringIO()
        with contextlib.redirect_stderr(error):
            log.info("placed", order_id=7)

        self.assertEqual(error.getvalue(), "info: placed order_id=7\n")
        self.assertEqual((settings.get("a"), settings.get_all(), settings.secret("a")), (None, {}, None))

    def test_everything_else_says_how_to_get_a_host(self) -> None:
        for ask in (lambda: emit("A", "B"), lambda: state.get("k"), lambda: publish.send("s", 1), call.remaining):
            with self.assertRaisesRegex(NoHost, "needs a host, and there is none: in a test, use `with"):
                ask()


if __name__ == "__main__":
    unittest.main()
