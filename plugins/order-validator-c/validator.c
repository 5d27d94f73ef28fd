/* Sends orders that no shop can mean to the dead events, with the fault as the reason, before anybody acts on them. */
#include "order.h"
#include "outbox.h"

static outbox_answer on_order_placed(const outbox_event *event)
{
    char fault[ORDER_FAULT_SIZE];
    if (!order_is_valid(event->payload.bytes, event->payload.length, fault)) {
        outbox_log_with(OUTBOX_WARN, OUTBOX_PAIRS(outbox_pair_of("fault", "%s", fault)), "this event is not an order");
        return outbox_dead("%s", fault);
    }
    outbox_log(OUTBOX_DEBUG, "this event is an order");
    return outbox_done();
}

/* Where the operator has many orders delivered in one call, each is looked at as if it came alone. */
static void on_orders_placed(const outbox_event *events, size_t count, outbox_answer *answers)
{
    for (size_t i = 0; i < count; i++)
        answers[i] = on_order_placed(&events[i]);
}

OUTBOX_PLUGIN("order-validator", "0.1.0",
    { "Order", "OrderPlaced", on_order_placed },
);

OUTBOX_BATCHES(
    { "Order", "OrderPlaced", on_orders_placed },
);
