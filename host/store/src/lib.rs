//! A part of [`outbox`](https://docs.rs/outbox): the table of events, and all SQL. Use it through `outbox`; alone it promises nothing.
//!
//! [`Store`] is what the host asks of a database: one trait for each role, each in the file of its noun, with its types and with
//! what all databases do alike. A database answers it in a folder of its own, in files of the same names: the statements, and the
//! roles that run them; `run.rs` says how one statement is run and read. [`TransactionalStore`] adds what a writer needs inside the
//! caller's own transaction. Every database passes the same conformance suite. What is due, leased or old enough is decided here,
//! by the database's clock. This package knows events, and nothing of who asks for them. It needs one of its features `sqlite`,
//! `postgres` and `mysql`. Its log lines have targets below `outbox::store`, the path that users of `outbox` know.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(any(feature = "sqlite", feature = "postgres", feature = "mysql")))]
compile_error!("outbox-store needs one of its features `sqlite`, `postgres` and `mysql`");

mod address;
mod audit;
mod claim;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod columns;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod connector;
mod dead;
mod doctor;
mod effects;
mod error;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod event_row;
mod index;
mod inspect;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod keeper;
mod keys;
mod last_cost;
mod lease;
mod listener_report;
mod node;
mod notify;
mod number;
mod partition;
mod plan;
mod purge;
mod read;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod read_statement;
mod record;
mod refused;
mod route;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod row;
mod run;
mod schema;
mod session;
mod settle;
mod shared;
mod state;
mod stuck;
mod table;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod trust;
mod whole;
mod write;

#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outbox_event::time::Timestamp;

pub use address::{AddressSource, hide_password, hosts, with_hosts};
pub use audit::{Audit, AuditFilter, AuditRecord, AuditStore};
pub use claim::{ClaimStore, Claimed, Due, EXPIRED};
pub use dead::{DeadFilter, DeadStore};
pub use doctor::{DoctorStore, Expectations, Finding, LaggingSequence, Severity};
pub use effects::{Committed, EffectStore, SettledWithEffects};
pub use error::StoreError;
pub use index::Index;
pub use inspect::{Filter, InspectStore, MOST_WAIT_REASONS, OldestPending, SetAside, Stats, WaitReason};
pub use keys::{BlockedKey, Blocker, KeyStore, Unblocked, WaitsFor};
pub use lease::{LeaseStore, Renewed};
pub use listener_report::{ListenerReport, OpenBreaker, Peer, StalledRoute};
#[cfg(feature = "mysql")]
pub use mysql::MySqlStore;
pub use node::{Node, NodeRecord, NodeStore};
pub use notify::{NotifyStore, WakeUp, WakeUps};
pub use partition::{HeldPartition, PARTITIONS, PartitionFaults, PartitionStore};
pub use plan::{Plan, PlanStore};
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
pub use purge::{PurgeBatch, PurgeRequest, PurgeRow, PurgeStore, PurgeTarget, Purgeable, Purged};
pub use read::{Position, ReadEvent, ReadOrder, ReadRequest, ReadStore};
pub use record::{ASKED_FOR_LATER, Record, failures};
pub use refused::{RefusedRow, RefusedRows, RowId};
pub use route::{MOST_ROUTES, RouteRecord, RouteStore, left_out};
pub use schema::{Migration, SchemaStore};
pub use session::{Overview, Session, SessionStore};
pub use settle::SettleStore;
pub use shared::SharedStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use state::{PluginUsage, StateRecord, StateStore};
pub use stuck::{StuckEvent, StuckEvents, StuckReason};
pub use table::TableName;
pub use whole::Whole;
pub use write::{NewRow, Ownership, TransactionalStore, WriteStore};

/// What the host asks of a database: all roles together. Every call is whole: it has happened, or an error is returned and nothing
/// has. The error is the database's own, unless a call says more. Of a store whose type is known, bring the role into scope that
/// you call.
///
/// Calls must not be cancelled: run them in a task of their own where the caller may be dropped.
#[async_trait]
pub trait Store:
    SchemaStore
    + WriteStore
    + ClaimStore
    + ReadStore
    + LeaseStore
    + SettleStore
    + EffectStore
    + KeyStore
    + PartitionStore
    + RouteStore
    + NodeStore
    + SessionStore
    + NotifyStore
    + InspectStore
    + DeadStore
    + AuditStore
    + PurgeStore
    + DoctorStore
    + PlanStore
    + StateStore
    + 'static
{
    /// The kind of database: `sqlite`, `postgres`, `mysql`.
    fn kind(&self) -> &'static str;

    /// The time by the clock that decides what is due.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// Closes all connections after what is under way.
    async fn close(&self);

    /// The same store, whose calls fail when they have waited so long for a connection: for people, who would rather be told. `None` for a
    /// store without a server.
    #[doc(hidden)] // for our own pages and API
    fn connecting_within(&self, _within: Duration) -> Option<Arc<dyn Store>> {
        None
    }
}
