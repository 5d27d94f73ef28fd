//! The table: the one room that speaks SQL.
//!
//! [`Store`] is what the host asks of a database; [`TransactionalStore`] adds what a writer needs inside the caller's own
//! transaction. Every dialect passes the same conformance suite. What is due, leased or old enough is decided here, by the
//! database's clock. This room knows events, and nothing of who asks for them.

mod claim;
mod contract;
mod error;
mod record;
mod settlement;
mod table;

#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use claim::{ClaimRequest, Claimed, Due};
pub use contract::{NewRow, Ownership, Store, TransactionalStore};
pub use error::StoreError;
pub use record::{DeadFilter, Filter, Migration, PurgeBatch, PurgeRequest, Purged, Record, Stats};
pub use settlement::{Settled, Settlement};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use table::TableName;
