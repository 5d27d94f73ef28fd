"""HTTP requests, for plugins that are built for the world `http-listener` or `full-listener`.

Needs the origin (scheme, host and port) in `http.allow` of the plugin's manifest::

    from outbox_sdk import Failure, http

    response = http.request("POST", "https://api.example.com/v2/orders", body={"id": 7}, timeout=2)
    if not response.ok:
        raise Failure.retryable(f"the API answered {response.status}")
"""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from . import _host
from ._values import Body, Delay, Pairs, encode, from_json, milliseconds, pairs, text

__all__ = ["HttpError", "Request", "Response", "request"]


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it goes to the host. Made by `request`."""

    method: str
    scheme: str
    authority: str
    path_with_query: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    timeout_ms: int | None

    @property
    def origin(self) -> str:
        """Scheme, host and port: all of the address that a message may name, since a path or a query can hold a secret."""
        return f"{self.scheme}://{self.authority}"


@dataclass(frozen=True, slots=True)
class Response:
    """What came back, whole."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    @property
    def ok(self) -> bool:
        """Whether the status is one of 200 to 299."""
        return 200 <= self.status <= 299

    def header(self, name: str) -> str | None:
        """The first header of this name, in any case of its letters; None if there is none."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)

    def text(self) -> str:
        """The body as UTF-8 text. Raises `ValueError` when it is no UTF-8."""
        return self.body.decode()

    def json(self) -> Any:
        """The body, parsed as JSON. Raises `ValueError` when it is no JSON."""
        return from_json(self.body)


class HttpError(Exception):
    """No response came. Uncaught, it becomes a retryable failure with the same code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        """What happened, as wasi:http names it, such as `connection-refused`; `timeout` when the request's own time was up."""


def request(
    method: str,
    url: str,
    headers: Pairs | None = None,
    body: Body = None,
    timeout: Delay | None = None,
) -> Response:
    """Makes a request, and waits for the whole response. A status such as 500 is a response, not an error.

    `body`: bytes go as they are, a `str` as text, anything else but None as JSON; a header `content-type` says otherwise what it
    is. `timeout` is for all of it, in seconds or as a `timedelta`; None for what is left of the call, less a tenth of a second in
    which the listener can still answer.

    Raises `HttpError` when no response came, and `ValueError` when the request can never be made. Redirects are not followed.
    """
    scheme, authority, path_with_query = _split(url)
    fields = pairs(headers)
    content = b""
    if body is not None:
        content, usual_type = encode(body)
        if not any(name.lower() == "content-type" for name, _ in fields):
            fields = (*fields, ("content-type", usual_type))
    return _host.current.http(
        Request(
            method=_method(method),
            scheme=scheme,
            authority=authority,
            path_with_query=path_with_query,
            headers=fields,
            body=content,
            timeout_ms=None if timeout is None else milliseconds(timeout),
        )
    )


def _split(url: str) -> tuple[str, str, str]:
    parts = urlsplit(text(url))
    # The address itself stays out of the messages: it may hold a secret.
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the URL of a request begins with http:// or https:// and a host")
    if parts.username is not None:
        raise ValueError("the URL of a request has a user name in it; send an `authorization` header instead")
    # Characters that a URL cannot hold are written as it wants them; what is escaped already is left alone.
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~")
    query = "?" + quote(parts.query, safe="/%:@!$&'()*+,;=~?") if parts.query else ""
    return parts.scheme, parts.netloc, path + query


def _method(method: str) -> str:
    if not method or not all(char.isascii() and (char.isalnum() or char in "!#$%&'*+-.^_`|~") for char in method):
        raise ValueError(f"{method!r} is no HTTP method")
    return method.upper()
