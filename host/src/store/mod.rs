//! The table: the one room that speaks SQL.
//!
//! [`Store`] is what the host asks of a database; [`TransactionalStore`] adds what a writer needs inside the caller's own
//! transaction. Every dialect passes the same conformance suite. What is due, leased or old enough is decided here, by the
//! database's clock. This room knows events, and nothing of who asks for them.

mod address;
mod audit;
mod claim;
mod contract;
mod cost;
mod effects;
mod error;
mod finding;
mod firsts;
mod node;
mod number;
mod record;
mod route;
mod settlement;
mod shared;
mod state;
mod table;
mod transactional;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod trust;
mod whole;

#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use address::hide_password;
pub use audit::{Audit, AuditFilter, AuditRecord};
pub(crate) use claim::EXPIRED;
pub use claim::{Blocker, ClaimOrder, ClaimRequest, Claimed, Due, Renewed, Unblocked, WaitsFor};
pub use contract::{Store, WakeUps};
pub use cost::{AttemptCost, AttemptEnd};
pub use effects::{Committed, SettledWithEffects};
pub use error::StoreError;
pub use finding::{Expectations, Finding, Plan, Severity};
#[cfg(feature = "mysql")]
pub use mysql::MySqlStore;
pub use node::{Node, NodeRecord, PARTITIONS};
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
pub(crate) use record::{ASKED_FOR_LATER, failures};
pub use record::{
    DeadFilter, Filter, Migration, PurgeBatch, PurgeRequest, Purgeable, Purged, Record, RetriedNow, SetAside, Stats,
};
pub use route::{BlockedKey, RouteRecord};
pub use settlement::{Settled, Settlement};
pub use shared::SharedStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use state::{PluginUsage, StateRecord, StateStore};
pub use table::TableName;
pub use transactional::{NewRow, Ownership, TransactionalStore};
pub use whole::Whole;
