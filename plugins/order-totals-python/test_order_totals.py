import json
import unittest
from typing import Any

import order_totals  # noqa: F401  its decorators list the listeners
from outbox_sdk import Dead, Failure, FailureKind, Outcome, dead, done, testing


def order(**fields: object) -> dict[str, object]:
    return {"order_id": 42, "customer_id": "c-7", "total": 99.5} | fields


class OrderTotals(unittest.TestCase):
    def setUp(self) -> None:
        self.host = testing.FakeHost()

    def place(self, payload: object, tenant: str | None = None) -> Outcome:
        return self.host.deliver(testing.event("Order", "OrderPlaced", payload, tenant_id=tenant))

    def cancel(self, payload: object) -> Outcome:
        return self.host.deliver(testing.event("Order", "OrderCancelled", payload))

    def totals(self, key: str = "/c-7") -> Any:
        return json.loads(self.host.state[key])

    def test_orders_are_counted_and_added_to_the_cent(self) -> None:
        for total in (0.1, 0.2, 99.5):
            self.assertEqual(self.place(order(total=total)), done())

        self.assertEqual(self.totals(), {"orders": 3, "total": "99.80"})

    def test_a_cancelled_order_is_taken_off(self) -> None:
        self.place(order(total=99.5))
        self.place(order(total=12))

        self.assertEqual(self.cancel(order(total=99.5)), done())

        self.assertEqual(self.totals(), {"orders": 1, "total": "12.00"})

    def test_a_cancellation_before_its_order_comes_to_the_same(self) -> None:
        self.cancel(order())
        self.place(order())

        self.assertEqual(self.totals(), {"orders": 0, "total": "0.00"})

    def test_customers_and_tenants_are_kept_apart(self) -> None:
        self.place(order(customer_id="c-8"))
        self.place(order(), tenant="north/sea")
        self.place(order())

        self.assertEqual(sorted(self.host.state), ["/c-7", "/c-8", "north%2Fsea/c-7"])

    def test_a_payload_that_is_no_order_is_dead_and_says_why(self) -> None:
        for payload, why in (
            ({"order_id": 42, "customer_id": "c-7"}, "the field `total` is missing"),
            (order(total="99.50"), "the field `total` is a string, not a number"),
            (b"{", "Expecting property name"),
            (b"\xff", "can't decode byte 0xff"),
        ):
            failure = self.place(payload)

            assert isinstance(failure, Failure)
            self.assertEqual(failure.kind, FailureKind.UNRECOVERABLE)
            self.assertIn(why, failure.message)
        self.assertEqual(self.host.state, {})

    def test_an_order_that_cannot_be_is_dead_and_says_why(self) -> None:
        self.assertEqual(self.place(order(total=-1)), dead("an order cannot cost -1"))
        self.assertEqual(self.place(order(customer_id="")), dead("the customer_id is empty"))
        self.assertEqual(self.place(order(total=1e300)), dead("an order cannot cost 1E+300"))
        self.assertEqual(self.place(order(total=0.001)), dead("the total 0.001 has parts of a cent"))
        self.assertIsInstance(self.place(order(customer_id="c" * 300)), Dead)
        self.assertEqual(self.host.state, {})

    def test_without_the_grant_the_event_is_tried_again(self) -> None:
        self.host.denied.add("state")

        failure = self.place(order())

        assert isinstance(failure, Failure)
        self.assertEqual((failure.kind, failure.code), (FailureKind.RETRYABLE, "not-granted"))
        self.assertIn("the host refused state.get (not-granted)", failure.message)


if __name__ == "__main__":
    unittest.main()
