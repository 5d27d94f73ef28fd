from collections.abc import Callable

from componentize_py_types import Err

from . import http_types

requests: list[tuple[http_types.OutgoingRequest, http_types.RequestOptions | None]] = []


def _nobody(request: http_types.OutgoingRequest) -> http_types.FutureIncomingResponse:
    raise Err(http_types.ErrorCode_ConnectionRefused())


answer: Callable[[http_types.OutgoingRequest], http_types.FutureIncomingResponse] = _nobody


def handle(request: http_types.OutgoingRequest, options: http_types.RequestOptions | None) -> http_types.FutureIncomingResponse:
    requests.append((request, options))
    return answer(request)
