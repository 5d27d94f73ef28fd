#![cfg_attr(docsrs, feature(doc_cfg))]

//! The transactional outbox whose listeners are sandboxed WebAssembly components.
//!
//! A service writes events into a table inside its own database transaction; the host takes each committed event, calls the
//! listener of its route, and stores the outcome. Nothing committed is lost, nothing rolled back is delivered.
//!
//! ```
//! use outbox::{Context, Envelope, Failure, Outbox, SqliteStore, sqlx};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct OrderPlaced {
//!     order_id: u64,
//! }
//!
//! async fn on_order_placed(order: OrderPlaced, context: Context<()>) -> Result<(), Failure> {
//!     println!("order {}, attempt {}", order.order_id, context.attempt());
//!     Ok(())
//! }
//!
//! async fn run(pool: sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
//!     let outbox = Outbox::single_node(SqliteStore::new(pool))
//!         .listener_json("Order", "OrderPlaced", on_order_placed)
//!         .start()
//!         .await?;
//!
//!     let mut tx = outbox.begin().await?;
//!     sqlx::query("INSERT INTO orders VALUES (42)").execute(&mut *tx).await?;
//!     tx.write(Envelope::new("OrderPlaced").aggregate("Order", "42").json(&OrderPlaced { order_id: 42 })?).await?;
//!     tx.commit().await?; // both or neither; the event is on its way to its listener
//!
//!     outbox.shutdown().await;
//!     Ok(())
//! }
//! ```
//!
//! # Where to look
//!
//! | for | see |
//! |---|---|
//! | starting and stopping, listeners, modes | [`Outbox`], [`OutboxBuilder`], [`Mode`] |
//! | what an event is | [`Envelope`] as it is written, [`Event`] as it is delivered |
//! | writing in your transactions | [`Outbox::begin`], [`Outbox::adopt`], [`OutboxTransaction`], [`Writer`] |
//! | listening | [`OutboxBuilder::listener_json`], [`Listener`], [`Answer`], [`listener`] for retries and breakers |
//! | a database, its pool and its connections | [`store`] |
//! | dead events, purging | [`dead`](mod@dead), [`purge`] |
//! | code of yours around each attempt and each write | [`dispatcher::Interceptor`], [`writer::WriterHook`] |
//! | traces and metrics by OpenTelemetry | [`telemetry`] |
//! | testing a service | [`testing`] |
//!
//! # Features
//!
//! | feature | brings | default |
//! |---|---|---|
//! | `sqlite` | SQLite, with its driver | yes |
//! | `postgres`, `mysql` | PostgreSQL; MySQL and MariaDB; each with its driver | no |
//! | `wasm` | plugins: the sandbox, the watched directory, `conformance` | no |
//! | `sinks` | relays, which send events to a broker or endpoint without a listener; with this feature alone, to stdout | no |
//! | `sink-amqp`, `sink-http`, `sink-kafka`, `sink-nats`, `sink-redis`, `sinks-all` | one kind of sink with its client, or all of them | no |
//! | `sink-nats-nkeys` | NATS with NKeys and files of credentials | no |
//! | `otel` | traces and metrics by OpenTelemetry's protocol | no |
//!
//! A service that uses PostgreSQL alone asks for `default-features = false, features = ["postgres"]`. The feature `utoipa` is not in
//! this table: it is for the package `outbox-http`, which has the HTTP API and the dashboard. The program `outbox` is the package
//! `outbox-cli`.
//!
//! # The walk of an event
//!
//! Each row is a module of this name below `src/`; those without a link are private.
//!
//! ```text
//! Envelope ──writer──▶ row ──poller, or at once after the commit──▶ queue ──▶ Delivery
//! Delivery ──dispatcher: a worker calls the listener──▶ Outcome ──settlement: rules, pure──▶ Settlement
//! Settlement ──settler: many at a time──▶ store ──▶ rows
//! ```
//!
//! | Room | Does |
//! |---|---|
//! | [`event`] | plain data: envelope, event, route, status; from the package `outbox-event` |
//! | [`writer`] | writes envelopes as rows, in the caller's transaction |
//! | [`store`] | all SQL, for each database; from the package `outbox-store` |
//! | `partition`, [`node`] | which of the 256 partitions of the table this host reads |
//! | [`poller`] | brings due rows into the queue |
//! | `queue` | hands deliveries to workers; knows which events are in this process's hands |
//! | [`dispatcher`] | workers: take a delivery, call its listener, hand the settlement on |
//! | [`listener`], `wasm`, `relay` | what answers a route: Rust code, a plugin, a sink; from the packages `outbox-listener` and `outbox-wasm` |
//! | `settlement`, `settler` | decide what an outcome means for the row; write settlements in batches |
//! | [`order`] | which events wait behind others, in the ordered modes |
//! | [`outbox`](mod@outbox) | wires the modules, starts and stops them |
//!
//! # The states of a row
//!
//! | [`Status`] | Becomes |
//! |---|---|
//! | `NEW` | `DONE`; `RETRY` after a counted failure; `DEAD` when it is given up; `NEW` again when its listener defers it |
//! | `RETRY` | the same; `DEAD` also after the last attempt |
//! | `DONE` | deleted by [`purge`], or at once |
//! | `DEAD` | `NEW` by a replay; deleted by a discard, or by [`purge`] where that is configured |
//!
//! An unfinished row is due, waits for its time, is held by a host, is parked until its route has a listener or is no longer
//! paused, or waits behind an earlier event of its aggregate. `host/ARCHITECTURE.md` in the repository has the columns, the
//! tasks, start and stop.

