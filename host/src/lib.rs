//! The transactional outbox whose listeners are sandboxed WebAssembly components.
//!
//! A service writes events into a table inside its own database transaction; the host takes each committed event, finds the
//! one listener of its route, runs it, and stores what came of it. Nothing committed is lost, nothing rolled back is delivered.
//!
//! An event's walk, and the room of each step: [`event::Envelope`] → [`writer`] → row → [`poller`], or straight from the
//! commit → [`queue`] → [`dispatcher`] → [`listener`] → [`dispatcher::settle`] → [`store`].

mod chain;
#[cfg(feature = "wasm")]
pub mod conformance;
pub mod dead;
mod deceptive;
pub mod dispatcher;
pub mod event;
mod health;
#[cfg(feature = "http")]
pub mod http;
pub mod listener;
pub mod metrics;
mod node;
mod notifier;
pub mod order;
pub mod outbox;
pub mod poller;
pub mod purge;
pub mod queue;
#[cfg(feature = "sinks")]
mod relay;
mod reminder;
mod routes;
mod settler;
#[cfg(feature = "sinks")]
pub mod sink;
pub mod store;
mod text;
pub mod time;
mod turns;
pub mod units;
mod wake;
#[cfg(feature = "wasm")]
pub mod wasm;
pub mod writer;

pub use chain::chain;
pub use event::{AggregateType, Envelope, EnvelopeError, Event, EventId, EventType, Route, Status};
pub use listener::{DispatchResult, Failure, Listener, Registration};
pub use outbox::{Mode, Outbox, OutboxBuilder, StartError};
#[cfg(feature = "sinks")]
pub use relay::RelayConfig;
pub use routes::PAUSE_KNOWN_WITHIN;
#[cfg(feature = "mysql")]
pub use store::MySqlStore;
#[cfg(feature = "postgres")]
pub use store::PostgresStore;
#[cfg(feature = "sqlite")]
pub use store::SqliteStore;
pub use store::{Store, StoreError, TransactionalStore};
pub use writer::{OutboxTransaction, Receipt, WriteError, Writer};

/// Runs the README's Rust blocks as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
