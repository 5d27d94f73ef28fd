"""Answers {{aggregate_type}}/{{event_type}}."""

from dataclasses import dataclass

from outbox_sdk import Answer, Event, dead, http, listener, log, settings


@dataclass
class Payload:
    """What the writer puts into the payload, as JSON. More fields do no harm."""

    message: str


@listener("{{aggregate_type}}", "{{event_type}}")
def on_event(event: Event) -> Answer:
    """Takes a message."""
    payload = event.json(Payload)
    if not payload.message:
        return dead("the message is empty")
    log.info(f"{event.route.event_type}: {payload.message}", attempt=event.attempt)

    # Where the manifest names an endpoint, it gets the event. It may get it again: the host sends the event's id along as the key
    # against doing a thing twice.
    endpoint = settings.get("endpoint")
    if endpoint is not None:
        http.request("POST", endpoint, {"content-type": event.content_type}, event.payload).require_ok()
    return None
