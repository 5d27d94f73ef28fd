//! A REST service of axum and sqlx with an outbox in its database. `cargo run -p outbox-http --example rest`, and from another terminal
//!
//! ```sh
//! curl -i http://127.0.0.1:8081/orders -H 'content-type: application/json' -d '{"email": "ada@example.com", "total": 99.5}'
//! curl http://127.0.0.1:8081/orders/1
//! ```
//!
//! The order says `confirmed` once the listener of its event has run. Ctrl-C stops the server first, then the outbox.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use outbox::{Context, Envelope, Failure, Outbox, OutboxBuilder, SqliteStore};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};

#[derive(Deserialize)]
struct NewOrder {
    email: String,
    total: f64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: i64,
    email: String,
    total: f64,
    confirmed: bool,
}

/// As a row of the table has it.
type OrderRow = (i64, String, f64, bool);

impl From<OrderRow> for Order {
    fn from((id, email, total, confirmed): OrderRow) -> Self {
        Self { id, email, total, confirmed }
    }
}

#[derive(Serialize, Deserialize)]
struct OrderPlaced {
    order_id: i64,
}

/// What the handlers share.
#[derive(Clone)]
struct Service {
    outbox: Outbox<SqliteStore>,
    pool: SqlitePool,
}

/// An error whose cause the caller need not know.
struct Unexpected(Box<dyn Error + Send + Sync>);

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Unexpected {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Unexpected {
    fn into_response(self) -> Response {
        println!("failed: {}", self.0);
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

/// Order and event in one transaction: whoever gets 201 can be sure of both.
async fn place_order(
    State(service): State<Service>,
    Json(order): Json<NewOrder>,
) -> Result<(StatusCode, Json<Order>), Unexpected> {
    let mut tx = service.outbox.begin().await?;
    let insert = sqlx::query_as("INSERT INTO orders (email, total) VALUES (?, ?) RETURNING id, email, total, confirmed")
        .bind(order.email);
    let row: OrderRow = insert.bind(order.total).fetch_one(&mut *tx).await?;
    let order = Order::from(row);
    let event = OrderPlaced { order_id: order.id };
    tx.write(Envelope::new("OrderPlaced").aggregate("Order", order.id.to_string()).json(&event)?).await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, Json(order)))
}

async fn show_order(State(service): State<Service>, Path(id): Path<i64>) -> Result<Response, Unexpected> {
    let select = sqlx::query_as("SELECT id, email, total, confirmed FROM orders WHERE id = ?").bind(id);
    let row: Option<OrderRow> = select.fetch_optional(&service.pool).await?;
    Ok(row.map_or_else(|| StatusCode::NOT_FOUND.into_response(), |row| Json(Order::from(row)).into_response()))
}

/// Called for each order at least once; the second time changes nothing.
async fn confirm(event: OrderPlaced, context: Context<SqlitePool>) -> Result<(), Failure> {
    let confirm = sqlx::query("UPDATE orders SET confirmed = TRUE WHERE id = ?").bind(event.order_id);
    confirm.execute(&**context.state()).await?;
    Ok(())
}

fn listening(outbox: OutboxBuilder<SqliteStore>, pool: &SqlitePool) -> OutboxBuilder<SqliteStore, SqlitePool> {
    outbox.state(pool.clone()).listener_json("Order", "OrderPlaced", confirm)
}

fn routes(service: Service) -> Router {
    Router::new().route("/orders", post(place_order)).route("/orders/{id}", get(show_order)).with_state(service)
}

async fn make_tables(pool: &SqlitePool) -> Result<(), sqlx::Error> {
    let orders = "CREATE TABLE IF NOT EXISTS orders
                  (id INTEGER PRIMARY KEY, email TEXT NOT NULL, total REAL NOT NULL, confirmed BOOLEAN NOT NULL DEFAULT FALSE)";
    sqlx::query(orders).execute(pool).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let connect = SqliteConnectOptions::new().filename("orders.db").create_if_missing(true);
    let connect = connect.journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(connect).await?;
    make_tables(&pool).await?;
    let outbox = listening(Outbox::single_node(SqliteStore::new(pool.clone())), &pool).migrate(true).start().await?;

    let listener = tokio::net::TcpListener::bind("127.0.0.1:8081").await?;
    println!("listening on http://{}", listener.local_addr()?);
    let stop = async {
        // Where signals cannot be received, the service stops at once.
        let _ = tokio::signal::ctrl_c().await;
    };
    axum::serve(listener, routes(Service { outbox: outbox.clone(), pool })).with_graceful_shutdown(stop).await?;
    outbox.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use outbox::{Status, testing};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Status and body.
    async fn ask(server: SocketAddr, request: &str, body: &str) -> (u16, String) {
        let mut connection = TcpStream::connect(server).await.expect("the server listens");
        let length = body.len();
        let text = format!(
            "{request} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        connection.write_all(text.as_bytes()).await.expect("the server reads");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.expect("the server answers in text");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, answer.split_once("\r\n\r\n").expect("a body").1.to_owned())
    }

    #[tokio::test]
    async fn an_order_that_is_placed_over_http_is_confirmed_by_its_event() {
        let test = testing::start_with(listening).await.expect("starts");
        make_tables(test.pool()).await.expect("the file is new");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let server = listener.local_addr().expect("bound");
        let service = Service { outbox: Outbox::clone(&test), pool: test.pool().clone() };
        let serving = tokio::spawn(async move { axum::serve(listener, routes(service)).await });

        let (status, body) = ask(server, "POST /orders", r#"{"email": "ada@example.com", "total": 99.5}"#).await;
        assert_eq!(status, 201, "{body}");
        let placed: Order = serde_json::from_str(&body).expect("an order");
        test.run_until_idle().await;
        let (status, body) = ask(server, &format!("GET /orders/{}", placed.id), "").await;

        assert_eq!(status, 200, "{body}");
        assert_eq!(serde_json::from_str::<Order>(&body).expect("an order"), Order { confirmed: true, ..placed });
        assert_eq!(test.written("OrderPlaced").one().await.expect("one").status, Status::Done);
        assert_eq!(ask(server, "GET /orders/77", "").await.0, 404);
        serving.abort();
    }

    #[tokio::test]
    async fn an_order_that_is_refused_leaves_no_event() {
        let test = testing::start_with(listening).await.expect("starts");
        let service = Service { outbox: Outbox::clone(&test), pool: test.pool().clone() };

        let order = Json(NewOrder { email: "ada@example.com".to_owned(), total: 1.0 });
        let refused = place_order(State(service), order).await;

        assert!(refused.is_err(), "there is no table of orders");
        assert!(test.written("OrderPlaced").all().await.expect("reads").is_empty());
    }
}
