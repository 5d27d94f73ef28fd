from collections.abc import Callable
from types import TracebackType
from typing import Self


class Pollable:
    def __init__(self, is_ready: Callable[[], bool]) -> None:
        self._is_ready = is_ready
        self.dropped = False

    def ready(self) -> bool:
        assert not self.dropped
        return self._is_ready()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self.dropped = True
        return None


def poll(in_: list[Pollable]) -> list[int]:
    ready = [index for index, one in enumerate(in_) if one.ready()]
    assert ready, "nothing would ever become ready"
    return ready
