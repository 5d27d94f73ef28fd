from types import TracebackType
from typing import Self


class Error:
    def to_debug_string(self) -> str:
        return "broken"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return None