#[cfg(test)]
#[macro_use]
mod changed;

#[cfg(feature = "wasm")]
pub mod conformance;
pub mod dead;
pub mod dispatcher;
pub mod event;
mod halving;
pub mod listener;
#[cfg(test)]
mod log_lines;
pub mod metrics;
pub mod node;
mod notifier;
pub mod order;
pub mod outbox;
mod partition;
pub mod poller;
pub mod purge;
mod queue;
pub mod readiness;
mod recurring;
mod refusals;
#[cfg(feature = "sinks")]
mod relay;
mod routes;
mod settlement;
mod settler;
#[cfg(feature = "sinks")]
pub mod sink;
pub mod store;
mod sync;
pub mod telemetry;
pub mod testing;
mod wake;
#[cfg(feature = "wasm")]
pub mod wasm;
pub mod why;
pub mod writer;

#[doc(no_inline)]
pub use event::{AggregateType, Envelope, EnvelopeError, Event, EventId, EventType, Route, Status};
pub use listener::DispatchResult::Done;
#[doc(no_inline)]
pub use listener::{Answer, Context, DispatchResult, Failure, Listener, OrFail, Registration, dead, retry_after};
/// OpenTelemetry's API, in the version that [`OutboxBuilder::tracer_provider`] takes.
#[cfg(feature = "otel")]
pub use opentelemetry;
pub use outbox::{Mode, Monitor, Outbox, OutboxBuilder, StartError};
#[doc(inline)]
pub use outbox_event::chain::chain;
use outbox_event::{chain, text};
#[doc(hidden)] // for our own program
pub use outbox_event::{deceptive, wording};
#[doc(inline)]
pub use outbox_event::{names, time, units};
pub use readiness::Readiness;
#[cfg(feature = "sinks")]
pub use relay::RelayConfig;
pub use routes::PAUSE_KNOWN_WITHIN;
/// The driver, in the version that the stores use: `outbox::sqlx::query(…)`.
pub use sqlx;
#[cfg(feature = "mysql")]
#[doc(no_inline)]
pub use store::MySqlStore;
#[cfg(feature = "postgres")]
#[doc(no_inline)]
pub use store::PostgresStore;
#[cfg(feature = "sqlite")]
#[doc(no_inline)]
pub use store::SqliteStore;
#[doc(no_inline)]
pub use store::{Store, StoreError, TransactionalStore};
pub use writer::{OutboxTransaction, Receipt, WriteError, Writer};

/// Runs the README's Rust blocks as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
