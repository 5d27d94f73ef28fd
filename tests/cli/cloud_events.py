"""Writes CloudEvents to a host as the SDK of the CloudEvents project does: in the binary and the structured mode, and as a batch.

Arguments: the address of `POST /v1/events`. Prints one line for each request: the status, and the answer's ids.
"""

import json
import sys
from datetime import datetime, timezone
from urllib.request import Request, urlopen

from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent


def event(number, data, **more):
    attributes = {
        "id": f"sdk-{number}",
        "source": "https://shop.example/ünï",
        "type": "OrderPlaced",
        "subject": f"4{number}",
        "time": datetime(2026, 11, 21, 8, 30, tzinfo=timezone.utc),
        "aggregatetype": "Order",
        "tenantid": "shop a",
        "datacontenttype": "application/json",
    }
    return CloudEvent({**attributes, **more}, data)


def send(headers, body):
    with urlopen(Request(sys.argv[1], data=body, headers=headers, method="POST")) as answer:
        print(answer.status, *json.load(answer)["ids"])


def send_message(message):
    send(message.headers, message.body)


send_message(to_binary_event(event(1, {"order_id": 1, "note": "☃ \" \\ %"})))
send_message(to_structured_event(event(2, {"order_id": 2, "note": "☃ \" \\ %"})))
send_message(to_binary_event(event(3, bytes(range(256)), datacontenttype="application/octet-stream")))
send_message(to_structured_event(event(4, bytes(range(256)), datacontenttype="application/octet-stream")))
send_message(to_structured_event(event(5, "plain ☃", datacontenttype="text/plain")))
# The SDK makes batches of nothing but its own structured form.
batch = [json.loads(to_structured_event(event(number, {"order_id": number})).body) for number in (6, 7)]
send({"Content-Type": "application/cloudevents-batch+json"}, json.dumps(batch).encode())
