//! A service whose events go to NATS, without a listener or a plugin. Runs and ends by itself. With a server on this machine:
//!
//! ```sh
//! nats-server -js &
//! nats stream add SHOP --subjects 'shop.>' --defaults
//! cargo run --example relay --features sink-nats -- nats://127.0.0.1:4222
//! nats stream view SHOP
//! ```
//!
//! An event is done when the stream has confirmed its message. While the server is away, events wait and lose no attempt.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use outbox::sink::{NatsConfig, SinkConfig, Sinks};
use outbox::store::Stats;
use outbox::{Envelope, Outbox, RelayConfig, SqliteStore};
use serde::Serialize;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};

type BoxError = Box<dyn Error + Send + Sync>;

#[derive(Serialize)]
struct OrderPlaced {
    order_id: i64,
    total: f64,
}

/// Every connection that events may go out on, by name.
fn sinks(server: &str, subject: &str) -> Result<Sinks, BoxError> {
    let nats = NatsConfig { url: server.to_owned(), subject: subject.parse()?, ..NatsConfig::default() };
    let sinks = BTreeMap::from([("shop".to_owned(), SinkConfig::Nats(nats))]);
    Ok(Sinks::connect(&sinks)?) // checks the settings; connects with the first message
}

async fn place_order(outbox: &Outbox<SqliteStore>, order: &OrderPlaced) -> Result<(), BoxError> {
    let mut tx = outbox.begin().await?;
    sqlx::query("INSERT INTO orders VALUES (?, ?)").bind(order.order_id).bind(order.total).execute(&mut *tx).await?;
    tx.write(Envelope::new("OrderPlaced").aggregate("Order", order.order_id.to_string()).json(order)?).await?;
    tx.commit().await?; // from here on the event is on its way to the stream
    Ok(())
}

/// Places three orders; returns what became of their events.
pub(crate) async fn run(database: &Path, server: &str, subject: &str) -> Result<Stats, BoxError> {
    let connect = SqliteConnectOptions::new().filename(database).create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(connect).await?;
    sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY, total REAL NOT NULL)").execute(&pool).await?;

    let outbox = Outbox::single_node(SqliteStore::new(pool.clone()))
        .migrate(true)
        .sinks(sinks(server, subject)?)
        .relay(("Order", "*"), RelayConfig::to("shop")) // every event type of this aggregate type
        .start()
        .await?;
    for order_id in 1..=3 {
        place_order(&outbox, &OrderPlaced { order_id, total: 99.5 }).await?;
    }
    outbox.shutdown().await; // finishes what is queued
    let stats = outbox.store().stats().await?;
    pool.close().await;
    Ok(stats)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "nats://127.0.0.1:4222".to_owned());
    let database = std::env::temp_dir().join(format!("outbox-example-relay-{}.db", std::process::id()));
    let stats = run(&database, &server, "shop.{aggregate_type}.{event_type}").await?;
    println!("{} events are in the stream; {} wait for {server}", stats.done, stats.new + stats.retry);
    std::fs::remove_file(database)?;
    Ok(())
}
