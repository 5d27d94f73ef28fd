"""Messages to the brokers and endpoints that the operator named.

A message is out when the sink has confirmed it, whatever the listener answers afterwards; each carries the event's id, by which
a consumer tells a repeat. Needs the sink's name in `publish.sinks` of the plugin's manifest.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from . import _host
from ._values import Body, Pairs, encode, pairs, text
from .refusal import Refused

__all__ = ["Message", "NotAllSent", "message", "send", "send_all"]


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it goes to the host. Made by `message`."""

    subject: str
    key: str | None
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...]
    attributes: tuple[tuple[str, str], ...]


class NotAllSent(Exception):
    """Some messages were not sent. Those before and after them may be out."""

    def __init__(self, refusals: list[Refused | None]) -> None:
        refused = [refusal for refusal in refusals if refusal is not None]
        super().__init__(f"{len(refused)} of {len(refusals)} messages were not sent; the first of them: {refused[0]}")
        self.refusals = refusals
        """For each message in order: why it was refused, or None when it was sent."""
        self.code = refused[0].code
        """The code of the failure that it becomes: the kind of the first refusal."""


def message(
    body: Body,
    *,
    subject: str = "",
    key: str | None = None,
    content_type: str | None = None,
    headers: Pairs | None = None,
    attributes: Pairs | None = None,
) -> Message:
    """A message for `send_all`.

    `body`: bytes go as they are, a `str` as text, anything else as JSON; `content_type` says otherwise what it is. `subject` is a
    subject, topic, stream, routing key or path, as the sink understands it; empty for the sink's own default. `key` is what
    keeps messages in order where the sink has partitions; None for the aggregate id of the event. `attributes`: in a function that
    takes many events, `{"event-id": event.id}` of the one that it is for. Unknown ones are refused.
    """
    content, usual_type = encode(body)
    return Message(
        subject=text(subject),
        key=None if key is None else text(key),
        content_type=usual_type if content_type is None else text(content_type),
        body=content,
        headers=pairs(headers),
        attributes=pairs(attributes),
    )


def send(
    sink: str,
    body: Body,
    *,
    subject: str = "",
    key: str | None = None,
    content_type: str | None = None,
    headers: Pairs | None = None,
    attributes: Pairs | None = None,
) -> None:
    """Sends one message, and waits until the sink has confirmed it. See `message`. Raises `Refused`."""
    one = message(body, subject=subject, key=key, content_type=content_type, headers=headers, attributes=attributes)
    _host.current.send(text(sink), one)


def send_all(sink: str, messages: Iterable[Message]) -> None:
    """Sends messages together, and waits until the sink has confirmed them all.

    Raises `NotAllSent` with an answer for each message when one was refused, so that nobody takes a lost message for a sent one.
    """
    refusals = _host.current.send_all(text(sink), list(messages))
    if any(refusals):
        raise NotAllSent(refusals)
