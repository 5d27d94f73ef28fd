//! The sample to start from: tells the log which mail it would send about an order.
//!
//! Change a text while `cargo xtask dev` runs: it is rebuilt and reloaded, and the next event shows it.

use outbox_sdk::prelude::*;

listener! {
    "Order" / "OrderPlaced" => on_order_placed,
    "Order" / "OrderPaid" => on_order_paid,
}

/// What the shop writes into the payload, as JSON. More fields do no harm.
#[derive(Deserialize)]
struct Order {
    order_id: u64,
    total: f64,
}

fn on_order_placed(event: &Event, order: Order) -> Answer {
    if order.total < 0.0 {
        return Ok(dead("an order cannot cost less than nothing"));
    }
    send("thank you for your order", event, &order)
}

fn on_order_paid(event: &Event, order: Order) -> Answer {
    send("your payment has arrived", event, &order)
}

/// Where a real mailer would call its mail service, with the event's id as the key against sending twice.
fn send(subject: &str, event: &Event, order: &Order) -> Answer {
    let sender = config::get("sender").unwrap_or_else(|| "shop@example.com".to_owned());
    let Order { order_id, total } = order;
    let event_id = &event.id;

    info!(order_id = order_id, total = total; "mail from {sender}: {subject} {order_id} over {total:.2} (event {event_id})");
    Ok(Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(payload: &str) -> Answer {
        ThisPlugin::on_event(&Event::for_test("Order", "OrderPlaced").with_text(payload))
    }

    #[test]
    fn an_order_is_mailed() {
        assert_eq!(placed(r#"{ "order_id": 42, "total": 99.5, "currency": "EUR" }"#), Ok(Done));
    }

    #[test]
    fn a_paid_order_is_mailed_from_the_configured_sender() {
        outbox_sdk::testing::set_config("sender", "till@example.com");

        let event = Event::for_test("Order", "OrderPaid").with_text(r#"{ "order_id": 42, "total": 99.5 }"#);

        assert_eq!(ThisPlugin::on_event(&event), Ok(Done));
    }

    #[test]
    fn an_order_below_zero_is_never_mailed() {
        assert_eq!(placed(r#"{ "order_id": 42, "total": -1 }"#), Ok(dead("an order cannot cost less than nothing")));
    }

    #[test]
    fn what_is_not_an_order_is_not_tried_again() {
        let failure = placed(r#"{ "order_id": 42 }"#).unwrap_err();

        assert_eq!(failure.kind, FailureKind::Unrecoverable);
        assert!(failure.message.contains("`total` is missing"), "{}", failure.message);
    }
}
