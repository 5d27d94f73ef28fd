from dataclasses import dataclass
from types import TracebackType
from typing import Self

from componentize_py_types import Err, Result

from .error import Error
from .poll import Pollable
from .streams import InputStream, OutputStream, StreamError


@dataclass
class Method_Get:
    pass


@dataclass
class Method_Head:
    pass


@dataclass
class Method_Post:
    pass


@dataclass
class Method_Put:
    pass


@dataclass
class Method_Delete:
    pass


@dataclass
class Method_Connect:
    pass


@dataclass
class Method_Options:
    pass


@dataclass
class Method_Trace:
    pass


@dataclass
class Method_Patch:
    pass


@dataclass
class Method_Other:
    value: str


Method = (
    Method_Get
    | Method_Head
    | Method_Post
    | Method_Put
    | Method_Delete
    | Method_Connect
    | Method_Options
    | Method_Trace
    | Method_Patch
    | Method_Other
)


@dataclass
class Scheme_Http:
    pass


@dataclass
class Scheme_Https:
    pass


@dataclass
class Scheme_Other:
    value: str


Scheme = Scheme_Http | Scheme_Https | Scheme_Other


@dataclass
class ErrorCode_ConnectionRefused:
    pass


@dataclass
class ErrorCode_HttpRequestDenied:
    pass


@dataclass
class ErrorCode_InternalError:
    value: str | None


ErrorCode = ErrorCode_ConnectionRefused | ErrorCode_HttpRequestDenied | ErrorCode_InternalError


@dataclass
class HeaderError_InvalidSyntax:
    pass


HeaderError = HeaderError_InvalidSyntax


class _Resource:
    dropped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self.dropped = True
        return None


class Fields(_Resource):
    def __init__(self) -> None:
        self._entries: list[tuple[str, bytes]] = []

    @classmethod
    def from_list(cls, entries: list[tuple[str, bytes]]) -> Self:
        if any(" " in name for name, _ in entries):
            raise Err(HeaderError_InvalidSyntax())
        fields = cls()
        fields._entries = entries
        return fields

    def entries(self) -> list[tuple[str, bytes]]:
        return self._entries


class OutgoingBody(_Resource):
    def __init__(self, stream: OutputStream) -> None:
        self._stream = stream
        self.finished = False

    def write(self) -> OutputStream:
        return self._stream

    @classmethod
    def finish(cls, this: Self, trailers: Fields | None) -> None:
        assert this._stream.dropped
        this.finished = True


class OutgoingRequest(_Resource):
    rooms: list[int] = []
    """How much each stream takes at a time."""

    def __init__(self, headers: Fields) -> None:
        self.fields = headers
        self.sent_body = OutgoingBody(OutputStream(list(self.rooms)))
        self.sent_method: Method = Method_Get()
        self.sent_path: str | None = None
        self.sent_scheme: Scheme | None = None
        self.sent_authority: str | None = None

    def body(self) -> OutgoingBody:
        return self.sent_body

    def set_method(self, method: Method) -> None:
        self.sent_method = method

    def set_path_with_query(self, path_with_query: str | None) -> None:
        self.sent_path = path_with_query

    def set_scheme(self, scheme: Scheme | None) -> None:
        self.sent_scheme = scheme

    def set_authority(self, authority: str | None) -> None:
        if authority == "no host":
            raise Err(None)
        self.sent_authority = authority


class RequestOptions(_Resource):
    def __init__(self) -> None:
        self.first_byte: int | None = None

    def set_connect_timeout(self, duration: int | None) -> None:
        raise Err(None)

    def set_first_byte_timeout(self, duration: int | None) -> None:
        self.first_byte = duration

    def set_between_bytes_timeout(self, duration: int | None) -> None:
        return None


class FutureTrailers(_Resource):
    pass


class IncomingBody(_Resource):
    def __init__(self, chunks: list[bytes | StreamError]) -> None:
        self._stream = InputStream(chunks)

    def stream(self) -> InputStream:
        return self._stream

    @classmethod
    def finish(cls, this: Self) -> FutureTrailers:
        assert this._stream.dropped
        return FutureTrailers()


class IncomingResponse(_Resource):
    def __init__(self, status: int, headers: list[tuple[str, bytes]], chunks: list[bytes | StreamError]) -> None:
        self._status = status
        self._fields = Fields.from_list(headers)
        self._body = IncomingBody(chunks)

    def status(self) -> int:
        return self._status

    def headers(self) -> Fields:
        return self._fields

    def consume(self) -> IncomingBody:
        return self._body


class FutureIncomingResponse(_Resource):
    def __init__(self, answers: list[Result[Result[IncomingResponse, ErrorCode], None] | None]) -> None:
        self._answers = answers

    def subscribe(self) -> Pollable:
        return Pollable(lambda: bool(self._answers))

    def get(self) -> Result[Result[IncomingResponse, ErrorCode], None] | None:
        return self._answers.pop(0) if self._answers else None


def http_error_code(err: Error) -> ErrorCode | None:
    return None
