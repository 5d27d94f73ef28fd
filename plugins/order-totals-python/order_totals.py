"""A projection: how many orders each customer has, and what they come to.

It keeps one JSON value for each customer in its state, such as `{"orders":2,"total":"149.50"}`, and reads it, changes it and
writes it back. Nothing more is needed to count each order once: the host commits the new value together with the answer to the
event, and delivers the event again when another call changed the value meanwhile.
"""

from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import quote

from outbox_sdk import Answer, Event, dead, listener, log, state

_CENT = Decimal("0.01")
_MOST = Decimal(10) ** 12


@dataclass
class Order:
    """What the shop writes into the payload, as JSON. More fields do no harm."""

    order_id: int
    customer_id: str
    total: Decimal


@listener("Order", "OrderPlaced")
def placed(event: Event) -> Answer:
    """Adds an order to its customer's."""
    return _count(event, 1)


@listener("Order", "OrderCancelled")
def cancelled(event: Event) -> Answer:
    """Takes an order off again.

    Without `ordered_by_aggregate` a cancellation may come before its order. The sum is then below the truth until the order
    comes, and right afterwards, since adding and taking off come to the same in any order.
    """
    return _count(event, -1)


def _count(event: Event, sign: int) -> Answer:
    order = event.json(Order)
    fault = _fault(order)
    if fault is not None:
        return dead(fault)

    key = _key(event, order)
    if len(key.encode()) > 255:
        return dead("the customer_id is too long for a key of the state")

    # Decimals, and text in the JSON: a sum of floats would drift by a cent sooner or later.
    before = state.get_json(key, default={"orders": 0, "total": "0.00"})
    orders = before["orders"] + sign
    total = Decimal(before["total"]) + sign * order.total.quantize(_CENT)
    state.set_json(key, {"orders": orders, "total": str(total)})

    log.debug("counted", order_id=order.order_id, orders=orders, total=total)
    return None


def _fault(order: Order) -> str | None:
    """What makes an order wrong that was read well; no attempt will ever find it right."""
    if not order.customer_id:
        return "the customer_id is empty"
    if not 0 <= order.total < _MOST:
        return f"an order cannot cost {order.total}"
    if order.total != order.total.quantize(_CENT):
        return f"the total {order.total} has parts of a cent"
    return None


def _key(event: Event, order: Order) -> str:
    """One value for each customer of each tenant: two tenants may both have a customer 7."""
    return f"{quote(event.tenant_id or '', safe='')}/{order.customer_id}"
