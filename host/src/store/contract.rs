//! What the host asks of a database: one trait, which every database answers in a folder of its own.

use std::time::Duration;

use async_trait::async_trait;

use super::{
    Audit, AuditFilter, AuditRecord, BlockedKey, Blocker, ClaimRequest, Claimed, Committed, DeadFilter, Expectations, Filter,
    Finding, Migration, NewRow, Node, NodeRecord, Ownership, Plan, PurgeBatch, PurgeRequest, Purgeable, Record, Renewed,
    RetriedNow, RouteRecord, Settled, SettledWithEffects, StateStore, Stats, StoreError, Unblocked, WaitsFor,
};
use crate::event::{EventId, Fence, OwnerId, Route};
use crate::time::Timestamp;

/// What the host asks of a database. Every call is whole: it has happened, or an error is returned and nothing has.
///
/// Calls must not be cancelled: run them in a task of their own where the caller may be dropped.
#[async_trait]
pub trait Store: StateStore {
    /// The kind of database: `sqlite`, `postgres`, `mysql`.
    fn kind(&self) -> &'static str;

    /// The table as somebody writes it into a console of this database, whatever schema that looks in first: `billing.outbox_event`.
    ///
    /// # Errors
    /// The database's own.
    async fn table_in_full(&self) -> Result<String, StoreError>;

    /// Checks that the schema is there and of our version.
    ///
    /// # Errors
    /// [`StoreError::NoSchema`], [`StoreError::SchemaOlder`], [`StoreError::SchemaNewer`], or the database's own.
    async fn check_schema(&self) -> Result<(), StoreError>;

    /// The time by the clock that decides what is due.
    ///
    /// # Errors
    /// The database's own.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// Every step of the schema, applied or not, in order.
    ///
    /// # Errors
    /// [`StoreError::SchemaNewer`], or the database's own.
    async fn migrations(&self) -> Result<Vec<Migration>, StoreError>;

    /// Applies every step that is missing, each in one transaction; safe to repeat and to race. Returns those applied.
    ///
    /// # Errors
    /// [`StoreError::SchemaNewer`], or the database's own.
    async fn migrate_up(&self) -> Result<Vec<Migration>, StoreError>;

    /// Takes back the newest step **with its data**. Returns it, or `None` when there is none.
    ///
    /// # Errors
    /// [`StoreError::SchemaNewer`], or the database's own.
    async fn migrate_down(&self) -> Result<Option<Migration>, StoreError>;

    /// The text of every step, as a DBA would run it.
    fn migration_sql(&self) -> String;

