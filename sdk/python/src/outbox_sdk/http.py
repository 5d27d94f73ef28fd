"""HTTP requests to the origins that the operator allows.

Needs the origin (scheme, host and port) in `http.allow` of the plugin's manifest::

    from outbox_sdk import http, settings

    token = settings.require_secret("token")
    headers = {"authorization": f"Bearer {token}"}
    http.request("POST", "https://api.example.com/v2/orders", headers, {"id": 7}, timeout=2).require_ok()

A request may be made again when its event is delivered again. The host adds an `Idempotency-Key`, the same on every delivery of the
event, to each request that has none.
"""

from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import quote, urlsplit

from . import _host
from ._values import Body, Delay, Pairs, encode, from_json, milliseconds, pairs, text
from .answer import Failure

__all__ = ["Request", "Response", "request"]

_PASSING = (408, 425, 429)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it goes to the host. Made by `request`."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    timeout_ms: int | None
    attributes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Response:
    """What came back, whole."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    request: str = ""
    """What it is the response to, for messages: method and URL, without the query, which often holds a key."""

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
        """The body, parsed as JSON.

        Raises a retryable `Failure` when it is no JSON: a server that sends something else may be in trouble that passes.
        """
        try:
            return from_json(self.body)
        except ValueError as error:
            message = f"invalid response to {self.request}: {error}"
            raise Failure.retryable(message, code="bad-response") from error

    def require_ok(self) -> Self:
        """The response, when its status is one of 200 to 299.

        Raises a `Failure` with the code `http-STATUS` for every other: a retryable one for 408, 425, 429 and 500 to 599, which
        pass, after as many seconds as the header `Retry-After` says; an unrecoverable one for the rest, since the same request
        would be answered so again.
        """
        if self.ok:
            return self
        message = f"{self.request} was answered with the status {self.status}"
        code = f"http-{self.status}"
        if self.status not in _PASSING and self.status < 500:
            raise Failure.unrecoverable(message, code=code)
        wait = (self.header("retry-after") or "").strip()
        if wait.isascii() and wait.isdigit() and len(wait) < 10:
            raise Failure.retryable_after(int(wait), message, code=code)
        raise Failure.retryable(message, code=code)


def request(
    method: str,
    url: str,
    headers: Pairs | None = None,
    body: Body = None,
    timeout: Delay | None = None,
    attributes: Pairs | None = None,
) -> Response:
    """Makes a request and waits for the whole response. A status such as 500 is a response, no error: see `Response.require_ok`.

    `body`: bytes go as they are, a `str` as text, anything else but None as JSON; a header `content-type` says otherwise what it
    is. `timeout` is for all of it, in seconds or as a `timedelta`; None for nine tenths of what is left of the call, so that the
    listener can still answer. `attributes`: in a function that takes many events, `{"event-id": event.id}` of the one that it is
    for; then the request gets an `Idempotency-Key`.

    Raises `Refused` when no response came: the origin is not granted, the server cannot be reached or takes too long, the
    response is too large. Raises `ValueError` when the request can never be made. Redirects are not followed.
    """
    method, url = _method(method), _url(url)
    fields = pairs(headers)
    content = b""
    if body is not None:
        content, usual_type = encode(body)
        if not any(name.lower() == "content-type" for name, _ in fields):
            fields = (*fields, ("content-type", usual_type))
    # A call that the host cuts off loses its instance, and the reason with it.
    timeout_ms = _host.current.remaining_ms() * 9 // 10 if timeout is None else milliseconds(timeout)
    response = _host.current.http(Request(method, url, fields, content, max(timeout_ms, 1), pairs(attributes)))
    return replace(response, request=f"{method} {url.partition('?')[0]}")


def _url(url: str) -> str:
    parts = urlsplit(text(url))
    # The address itself stays out of the messages: it may hold a secret.
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the URL of a request begins with http:// or https:// and a host")
    if parts.username is not None:
        raise ValueError("the URL of a request has a user name in it; send an `authorization` header instead")
    # Characters that a URL cannot hold are written as it wants them; what is escaped already is left alone.
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~")
    query = "?" + quote(parts.query, safe="/%:@!$&'()*+,;=~?") if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{path}{query}"


def _method(method: str) -> str:
    if not method or not all(char.isascii() and (char.isalnum() or char in "!#$%&'*+-.^_`|~") for char in method):
        raise ValueError(f"{method!r} is not an HTTP method")
    return method.upper()
