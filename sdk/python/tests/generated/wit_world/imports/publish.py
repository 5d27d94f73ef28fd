from dataclasses import dataclass

from componentize_py_types import Err, Ok, Result

from . import listener_types as types


@dataclass
class Message:
    subject: str
    key: str | None
    content_type: str
    body: bytes
    headers: list[tuple[str, str]]
    attributes: list[tuple[str, str]]


sent: list[tuple[str, Message]] = []
refusals: dict[str, types.Refusal] = {}
"""By subject."""


def send(sink: str, message: Message) -> None:
    if message.subject in refusals:
        raise Err(refusals[message.subject])
    sent.append((sink, message))


def send_all(sink: str, messages: list[Message]) -> list[Result[None, types.Refusal]]:
    answers: list[Result[None, types.Refusal]] = []
    for message in messages:
        if message.subject in refusals:
            answers.append(Err(refusals[message.subject]))
        else:
            sent.append((sink, message))
            answers.append(Ok(None))
    return answers
