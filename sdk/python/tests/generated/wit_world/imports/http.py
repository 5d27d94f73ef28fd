from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Request:
    method: str
    url: str
    headers: list[tuple[str, str]]
    body: bytes
    timeout_ms: int | None
    attributes: list[tuple[str, str]]


@dataclass
class Response:
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    attributes: list[tuple[str, str]]


requests: list[Request] = []


def _no_content(request: Request) -> Response:
    return Response(204, [], b"", [])


answer: Callable[[Request], Response] = _no_content
"""What a test sets; it raises `Err` to refuse."""


def send(request: Request) -> Response:
    requests.append(request)
    return answer(request)