    /// Inserts rows in a transaction of their own. One number for each row, in order: its `seq`, or `None` when its id is
    /// there already and nothing was inserted for it.
    ///
    /// # Errors
    /// The database's own. A repeat is safe: rows that came in are reported as duplicates.
    async fn write(&self, rows: &[NewRow<'_>], ownership: &Ownership) -> Result<Vec<Option<u64>>, StoreError>;

    /// Takes those that have been due longest, in the order of their `seq`. Choosing and locking are one: no two owners ever
    /// hold the same event.
    ///
    /// # Errors
    /// The database's own.
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, StoreError>;

    /// Counts that a claimed event is started now, with no other event's listener at work in its host: if nothing more is heard
    /// of it, it has stopped that host. False when the claim is lost.
    ///
    /// # Errors
    /// The database's own. A repeat counts again.
    async fn count_start(&self, fence: Fence) -> Result<bool, StoreError>;

    /// Takes back one counted start of an event, because its host is still there: the event did not stop it. Whoever holds the
    /// event now. Nothing when none is counted, or the event is finished.
    ///
    /// # Errors
    /// The database's own. A repeat takes back another.
    async fn uncount_start(&self, sequence: u64) -> Result<(), StoreError>;

    /// Writes outcomes, each under its fence, all or none. Returns how many were dropped because somebody else holds the
    /// event by now, or it is finished.
    ///
    /// # Errors
    /// The database's own. A repeat is safe: what was written is fenced off.
    async fn settle(&self, settled: &[Settled]) -> Result<u64, StoreError>;

    /// Writes outcomes, each under its fence and together with its effects: all that belongs to one outcome, or nothing of it.
    /// The outcomes are taken in order; one answer for each.
    ///
    /// # Errors
    /// The database's own; nothing was written then, unless the answer to the commit was lost. A repeat is safe: what was
    /// written is fenced off.
    async fn settle_with_effects(&self, settled: &[SettledWithEffects<'_>]) -> Result<Vec<Committed>, StoreError>;

    /// Which of these events somebody else has locked just now, of those that there are. Their outcomes would have to wait, and
    /// the whole batch with them. None where a database is locked as a whole.
    ///
    /// # Errors
    /// The database's own.
    async fn locked(&self, sequences: &[u64]) -> Result<Vec<u64>, StoreError>;

    /// Gives back the claims that the owner inserted these rows with, as if they had not been claimed. Waits for nobody: a row
    /// that cannot be seen yet, or that somebody else has locked, is left as it is. Returns those that need no second look:
    /// given back now, or not held by that claim any more.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn give_back(&self, owner: &OwnerId, ids: &[EventId]) -> Result<Vec<EventId>, StoreError>;

    /// Makes claims hold for `lease` from now. Waits for nobody: a row that somebody else has locked is left as it is.
    ///
    /// # Errors
    /// The database's own.
    async fn renew(&self, held: &[Fence], lease: Duration) -> Result<Renewed, StoreError>;

    /// How long until the next event is due: zero when one is, `None` when none waits.
    ///
    /// # Errors
    /// The database's own.
    async fn next_due(&self) -> Result<Option<Duration>, StoreError>;

    /// Lets parked events of these routes wait for time only again; at most `limit`. Returns how many.
    ///
    /// # Errors
    /// The database's own.
    async fn unpark(&self, routes: &[Route], limit: u32) -> Result<u64, StoreError>;

    /// The first route behind `after`, in the database's own order of names, of which events are parked; the first of all for
    /// `None`. `None` when there is none.
    ///
    /// # Errors
    /// The database's own.
    async fn parked_route(&self, after: Option<&Route>) -> Result<Option<Route>, StoreError>;

    /// Every route that ever had a listener or was paused, by name, without its counts.
    ///
    /// # Errors
    /// The database's own.
    async fn routes(&self) -> Result<Vec<RouteRecord>, StoreError>;

    /// Every route that had a listener, was paused, or has unfinished or dead events, by name, with its counts. Reads all of
    /// those events: for people, not for the hot walk.
    ///
    /// # Errors
    /// The database's own.
    async fn count_routes(&self) -> Result<Vec<RouteRecord>, StoreError>;

    /// Pauses a route, whether it is known or not: hosts park its events from now on. False when it was paused already.
    ///
    /// # Errors
    /// The database's own.
    async fn pause(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError>;

    /// Ends the pause of a route; its events stay parked until they are unparked. False when it was not paused.
    ///
    /// # Errors
    /// The database's own.
    async fn resume(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError>;

    /// Forgets a route: that it had a listener, and its pause. Its events stay. False when it was not known. A host that answers
    /// it notes it again.
    ///
    /// # Errors
    /// The database's own.
    async fn forget_route(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError>;

    /// Notes that these routes have a listener.
    ///
    /// # Errors
    /// The database's own.
    async fn remember_routes(&self, routes: &[Route]) -> Result<(), StoreError>;

    /// Says that a node is alive for another `lease`, and forgets nodes that have been gone for a day. Returns how many live
    /// nodes run in its mode, itself included.
    ///
    /// # Errors
    /// The database's own.
    async fn heartbeat(&self, node: &Node, lease: Duration) -> Result<u32, StoreError>;

    /// Forgets a node and gives its partitions back.
    ///
    /// # Errors
    /// The database's own.
    async fn leave(&self, owner: &OwnerId) -> Result<(), StoreError>;

    /// Every node, live ones and those gone for less than a day, oldest start first.
    ///
    /// # Errors
    /// The database's own.
    async fn nodes(&self) -> Result<Vec<NodeRecord>, StoreError>;

    /// Renews for `lease` the partitions that the owner holds, then takes partitions below `of` that nobody holds, or whose
    /// lease is over, until it holds `most`. Never gives any back. Returns those that it holds, in order.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn keep_partitions(&self, owner: &OwnerId, lease: Duration, most: u16, of: u16) -> Result<Vec<u16>, StoreError>;

    /// Gives back those of these partitions that the owner holds.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn release_partitions(&self, owner: &OwnerId, partitions: &[u16]) -> Result<(), StoreError>;

    /// The heads of the queues that these events stand in: for each that waits for earlier events of its aggregate, its `seq`
    /// and that of the first of them. Events whose way is free are left out.
    ///
    /// # Errors
    /// The database's own.
    async fn heads(&self, events: &[u64], waits_for: WaitsFor) -> Result<Vec<(u64, u64)>, StoreError>;

    /// The events that others of these partitions wait behind (see [`Settlement::Behind`](super::Settlement::Behind)), in order of
    /// their `seq`: those after the `seq` `after`, at most `limit`.
    ///
    /// # Errors
    /// The database's own.
    async fn blockers(&self, partitions: &[u16], after: u64, limit: u32) -> Result<Vec<Blocker>, StoreError>;

    /// Lets events that wait behind these be due now, oldest first, at most `limit` behind each; of those alone whose turn it
    /// is: no earlier event of their aggregate is waited for, so they are not set aside again at once.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn unblock(&self, blockers: &[u64], waits_for: WaitsFor, limit: u32) -> Result<Unblocked, StoreError>;

    /// The aggregates whose events wait behind one that is not resolved, longest queue first, at most `limit`.
    ///
    /// # Errors
    /// The database's own.
    async fn blocked_keys(&self, limit: u32) -> Result<Vec<BlockedKey>, StoreError>;

    /// Tells every listening node, this one included, that there is something to claim. A hint; does nothing where the
    /// database has no such thing.
    ///
    /// # Errors
    /// The database's own.
    async fn notify(&self) -> Result<(), StoreError>;

    /// What other nodes tell, on a connection of its own; `None` where the database has no such thing.
    ///
    /// # Errors
    /// The database's own.
    async fn listen(&self) -> Result<Option<Box<dyn WakeUps>>, StoreError>;

    /// How many events stand where.
    ///
    /// # Errors
    /// The database's own; a number that cannot be had is never shown as 0.
    async fn stats(&self) -> Result<Stats, StoreError>;

    /// The same numbers for one look among many, at a cost that has a bound: of each kind at most `most` rows are counted, NEW and
    /// RETRY together, and of those that could be delivered the oldest is looked for among the `most` that were due first. A number
    /// that is `most` may be more.
    ///
    /// # Errors
    /// The database's own.
    async fn sample(&self, most: u32) -> Result<Stats, StoreError>;

    /// Rows by filter, in order of insertion, without payloads; at most `limit`.
    ///
    /// # Errors
    /// The database's own.
    async fn list(&self, filter: &Filter, limit: u32) -> Result<Vec<Record>, StoreError>;

    /// One row with its payload; `None` when there is none.
    ///
    /// # Errors
    /// The database's own.
    async fn get(&self, id: EventId) -> Result<Option<Record>, StoreError>;

    /// How many dead events match.
    ///
    /// # Errors
    /// The database's own.
    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, StoreError>;

    /// Sets one dead event back to NEW with no attempts; its fence goes on. False when it is not there or not dead. What an
    /// operator does is recorded in the audit log, in the same transaction; nothing is noted when nothing was done.
    ///
    /// # Errors
    /// The database's own.
    async fn replay(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError>;

    /// Sets matching dead events back to NEW, oldest first, at most `limit`. Returns how many. Noted as by
    /// [`replay`](Self::replay), with the filter and the number.
    ///
    /// # Errors
    /// The database's own.
    async fn replay_batch(&self, filter: &DeadFilter, limit: u32, audit: &Audit) -> Result<u64, StoreError>;

    /// Lets events that wait for another attempt be due now: those that failed, and those whose listener asked for later; only
    /// those that failed no more than `max_attempts` times (`None`: any number), and of those only events after the `seq` `after`.
    /// In order of their `seq`, at most `limit`. Whoever goes on after the last one lets no event go twice, however fast it fails
    /// again. Noted as by [`replay`](Self::replay).
    ///
    /// # Errors
    /// The database's own.
    async fn retry_now(
        &self,
        max_attempts: Option<u32>,
        after: u64,
        limit: u32,
        audit: &Audit,
    ) -> Result<RetriedNow, StoreError>;

    /// How many events [`retry_now`](Self::retry_now) would take of all events, without a limit.
    ///
    /// # Errors
    /// The database's own.
    async fn count_waiting(&self, max_attempts: Option<u32>) -> Result<u64, StoreError>;

    /// Deletes one dead event. False when it is not there, not dead, or died after `dead_before` (`None`: any time). Noted as by
    /// [`replay`](Self::replay).
    ///
    /// # Errors
    /// The database's own.
    async fn discard(&self, id: EventId, dead_before: Option<Timestamp>, audit: &Audit) -> Result<bool, StoreError>;

    /// Lets one dead event block its aggregate no longer; it stays dead. False when it is not there or blocks nothing. Noted as
    /// by [`replay`](Self::replay).
    ///
    /// # Errors
    /// The database's own.
    async fn skip(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError>;

    /// Notes something that an operator did by other calls: `action` such as `purge`, what it was done to, to how many.
    ///
    /// # Errors
    /// The database's own.
    async fn note(&self, audit: &Audit, action: &str, selector: &serde_json::Value, count: u64) -> Result<(), StoreError>;

    /// What operators did, newest first, at most `limit`.
    ///
    /// # Errors
    /// The database's own.
    async fn audit(&self, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
        self.list_audit(&AuditFilter::default(), limit).await
    }

    /// What operators did and matches, newest first, at most `limit`.
    ///
    /// # Errors
    /// The database's own.
    async fn list_audit(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditRecord>, StoreError>;

    /// Deletes finished rows, oldest first, at most `limit`; never one that later events of its aggregate wait behind.
    ///
    /// # Errors
    /// The database's own.
    async fn purge(&self, request: PurgeRequest) -> Result<PurgeBatch, StoreError>;

    /// How many rows [`purge`](Self::purge) would delete without a limit, and how many it leaves though they are old enough.
    ///
    /// # Errors
    /// The database's own.
    async fn count_purgeable(&self, request: PurgeRequest) -> Result<Purgeable, StoreError>;

    /// Deletes rows that have been due for at least `older_than` and that no host ever took, those that were due first at
    /// first, at most `limit`; none while any node is alive, which is going to deliver them. `first` and `last` of the answer
    /// are the times when they were due.
    ///
    /// # Errors
    /// The database's own.
    async fn purge_undelivered(&self, older_than: Duration, limit: u32) -> Result<PurgeBatch, StoreError>;

    /// Looks at the server, its settings, the schema and the connection, for `outbox doctor`. One finding for each thing that
    /// was looked at, good ones included.
    ///
    /// # Errors
    /// When the database cannot even be asked; what can be looked at alone becomes a finding instead.
    async fn diagnose(&self, expectations: &Expectations) -> Result<Vec<Finding>, StoreError>;

    /// How the database would run each statement of the hot walk, of the purge and of the dead, on the rows as they are.
    ///
    /// # Errors
    /// The database's own.
    async fn plans(&self) -> Result<Vec<Plan>, StoreError>;

    /// SQL that gives the least rights to roles named `outbox_migrator`, `outbox_writer`, `outbox_dispatcher` and
    /// `outbox_viewer`, as a DBA would run it; a comment alone where the database has no roles.
    fn grants_sql(&self) -> String;

    /// Closes all connections after what is under way.
    async fn close(&self);
}

/// Hints from other nodes that there is something to claim.
#[async_trait]
pub trait WakeUps: Send {
    /// Waits for the next one. May be dropped while it waits.
    ///
    /// # Errors
    /// When the connection is lost; ask [`Store::listen`] for another.
    async fn next(&mut self) -> Result<(), StoreError>;
}
