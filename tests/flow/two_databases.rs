//! Two databases in one process, as a sample: a shop keeps its orders in PostgreSQL, and its receipts in a SQLite file beside
//! the printer. Each database has an outbox of its own, with its own listeners.
//!
//! A transaction is one database's, and so is an event in it. What happens in one and must follow in the other goes over a
//! listener: it is called at least once, so it writes under a key that makes the second time change nothing.

use std::sync::Arc;

use outbox::{DispatchResult, Envelope, Event, Failure, Outbox, PostgresStore, SqliteStore};
use serde::{Deserialize, Serialize};
use support::{Harness, Postgres, Recorder, Sqlite, eventually};

#[derive(Serialize, Deserialize)]
struct OrderPlaced {
    order_id: i64,
    total: f64,
}

#[derive(Serialize, Deserialize)]
struct ReceiptDue {
    order_id: i64,
}

/// The shop's transaction: the order and the event that tells of it, both or neither.
async fn place_order(shop: &Outbox<PostgresStore>, order_id: i64) -> Result<(), Box<dyn std::error::Error>> {
    let order = OrderPlaced { order_id, total: 99.5 };
    let mut transaction = shop.begin().await?;
    sqlx::query("INSERT INTO orders (id, total) VALUES ($1, $2)")
        .bind(order.order_id)
        .bind(order.total)
        .execute(&mut *transaction)
        .await?;
    transaction.write(Envelope::new("OrderPlaced").aggregate("Order", order_id.to_string()).json(&order)?).await?;
    transaction.commit().await?;
    Ok(())
}

/// From the shop's database into the printer's. An error of either is tried again, and the key of the receipt makes it once.
async fn make_receipt(printer: &Outbox<SqliteStore>, event: &Event) -> Result<DispatchResult, Failure> {
    let order: OrderPlaced = event.payload()?;
    let mut transaction = printer.begin().await?;
    let made = sqlx::query("INSERT OR IGNORE INTO receipts (order_id, total) VALUES (?, ?)")
        .bind(order.order_id)
        .bind(order.total)
        .execute(&mut *transaction)
        .await?;
    if made.rows_affected() == 1 {
        let due = ReceiptDue { order_id: order.order_id };
        transaction.write(Envelope::new("ReceiptDue").json(&due)?).await?;
    }
    transaction.commit().await?;
    Ok(DispatchResult::Done)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_outboxes_of_one_process_keep_to_their_databases() {
    let (postgres, sqlite) = (Postgres::fresh().await, Sqlite::fresh().await);
    postgres.execute("CREATE TABLE orders (id bigint PRIMARY KEY, total double precision)").await;
    sqlite.execute("CREATE TABLE receipts (order_id INTEGER PRIMARY KEY, total REAL)").await;

    // Whoever is written to by the other starts first and stops last. Both have a listener for the same route, and that is fine.
    let printed = Recorder::done();
    let printer = Outbox::single_node(sqlite.sqlite())
        .listener("ReceiptDue", printed.listener())
        .listener(("Order", "OrderPlaced"), |_: Arc<Event>| async { Err(Failure::unrecoverable("an order in the printer")) })
        .start()
        .await
        .expect("starts");
    let to_printer = printer.clone();
    let shop = Outbox::multi_node(postgres.postgres())
        .listener(("Order", "OrderPlaced"), move |event: Arc<Event>| {
            let printer = to_printer.clone();
            async move { make_receipt(&printer, &event).await }
        })
        .start()
        .await
        .expect("starts");

    for order_id in 1..=3 {
        place_order(&shop, order_id).await.expect("places an order");
    }
    place_order(&shop, 3).await.expect_err("there is one; with its order, the event is rolled back");

    eventually("each order has its receipt printed", async || printed.count() == 3).await;
    // One after the other: what the shop still delivers is written to the printer, which then delivers that.
    shop.shutdown().await;
    printer.shutdown().await;
    let mut receipts: Vec<i64> =
        printed.calls().iter().map(|event| event.payload::<ReceiptDue>().expect("as written").order_id).collect();
    receipts.sort_unstable();
    assert_eq!(receipts, [1, 2, 3]);
    for database in [&postgres as &dyn Harness, &sqlite] {
        let [events, done] = ["", " WHERE status = 1"].map(|which| format!("SELECT count(*) FROM outbox_event{which}"));
        assert_eq!((database.number(&events).await, database.number(&done).await), (3, 3), "its own events and no others");
    }
}
