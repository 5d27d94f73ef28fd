//! Tests of a service that writes events and listens to them.
//!
//! [`start`] gives an outbox in a SQLite file of its own, in a few milliseconds. The service's code gets the outbox, and the
//! [`pool`](TestOutbox::pool) for its tables; the test then looks at what was written and at what the listeners did.
//!
//! ```
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use std::time::Duration;
//!
//! use outbox::listener::Fixed;
//! use outbox::{Context, Envelope, Failure, Outbox, SqliteStore, Status, WriteError, testing};
//!
//! async fn place_order(outbox: &Outbox<SqliteStore>) -> Result<(), WriteError> {
//!     let mut tx = outbox.begin().await?;
//!     tx.write(Envelope::new("OrderPlaced").aggregate("Order", "42").json(&99.5)?).await?;
//!     tx.commit().await
//! }
//!
//! /// Fails at the first attempt.
//! async fn on_order_placed(total: f64, calls: Context<AtomicU32>) -> Result<(), Failure> {
//!     let before = calls.state().fetch_add(1, Ordering::SeqCst);
//!     if total > 0.0 && before > 0 { Ok(()) } else { Err("the warehouse is closed".into()) }
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let minute = Duration::from_secs(60);
//! let test = testing::start_with(|outbox, _pool| {
//!     let outbox = outbox.retry(Fixed(minute)).state(AtomicU32::new(0));
//!     outbox.listener_json("Order", "OrderPlaced", on_order_placed)
//! })
//! .await?;
//!
//! place_order(&test).await?;
//! test.run_until_idle().await;
//! let event = test.written("OrderPlaced").one().await?;
//! assert_eq!((event.status, event.json::<f64>()?), (Status::Retry, 99.5));
//! assert_eq!(event.last_error.as_deref(), Some("the warehouse is closed"));
//!
//! test.advance(minute).await; // the next attempt is due
//! test.run_until_idle().await;
//! assert_eq!(test.written("OrderPlaced").one().await?.status, Status::Done);
//! # Ok(())
//! # }
//! ```
//!
//! What a test on another database needs is there as well: [`until_idle`] and [`written`] take any outbox.

mod idle;
#[cfg(feature = "sqlite")]
mod sqlite;
mod written;

pub use idle::until_idle;
#[cfg(feature = "sqlite")]
pub use sqlite::{TestOutbox, start, start_with};
pub use written::{Written, WrittenError, written};
