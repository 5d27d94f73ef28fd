//! The table of events: all SQL, for each database.
//!
//! [`Store`] is what the host asks of a database: one trait for each role, with its types. [`TransactionalStore`] adds what a
//! writer needs inside the caller's own transaction. What is due, leased or old enough is decided by the database's clock. The
//! traits, and the stores that implement them, are declared in the package `outbox-store`.

#[cfg(feature = "mysql")]
#[doc(no_inline)]
pub use mysql::MySqlStore;
#[doc(inline)]
pub use outbox_event::{AttemptCost, AttemptEnd, Settled, Settlement};
#[doc(hidden)] // for our own program
pub use outbox_store::left_out;
#[cfg(feature = "mysql")]
#[doc(inline)]
pub use outbox_store::mysql;
#[cfg(feature = "postgres")]
#[doc(inline)]
pub use outbox_store::postgres;
#[cfg(feature = "sqlite")]
#[doc(inline)]
pub use outbox_store::sqlite;
pub(crate) use outbox_store::{ASKED_FOR_LATER, EXPIRED, failures};
#[doc(inline)]
pub use outbox_store::{
    AddressSource, Audit, AuditFilter, AuditRecord, AuditStore, BlockedKey, Blocker, ClaimStore, Claimed, Committed,
    DeadFilter, DeadStore, DoctorStore, Due, EffectStore, Expectations, Filter, Finding, HeldPartition, Index, InspectStore,
    KeyStore, LaggingSequence, LeaseStore, ListenerReport, MOST_ROUTES, MOST_WAIT_REASONS, Migration, NewRow, Node, NodeRecord,
    NodeStore, NotifyStore, OldestPending, OpenBreaker, Overview, Ownership, PARTITIONS, PartitionFaults, PartitionStore, Peer,
    Plan, PlanStore, PluginUsage, Position, PurgeBatch, PurgeRequest, PurgeRow, PurgeStore, PurgeTarget, Purgeable, Purged,
    ReadEvent, ReadOrder, ReadRequest, ReadStore, Record, RefusedRow, RefusedRows, Renewed, RouteRecord, RouteStore, RowId,
    SchemaStore, Session, SessionStore, SetAside, SettleStore, SettledWithEffects, Severity, SharedStore, StalledRoute,
    StateRecord, StateStore, Stats, Store, StoreError, StuckEvent, StuckEvents, StuckReason, TableName, TransactionalStore,
    Unblocked, WaitReason, WaitsFor, WakeUp, WakeUps, Whole, WriteStore, hide_password, hosts, with_hosts,
};
#[cfg(feature = "postgres")]
#[doc(no_inline)]
pub use postgres::PostgresStore;
#[cfg(feature = "sqlite")]
#[doc(no_inline)]
pub use sqlite::SqliteStore;
