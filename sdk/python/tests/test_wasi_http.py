"""HTTP over stand-ins for wasi:http."""

import sys
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "generated"))

from componentize_py_types import Err, Ok
from wit_world.imports import http_types as wasi
from wit_world.imports import monotonic_clock, outgoing_handler, streams
from wit_world.imports.error import Error

from outbox_sdk import _wasi_http
from outbox_sdk.http import HttpError, Request, Response

Answer = Callable[[wasi.OutgoingRequest], wasi.FutureIncomingResponse]


def response(
    *chunks: bytes | streams.StreamError, status: int = 200, headers: list[tuple[str, bytes]] | None = None
) -> wasi.FutureIncomingResponse:
    return wasi.FutureIncomingResponse([Ok(Ok(wasi.IncomingResponse(status, headers or [], list(chunks))))])


class Http(unittest.TestCase):
    def setUp(self) -> None:
        self.addCleanup(setattr, outgoing_handler, "answer", outgoing_handler.answer)
        self.addCleanup(setattr, wasi.OutgoingRequest, "rooms", [])
        outgoing_handler.requests.clear()

    def send(self, future: wasi.FutureIncomingResponse | wasi.ErrorCode, timeout_ms: int = 250, **changes: object) -> Response:
        def answer(request: wasi.OutgoingRequest) -> wasi.FutureIncomingResponse:
            if isinstance(future, wasi.FutureIncomingResponse):
                return future
            raise Err(future)

        outgoing_handler.answer = answer
        fields: dict[str, object] = {
            "method": "POST",
            "scheme": "https",
            "authority": "api.example.com",
            "path_with_query": "/orders?key=secret",
            "headers": (("a", "b"),),
            "body": b"",
            "timeout_ms": None,
        }
        return _wasi_http.send(Request(**(fields | changes)), timeout_ms)  # type: ignore[arg-type]

    def error(self, future: wasi.FutureIncomingResponse | wasi.ErrorCode, **changes: Any) -> HttpError:
        with self.assertRaises(HttpError) as raised:
            self.send(future, **changes)
        self.assertNotIn("secret", str(raised.exception))
        return raised.exception

    def test_a_request_goes_out_and_its_response_comes_back_whole(self) -> None:
        got = self.send(response(b"ab", b"", b"c", status=201, headers=[("X", b"\xfc")]))

        self.assertEqual(got, Response(201, (("X", "ü"),), b"abc"))
        ((request, options),) = outgoing_handler.requests
        self.assertEqual((request.sent_method, request.sent_scheme), (wasi.Method_Post(), wasi.Scheme_Https()))
        self.assertEqual((request.sent_authority, request.sent_path), ("api.example.com", "/orders?key=secret"))
        self.assertEqual(request.fields.entries(), [("a", b"b")])
        assert options is not None
        self.assertEqual((options.first_byte, monotonic_clock.durations[-1]), (250_000_000, 250_000_000))
        self.assertTrue(request.sent_body.finished)

    def test_a_body_goes_in_pieces_as_large_as_the_host_takes(self) -> None:
        wasi.OutgoingRequest.rooms = [3, 4, 1]
        self.send(response(), body=b"1234567")

        ((request, _),) = outgoing_handler.requests
        stream = request.sent_body.write()
        self.assertEqual((stream.written, stream.flushed, request.sent_body.finished), (b"1234567", True, True))
        self.assertIn(("content-length", b"7"), request.fields.entries())

    def test_a_method_that_wasi_has_no_case_for_is_named(self) -> None:
        self.send(response(), method="PURGE")
        self.assertEqual(outgoing_handler.requests[0][0].sent_method, wasi.Method_Other("PURGE"))

    def test_what_wasi_says_is_in_the_error_without_path_and_query(self) -> None:
        error = self.error(wasi.ErrorCode_ConnectionRefused())
        self.assertEqual(
            (error.code, str(error)),
            ("connection-refused", "the request to https://api.example.com failed: connection-refused"),
        )
        later = wasi.FutureIncomingResponse([Ok(Err(wasi.ErrorCode_InternalError("it broke")))])
        self.assertEqual(str(self.error(later)), "the request to https://api.example.com failed: internal-error (it broke)")

    def test_an_origin_that_is_not_granted_says_which_line_to_add(self) -> None:
        error = self.error(wasi.ErrorCode_HttpRequestDenied())
        self.assertEqual(error.code, "http-request-denied")
        self.assertIn('the operator grants it with "https://api.example.com" in http.allow', str(error))

    def test_time_runs_on_every_part(self) -> None:
        wasi.OutgoingRequest.rooms = [1, 0]
        waits: dict[str, tuple[wasi.FutureIncomingResponse, dict[str, object]]] = {
            "the body": (response(), {"body": b"12"}),
            "the head": (wasi.FutureIncomingResponse([]), {}),
        }
        for part, (future, changes) in waits.items():
            with self.subTest(part):
                error = self.error(future, **changes)
                self.assertEqual(error.code, "timeout")
                self.assertIn("was not answered in 250 ms", str(error))

    def test_a_response_that_breaks_off_is_an_error(self) -> None:
        error = self.error(response(b"a", streams.StreamError_LastOperationFailed(Error())))
        self.assertEqual(error.code, "internal-error")

    def test_a_request_that_http_cannot_hold_is_a_mistake(self) -> None:
        with self.assertRaisesRegex(ValueError, "the headers of the request .* are refused: invalid-syntax"):
            self.send(response(), headers=(("a b", "c"),))
        with self.assertRaisesRegex(ValueError, "has a method, host or path"):
            self.send(response(), authority="no host")


if __name__ == "__main__":
    unittest.main()
