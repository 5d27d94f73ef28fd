//! A service with a SQLite pool of its own: an order and the event that tells of it in one transaction, and a listener that gets
//! the event as a value. Runs and ends by itself: `cargo run --example orders`. The tests below show how such a service is tested.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use outbox::{Answer, Context, Done, Envelope, Outbox, OutboxBuilder, SqliteStore, dead};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};

type BoxError = Box<dyn Error + Send + Sync>;

#[derive(Serialize, Deserialize)]
struct OrderPlaced {
    order_id: i64,
    email: String,
    total: f64,
}

/// The service's own statements know nothing of the outbox: what they are given is the driver's connection.
async fn insert_order(connection: &mut sqlx::SqliteConnection, email: &str, total: f64) -> Result<i64, sqlx::Error> {
    let inserted = sqlx::query("INSERT INTO orders (email, total) VALUES (?, ?)").bind(email).bind(total);
    Ok(inserted.execute(connection).await?.last_insert_rowid())
}

/// The order and its event: both or neither.
async fn place_order(outbox: &Outbox<SqliteStore>, email: &str, total: f64) -> Result<i64, BoxError> {
    let mut tx = outbox.begin().await?;
    let order_id = insert_order(&mut tx, email, total).await?;
    let event = OrderPlaced { order_id, email: email.to_owned(), total };
    tx.write(Envelope::new("OrderPlaced").aggregate("Order", order_id.to_string()).json(&event)?).await?;
    tx.commit().await?; // from here on the event is on its way to its listener
    Ok(order_id)
}

/// What the listeners share.
struct Mailer {
    pool: SqlitePool,
}

/// An event may come twice, if the host was killed at the wrong moment: its id is the key that makes the mail once.
async fn on_order_placed(order: OrderPlaced, context: Context<Mailer>) -> Answer {
    if !order.email.contains('@') {
        return Ok(dead(format!("`{}` is no address", order.email)));
    }
    let noted = sqlx::query("INSERT OR IGNORE INTO mails (event_id, email) VALUES (?, ?)")
        .bind(context.id().as_str())
        .bind(&order.email)
        .execute(&context.state().pool)
        .await?; // an error is tried again later
    if noted.rows_affected() == 1 {
        println!("to {}: thank you for order {} over {:.2}", order.email, order.order_id, order.total);
    }
    Ok(Done)
}

/// The same in the service and in its tests.
fn listening(outbox: OutboxBuilder<SqliteStore>, pool: &SqlitePool) -> OutboxBuilder<SqliteStore, Mailer> {
    outbox.state(Mailer { pool: pool.clone() }).listener_json("Order", "OrderPlaced", on_order_placed)
}

async fn make_tables(pool: &SqlitePool) -> Result<(), sqlx::Error> {
    sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY, email TEXT NOT NULL, total REAL NOT NULL)").execute(pool).await?;
    sqlx::query("CREATE TABLE mails (event_id TEXT PRIMARY KEY, email TEXT NOT NULL)").execute(pool).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let file = std::env::temp_dir().join(format!("outbox-example-orders-{}.db", std::process::id()));
    let connect = SqliteConnectOptions::new().filename(&file).create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
    // One connection for all that is written: SQLite has one writer at a time, and here everybody waits for his turn.
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(connect).await?;
    make_tables(&pool).await?;

    let outbox = listening(Outbox::single_node(SqliteStore::new(pool.clone())), &pool).migrate(true).start().await?;
    for (email, total) in [("ada@example.com", 99.5), ("grace@example.com", 12.0)] {
        let order_id = place_order(&outbox, email, total).await?;
        println!("order {order_id} is placed");
    }
    outbox.shutdown().await; // finishes what is queued

    let (mails,): (i64,) = sqlx::query_as("SELECT count(*) FROM mails").fetch_one(&pool).await?;
    println!("{mails} mails were sent");
    pool.close().await;
    std::fs::remove_file(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use outbox::Status;
    use outbox::testing::{self, TestOutbox};

    use super::*;

    async fn service() -> TestOutbox {
        let test = testing::start_with(listening).await.expect("starts");
        make_tables(test.pool()).await.expect("the file is new");
        test
    }

    #[tokio::test]
    async fn who_placed_an_order_gets_a_mail() {
        let test = service().await;

        let order_id = place_order(&test, "ada@example.com", 99.5).await.expect("places it");
        test.run_until_idle().await;

        let event = test.written("OrderPlaced").aggregate("Order", order_id.to_string()).one().await.expect("one");
        assert_eq!(event.status, Status::Done);
        assert_eq!(event.json::<OrderPlaced>().expect("as written").email, "ada@example.com");
        let (mail,): (String,) = sqlx::query_as("SELECT event_id FROM mails").fetch_one(test.pool()).await.expect("one");
        assert_eq!(mail, event.event_id.as_str());
    }

    #[tokio::test]
    async fn an_order_without_an_address_is_given_up_with_the_reason() {
        let test = service().await;

        place_order(&test, "nobody", 1.0).await.expect("places it");
        test.run_until_idle().await;

        let event = test.written("OrderPlaced").one().await.expect("one");
        assert_eq!((event.status, event.last_error.as_deref()), (Status::Dead, Some("`nobody` is no address")));
        assert_eq!(test.store().stats().await.expect("counts").dead, 1);
    }

    #[test]
    fn it_runs_and_ends_by_itself() {
        main().expect("runs");
    }
}
