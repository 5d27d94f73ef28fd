//! Two databases in one process: a shop keeps its orders in one, a printer its receipts in the other. Each has an outbox of its
//! own, with its own listeners. Runs and ends by itself: `cargo run --example two_databases`.
//!
//! A transaction is one database's, and so is an event in it. What happens in one and must follow in the other goes over a
//! listener: it may be called twice for an event, so it writes under a key that makes the second time change nothing. Both are
//! SQLite here; either could be `PostgresStore::new(pool)` or `MySqlStore::new(pool)` with nothing else changed but the SQL.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::path::Path;

use outbox::{Context, Envelope, Failure, Outbox, SqliteStore};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};

type BoxError = Box<dyn Error + Send + Sync>;

#[derive(Serialize, Deserialize)]
struct OrderPlaced {
    order_id: i64,
    total: f64,
}

#[derive(Serialize, Deserialize)]
struct ReceiptDue {
    order_id: i64,
}

/// The shop's transaction: the order and the event that tells of it.
async fn place_order(shop: &Outbox<SqliteStore>, order: &OrderPlaced) -> Result<(), BoxError> {
    let mut tx = shop.begin().await?;
    let insert = sqlx::query("INSERT INTO orders (id, total) VALUES (?, ?)").bind(order.order_id).bind(order.total);
    insert.execute(&mut *tx).await?;
    tx.write(Envelope::new("OrderPlaced").aggregate("Order", order.order_id.to_string()).json(order)?).await?;
    tx.commit().await?;
    Ok(())
}

/// The shop's listener, with the printer's outbox as its state: from one database into the other. An error of either is
/// retried.
async fn make_receipt(order: OrderPlaced, printer: Context<Outbox<SqliteStore>>) -> Result<(), Failure> {
    let mut tx = printer.state().begin().await?;
    let insert = sqlx::query("INSERT OR IGNORE INTO receipts (order_id, total) VALUES (?, ?)").bind(order.order_id);
    let made = insert.bind(order.total).execute(&mut *tx).await?;
    if made.rows_affected() == 1 {
        tx.write(Envelope::new("ReceiptDue").json(&ReceiptDue { order_id: order.order_id })?).await?;
    }
    tx.commit().await?;
    Ok(())
}

/// The printer's listener.
async fn print_receipt(due: ReceiptDue, printer: Context<SqlitePool>) -> Result<(), Failure> {
    let receipt = sqlx::query_as("SELECT total FROM receipts WHERE order_id = ?").bind(due.order_id);
    let (total,): (f64,) = receipt.fetch_one(&**printer.state()).await?;
    println!("receipt for order {}: {total:.2}", due.order_id);
    Ok(())
}

async fn open(file: &Path) -> Result<SqlitePool, sqlx::Error> {
    let connect = SqliteConnectOptions::new().filename(file).create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
    SqlitePoolOptions::new().max_connections(1).connect_with(connect).await
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let files =
        ["shop", "printer"].map(|name| std::env::temp_dir().join(format!("outbox-example-{name}-{}.db", std::process::id())));
    let (shop_pool, printer_pool) = (open(&files[0]).await?, open(&files[1]).await?);
    sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY, total REAL NOT NULL)").execute(&shop_pool).await?;
    sqlx::query("CREATE TABLE receipts (order_id INTEGER PRIMARY KEY, total REAL NOT NULL)").execute(&printer_pool).await?;

    // Whoever is written to by the other starts first and stops last.
    let printer = Outbox::single_node(SqliteStore::new(printer_pool.clone()))
        .migrate(true)
        .state(printer_pool.clone())
        .listener_json(outbox::AggregateType::GLOBAL, "ReceiptDue", print_receipt)
        .start()
        .await?;
    let shop = Outbox::single_node(SqliteStore::new(shop_pool.clone()))
        .migrate(true)
        .state(printer.clone())
        .listener_json("Order", "OrderPlaced", make_receipt)
        .start()
        .await?;

    for order_id in 1..=3 {
        place_order(&shop, &OrderPlaced { order_id, total: 99.5 }).await?;
    }
    shop.shutdown().await;
    printer.shutdown().await;

    let (receipts,): (i64,) = sqlx::query_as("SELECT count(*) FROM receipts").fetch_one(&printer_pool).await?;
    assert_eq!(receipts, 3, "each order has its receipt");
    for (pool, file) in [shop_pool, printer_pool].into_iter().zip(files) {
        pool.close().await;
        std::fs::remove_file(file)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_runs_and_ends_by_itself() {
        super::main().expect("runs");
    }
}
