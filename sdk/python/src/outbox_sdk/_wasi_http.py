"""HTTP over wasi:http. Only a component that was built with it imports this.

Every resource is dropped by hand, in the order that WASI asks for: what was made from a stream goes before the stream.
"""

from collections.abc import Callable

from componentize_py_types import Err, Ok
from wit_world.imports import http_types as wasi
from wit_world.imports import monotonic_clock, outgoing_handler
from wit_world.imports.poll import Pollable, poll
from wit_world.imports.streams import InputStream, OutputStream, StreamError_Closed

from ._values import text
from .http import HttpError, Request, Response

_CHUNK_BYTES = 64 * 1024


def send(request: Request, timeout_ms: int) -> Response:
    """Makes a request, all of it within the time."""
    with monotonic_clock.subscribe_duration(timeout_ms * 1_000_000) as timer:
        exchange = _Exchange(request, timer, timeout_ms)
        outgoing = exchange.outgoing()
        body = outgoing.body()
        try:
            future = outgoing_handler.handle(outgoing, exchange.options())
        except Err as error:
            raise exchange.failed(error.value) from None
        with future:
            exchange.write(body)
            with exchange.response(future) as response:
                headers = response.headers()
                with headers:
                    # Any byte may stand in a header; Latin-1 has a character for each.
                    fields = tuple((name, value.decode("latin-1")) for name, value in headers.entries())
                return Response(status=response.status(), headers=fields, body=exchange.read(response.consume()))


class _Exchange:
    """One request and its response, with the clock that runs on both."""

    def __init__(self, request: Request, timer: Pollable, timeout_ms: int) -> None:
        self._request = request
        self._timer = timer
        self._timeout_ms = timeout_ms

    def outgoing(self) -> wasi.OutgoingRequest:
        """The request without its body."""
        request = self._request
        entries = [(name, value.encode("latin-1", "replace")) for name, value in request.headers]
        # Without it the body would go in chunks, which some servers refuse.
        if request.body and not any(name.lower() == "content-length" for name, _ in entries):
            entries.append(("content-length", str(len(request.body)).encode()))
        try:
            outgoing = wasi.OutgoingRequest(wasi.Fields.from_list(entries))
        except Err as error:
            why = _kebab(error.value)
            raise ValueError(f"the headers of the request to {request.origin} are refused: {why}") from None
        try:
            outgoing.set_method(_METHODS[request.method]() if request.method in _METHODS else wasi.Method_Other(request.method))
            outgoing.set_scheme(wasi.Scheme_Https() if request.scheme == "https" else wasi.Scheme_Http())
            outgoing.set_authority(request.authority)
            outgoing.set_path_with_query(request.path_with_query)
        except Err:
            raise ValueError(f"the request to {request.origin} has a method, host or path that HTTP cannot hold") from None
        return outgoing

    def options(self) -> wasi.RequestOptions:
        """The host's own times, none longer than the request's."""
        options = wasi.RequestOptions()
        nanoseconds = self._timeout_ms * 1_000_000
        for put in (options.set_connect_timeout, options.set_first_byte_timeout, options.set_between_bytes_timeout):
            try:
                put(nanoseconds)
            except Err:
                # A host that does not have this time leaves it to the timer.
                continue
        return options

    def write(self, body: wasi.OutgoingBody) -> None:
        """Sends the body. A server may answer before it has read all of it, so a stream that closes early is no error here."""
        rest = memoryview(self._request.body)
        try:
            with body.write() as stream:
                while rest:
                    room = self._room(stream)
                    stream.write(bytes(rest[:room]))
                    rest = rest[room:]
                if self._request.body:
                    stream.flush()
                    self._room(stream)
            wasi.OutgoingBody.finish(body, None)
        except Err:
            # What went wrong is told by the response, or by the error in its place.
            return

    def _room(self, stream: OutputStream) -> int:
        while not (room := stream.check_write()):
            with stream.subscribe() as ready:
                self._wait(ready)
        return room

    def response(self, future: wasi.FutureIncomingResponse) -> wasi.IncomingResponse:
        """Waits for the head of the response."""
        while (answer := future.get()) is None:
            with future.subscribe() as ready:
                self._wait(ready)
        # The outer result only says whether the response was taken before, which nobody else can have done.
        result = answer.value if isinstance(answer, Ok) else Err(wasi.ErrorCode_InternalError(None))
        if isinstance(result, Err):
            raise self.failed(result.value)
        return result.value

    def read(self, body: wasi.IncomingBody) -> bytes:
        """Waits for the body of the response, to its end."""
        chunks = []
        with body.stream() as stream:
            while (chunk := self._next(stream)) is not None:
                chunks.append(chunk)
        # The trailers that come back are of no use; dropping them ends the exchange.
        wasi.IncomingBody.finish(body).__exit__(None, None, None)
        return b"".join(chunks)

    def _next(self, stream: InputStream) -> bytes | None:
        """The next piece of the body; None at its end."""
        while True:
            try:
                chunk = stream.read(_CHUNK_BYTES)
            except Err as error:
                if isinstance(error.value, StreamError_Closed):
                    return None
                with error.value.value as cause:
                    raise self.failed(wasi.http_error_code(cause) or wasi.ErrorCode_InternalError(None)) from None
            if chunk:
                return chunk
            with stream.subscribe() as ready:
                self._wait(ready)

    def _wait(self, ready: Pollable) -> None:
        """Waits for one thing, or until the time is up."""
        if 0 not in poll([ready, self._timer]):
            milliseconds = self._timeout_ms
            raise HttpError("timeout", f"the request to {self._request.origin} was not answered in {milliseconds} ms")

    def failed(self, code: wasi.ErrorCode) -> HttpError:
        """The exception for what WASI says."""
        name = _kebab(code)
        detail = getattr(code, "value", None)
        message = f"the request to {self._request.origin} failed: {name}"
        if detail is not None:
            # A record, of which the host fills in what it knows, or a plain value.
            parts = vars(detail).values() if hasattr(detail, "__dict__") else [detail]
            message += " (" + ", ".join(text(part) for part in parts if part is not None) + ")"
        if isinstance(code, wasi.ErrorCode_HttpRequestDenied):
            message += f'; the operator grants it with "{self._request.origin}" in http.allow of the plugin\'s manifest'
        return HttpError(name, message)


_METHODS: dict[str, Callable[[], wasi.Method]] = {
    "GET": wasi.Method_Get,
    "HEAD": wasi.Method_Head,
    "POST": wasi.Method_Post,
    "PUT": wasi.Method_Put,
    "DELETE": wasi.Method_Delete,
    "CONNECT": wasi.Method_Connect,
    "OPTIONS": wasi.Method_Options,
    "TRACE": wasi.Method_Trace,
    "PATCH": wasi.Method_Patch,
}


def _kebab(case: object) -> str:
    """The name of a variant's case as WIT writes it: `ErrorCode_ConnectionRefused` is `connection-refused`."""
    name = type(case).__name__.partition("_")[2]
    return "".join("-" + char.lower() if char.isupper() else char for char in name).lstrip("-")
