from dataclasses import dataclass
from types import TracebackType
from typing import Self

from componentize_py_types import Err

from .error import Error
from .poll import Pollable


@dataclass
class StreamError_LastOperationFailed:
    value: Error


@dataclass
class StreamError_Closed:
    pass


StreamError = StreamError_LastOperationFailed | StreamError_Closed


class _Stream:
    def __init__(self) -> None:
        self._pollables: list[Pollable] = []
        self.dropped = False

    def _subscribe(self, ready: bool) -> Pollable:
        pollable = Pollable(lambda: ready)
        self._pollables.append(pollable)
        return pollable

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert all(pollable.dropped for pollable in self._pollables), "a stream is dropped after what was made from it"
        self.dropped = True
        return None


class InputStream(_Stream):
    def __init__(self, chunks: list[bytes | StreamError]) -> None:
        super().__init__()
        self._chunks = chunks

    def read(self, len: int) -> bytes:
        if not self._chunks:
            raise Err(StreamError_Closed())
        chunk = self._chunks.pop(0)
        if isinstance(chunk, bytes):
            assert chunk.__len__() <= len
            return chunk
        raise Err(chunk)

    def subscribe(self) -> Pollable:
        return self._subscribe(bool(self._chunks))


class OutputStream(_Stream):
    def __init__(self, rooms: list[int]) -> None:
        super().__init__()
        self._rooms = rooms
        self._permitted = 0
        self.written = b""
        self.flushed = False

    def check_write(self) -> int:
        self._permitted = self._rooms.pop(0) if self._rooms else 0
        return self._permitted

    def write(self, contents: bytes) -> None:
        assert type(contents) is bytes and len(contents) <= self._permitted
        self.written += contents

    def flush(self) -> None:
        self.flushed = True

    def subscribe(self) -> Pollable:
        return self._subscribe(bool(self._rooms))
