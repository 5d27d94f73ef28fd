//! Native listeners that take the payload as a value.

use std::sync::atomic::{AtomicU32, Ordering};

use outbox::{Answer, Context, DispatchResult, Done, Envelope, Failure, OrFail, Status, dead};
use serde::Deserialize;
use support::Sqlite;

use crate::common::{commit, outbox, reaches};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Deserialize)]
struct Order {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    price: f64,
}

/// How often listeners were called.
#[derive(Default)]
struct Calls(AtomicU32);

async fn on_order_placed(order: Order, context: Context<Calls>) -> Result<(), BoxError> {
    context.state().0.fetch_add(1, Ordering::SeqCst);
    let total: f64 = order.items.iter().map(|item| item.price).sum();
    if total < 0.0 { Err(format!("order {} costs {total}", context.aggregate_id().unwrap_or_default()).into()) } else { Ok(()) }
}

async fn on_order_paid(amount: String, context: Context<Calls>) -> Answer {
    context.state().0.fetch_add(1, Ordering::SeqCst);
    let amount: i64 = amount.parse().or_unrecoverable("reading the amount")?;
    if amount == 0 { Ok(dead("nothing was paid")) } else { Ok(Done) }
}

fn envelope(event_type: &str, payload: &str) -> Envelope {
    Envelope::new(event_type).aggregate("Order", "7").json_text(payload.to_owned()).expect("a good envelope")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_that_does_not_parse_is_dead_at_once_without_a_call_and_its_error_names_the_place() {
    let db = Sqlite::fresh().await;
    let builder = outbox(&db).state(Calls::default()).listener_json("Order", "OrderPlaced", on_order_placed);
    let outbox = builder.start().await.expect("starts");

    let poison = envelope("OrderPlaced", r#"{"items": [{"price": 1.0}, {"price": "free"}]}"#);
    let good = envelope("OrderPlaced", r#"{"items": [{"price": 1.0}]}"#);
    let ids = commit(&outbox, vec![poison, good]).await;

    let dead = reaches(&db, ids[0], Status::Dead).await;
    let error = dead.last_error.expect("the reason is kept");
    assert!(error.contains("invalid payload: `items[1].price` is the text \"free\", but must be a number"), "{error}");
    assert_eq!((dead.attempts, outbox.metrics().counts().dispatch_failure), (0, 0), "nothing is tried again");
    reaches(&db, ids[1], Status::Done).await;
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_typed_listener_answers_decides_what_follows() {
    let db = Sqlite::fresh().await;
    let outbox = outbox(&db)
        .state(Calls::default())
        .listener_json("Order", "OrderPlaced", on_order_placed)
        .listener_json("Order", "OrderPaid", on_order_paid)
        .state("another state".to_owned())
        .listener_json("Order", "OrderShipped", async |(), text: Context<String>| {
            if text.state().as_str() == "another state" { Ok(DispatchResult::Done) } else { Err(Failure::retryable("?")) }
        })
        .start()
        .await
        .expect("starts");

    let refused = envelope("OrderPlaced", r#"{"items": [{"price": -2.5}]}"#);
    let unread = envelope("OrderPaid", "\"much\"");
    let given_up = envelope("OrderPaid", "\"0\"");
    let ids =
        commit(&outbox, vec![refused, unread, given_up, envelope("OrderPaid", "\"3\""), envelope("OrderShipped", "null")])
            .await;

    let refused = reaches(&db, ids[0], Status::Retry).await;
    assert_eq!((refused.attempts, refused.last_error.as_deref()), (1, Some("order 7 costs -2.5")));
    let unread = reaches(&db, ids[1], Status::Dead).await;
    assert_eq!(unread.last_error.as_deref(), Some("reading the amount: invalid digit found in string"));
    let given_up = reaches(&db, ids[2], Status::Dead).await;
    assert_eq!(given_up.last_error.as_deref(), Some("nothing was paid"));
    for id in [ids[3], ids[4]] {
        reaches(&db, id, Status::Done).await;
    }
    outbox.shutdown().await;
}
