import unittest
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from outbox_sdk import Failure, FailureKind, testing


@dataclass
class Item:
    name: str
    count: int = 1


@dataclass
class Order:
    order_id: int
    total: Decimal
    weight: float | None = None
    gift: bool = False
    items: list[Item] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    id_or_name: int | str = 0
    rest: Any = None


def order(payload: object) -> Order:
    return testing.event("Order", "OrderPlaced", payload).json(Order)


class Json(unittest.TestCase):
    def why(self, payload: object) -> str:
        with self.assertRaises(Failure) as raised:
            order(payload)
        self.assertEqual(raised.exception.kind, FailureKind.UNRECOVERABLE)
        start = "invalid payload: "
        self.assertEqual(raised.exception.message[: len(start)], start)
        return raised.exception.message[len(start) :]

    def test_a_payload_is_parsed(self) -> None:
        self.assertEqual(testing.event("A", "B", {"x": [1.5, None]}).json(), {"x": [1.5, None]})

    def test_a_payload_is_read_into_a_dataclass(self) -> None:
        read = order(
            b'{"order_id": 7, "total": 9.10, "weight": 2, "gift": true, "items": [{"name": "pen"}, {"name": "ink", "count": 2}],'
            b' "notes": {"a": "b"}, "id_or_name": "x", "rest": {"deep": [0.5]}, "unknown": 1}'
        )

        self.assertEqual(
            read,
            Order(7, Decimal("9.10"), 2.0, True, [Item("pen"), Item("ink", 2)], {"a": "b"}, "x", {"deep": [0.5]}),
        )
        self.assertIsInstance(read.weight, float)
        self.assertEqual(str(read.total), "9.10")

    def test_what_is_missing_or_wrong_is_named_with_its_path(self) -> None:
        good: dict[str, object] = {"order_id": 7, "total": 9}
        self.assertEqual(self.why({"order_id": 7}), "the field `total` is missing")
        self.assertEqual(self.why(good | {"order_id": "7"}), "the field `order_id` is a string, not a whole number")
        self.assertEqual(self.why(good | {"order_id": True}), "the field `order_id` is true or false, not a whole number")
        self.assertEqual(self.why(good | {"order_id": 7.5}), "the field `order_id` is a number, not a whole number")
        self.assertEqual(self.why(good | {"total": None}), "the field `total` is null, not a number")
        self.assertEqual(self.why(good | {"weight": "x"}), "the field `weight` is a string, not a number")
        self.assertEqual(self.why(good | {"items": {}}), "the field `items` is an object, not a list")
        self.assertEqual(self.why(good | {"items": [{"name": "a"}, {}]}), "the field `items[1].name` is missing")
        self.assertEqual(self.why(good | {"notes": {"k": 1}}), "the field `notes.k` is a number, not a string")
        self.assertEqual(self.why(good | {"id_or_name": None}), "the field `id_or_name` is none of int or str")
        self.assertEqual(self.why([]), "the whole of it is a list, not an object")

    def test_what_is_no_json_is_unrecoverable(self) -> None:
        self.assertIn("line 1 column", self.why(b'{"id": 1,}'))
        self.assertIn("NaN is not JSON", self.why(b'{"order_id": 1, "total": NaN}'))
        self.assertIn("can't decode byte 0xff", self.why(b"\xff"))
        self.assertIn("nested more than 500 levels deep", self.why(b"[" * 200_000))
        self.assertIn("nested more than 500 levels deep", self.why(b'{"a":' * 501 + b"1" + b"}" * 501))
        self.why(b'{"order_id": 1, "total": 1, "weight": 1e' + b"9" * 40 + b"}")
        self.why(b'{"order_id": ' + b"9" * 10_000 + b"}")

    def test_depth_is_measured_outside_of_strings(self) -> None:
        for payload in (b"[" * 500 + b"]" * 500, b"[" + b"[],{}," * 500 + b"1]", b'["' + b'[{\\"' * 501 + b'"]'):
            testing.event("A", "B", payload).json()

    def test_a_shape_that_json_cannot_have_is_a_mistake_in_the_plugin(self) -> None:
        for shape in (set[int], dict[int, int], bytes):
            with self.assertRaisesRegex(TypeError, "JSON cannot be read into"):
                testing.event("A", "B", {"1": 1}).json(shape)


class TheRest(unittest.TestCase):
    def test_text_is_utf_8(self) -> None:
        self.assertEqual(testing.event("A", "B", "grüß").text(), "grüß")
        with self.assertRaises(Failure) as raised:
            testing.event("A", "B", b"\xff").text()
        self.assertEqual(raised.exception.kind, FailureKind.UNRECOVERABLE)

    def test_a_header_is_found_by_its_exact_name(self) -> None:
        event = testing.event("A", "B", headers=[("traceparent", "00-1"), ("traceparent", "00-2")])

        self.assertEqual(event.header("traceparent"), "00-1")
        self.assertIsNone(event.header("Traceparent"))

    def test_an_attribute_is_found(self) -> None:
        self.assertEqual(testing.event("A", "B", attributes={"max-attempts": "10"}).attribute("max-attempts"), "10")

    def test_the_time_is_in_utc(self) -> None:
        event = testing.event("A", "B", occurred_at_ms=1_732_000_000_123)

        self.assertEqual(event.occurred_at, datetime(2024, 11, 19, 7, 6, 40, 123_000, tzinfo=UTC))

    def test_a_route_reads_as_people_write_it(self) -> None:
        self.assertEqual(str(testing.event("Order", "OrderPlaced").route), "Order/OrderPlaced")


if __name__ == "__main__":
    unittest.main()
