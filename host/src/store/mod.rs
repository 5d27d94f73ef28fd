//! The table: the one room that speaks SQL.
//!
//! [`Store`] is what the host asks of a database; [`TransactionalStore`] adds what a writer needs inside the caller's own
//! transaction. Every dialect passes the same conformance suite. What is due, leased or old enough is decided here, by the
//! database's clock. This room knows events, and nothing of who asks for them.

mod audit;
mod claim;
mod contract;
mod error;
mod finding;
mod firsts;
mod node;
mod record;
mod route;
mod settlement;
mod table;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod trust;

#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use audit::{Audit, AuditRecord};
pub(crate) use claim::EXPIRED;
pub use claim::{Blocker, ClaimRequest, Claimed, Due, LineRequest, Renewed, Unblocked, WaitsFor};
pub use contract::{NewRow, Ownership, SharedStore, Store, TransactionalStore, WakeUps};
pub use error::StoreError;
pub use finding::{Expectations, Finding, Plan, Severity};
#[cfg(feature = "mysql")]
pub use mysql::MySqlStore;
pub use node::{LANES, Node, NodeRecord};
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
pub use record::{DeadFilter, Filter, Migration, PurgeBatch, PurgeRequest, Purgeable, Purged, Record, Stats};
pub use route::{BlockedKey, RouteRecord};
pub use settlement::{Settled, Settlement};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use table::TableName;
