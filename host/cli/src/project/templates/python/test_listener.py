import unittest

import listener  # noqa: F401  its decorators list its listeners
from outbox_sdk import Failure, FailureKind, dead, done, http, testing


def message(payload: object) -> testing.Event:
    return testing.event("{{aggregate_type}}", "{{event_type}}", payload)


class Listener(unittest.TestCase):
    def test_a_message_is_taken(self) -> None:
        host = testing.FakeHost()

        self.assertEqual(host.deliver(message({"message": "hello"})), done())
        self.assertIn("hello", host.lines[0][1])

    def test_an_empty_message_is_never_delivered_again(self) -> None:
        self.assertEqual(testing.FakeHost().deliver(message({"message": ""})), dead("the message is empty"))

    def test_what_is_no_message_is_never_delivered_again(self) -> None:
        failure = testing.FakeHost().deliver(message({}))

        assert isinstance(failure, Failure)
        self.assertEqual(failure.kind, FailureKind.UNRECOVERABLE)

    def test_an_endpoint_gets_the_event(self) -> None:
        host = testing.FakeHost(settings={"endpoint": "https://hooks.example.com/"}, http=lambda request: http.Response(204))

        self.assertEqual(host.deliver(message({"message": "hello"})), done())
        self.assertEqual(host.requests[0].url, "https://hooks.example.com/")


if __name__ == "__main__":
    unittest.main()
