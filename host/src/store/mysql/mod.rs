//! MySQL (8.0.16 or later) and MariaDB (10.6 or later): one store, one schema, no statement that only one of them understands.
//!
//! A pool of connections does the work, one more renews leases, and the application's transactions have others. The server's
//! clock decides what is due. Every session is set to READ COMMITTED, UTC and strict mode, those in which a caller writes as
//! well.

mod audit;
mod check_table;
mod claim;
mod dead;
mod diagnose;
mod effects;
mod error;
mod find;
mod front;
mod give_back;
mod grants;
mod insert;
mod insert_many;
mod inspect;
mod keys;
mod lease;
mod lock;
mod migrate;
mod node;
mod open;
mod place;
mod plan;
mod purge;
mod route;
mod row;
mod settle;
mod start;
mod state;
mod transaction;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlPool, MySqlTransaction};

pub use open::MySqlOptions;

use super::trust::Trust;
use super::{
    Audit, AuditFilter, AuditRecord, BlockedKey, Blocker, ClaimRequest, Claimed, Committed, DeadFilter, Expectations, Filter,
    Finding, Migration, NewRow, Node, NodeRecord, Ownership, Plan, PurgeBatch, PurgeRequest, Purgeable, Record, Renewed,
    RetriedNow, RouteRecord, Settled, SettledWithEffects, Stats, Store, StoreError, TableName, TransactionalStore, Unblocked,
    WaitsFor, WakeUps, firsts,
};
use crate::event::{EventId, Fence, OwnerId, Route};
use crate::time::Timestamp;

const NOW: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// The outbox in a MySQL or MariaDB database.
#[derive(Clone)]
pub struct MySqlStore {
    pool: MySqlPool,
    /// For transactions of the application, which may stand still for as long as it likes.
    callers: MySqlPool,
    /// Whether `callers` is the application's own, which closes it.
    is_lent: bool,
    /// One connection, for what keeps our claims ours.
    keeper: MySqlPool,
    table: TableName,
    /// Which database, for messages.
    database: Arc<str>,
    trust: Arc<Trust>,
}

impl MySqlStore {
    /// The text of every step of the schema, for a database that is not open: as
    /// [`Store::migration_sql`].
    #[must_use]
    pub fn schema_sql(table: &TableName) -> String {
        migrate::text(table)
    }

    /// Sorts a driver's error, and draws what it says of the other connections.
    fn failed(&self, action: &'static str, source: sqlx::Error) -> StoreError {
        let error = error::failed(action, source);
        if error::concerns_all(&error) {
            self.trust.lose();
        }
        error
    }
}

impl std::fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MySqlStore").field("database", &self.database).field("table", &self.table).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MySqlStore {
    fn kind(&self) -> &'static str {
        "mysql"
    }

    async fn table_in_full(&self) -> Result<String, StoreError> {
        Ok(self.table.to_string())
    }

    async fn check_schema(&self) -> Result<(), StoreError> {
        migrate::check(self).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let row = sqlx::query(NOW).fetch_one(&self.pool).await;
        let now = row.and_then(|row| row.try_get(0)).map_err(|error| self.failed("ask for the time", error))?;
        Ok(Timestamp::from_micros(now))
    }

    async fn migrations(&self) -> Result<Vec<Migration>, StoreError> {
        migrate::list(self).await
    }

    async fn migrate_up(&self) -> Result<Vec<Migration>, StoreError> {
        migrate::up(self).await
    }

    async fn migrate_down(&self) -> Result<Option<Migration>, StoreError> {
        migrate::down(self).await
    }

    fn migration_sql(&self) -> String {
        migrate::text(&self.table)
    }

    async fn write(&self, rows: &[NewRow<'_>], ownership: &Ownership) -> Result<Vec<Option<u64>>, StoreError> {
        insert::write(self, rows, ownership).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        claim::claim(self, request).await
    }

    async fn count_start(&self, fence: Fence) -> Result<bool, StoreError> {
        start::count(self, fence).await
    }

    async fn uncount_start(&self, sequence: u64) -> Result<(), StoreError> {
        start::uncount(self, sequence).await
    }

    async fn settle(&self, settled: &[Settled]) -> Result<u64, StoreError> {
        settle::settle(self, settled).await
    }

    async fn settle_with_effects(&self, settled: &[SettledWithEffects<'_>]) -> Result<Vec<Committed>, StoreError> {
        effects::settle(self, settled).await
    }

    async fn locked(&self, sequences: &[u64]) -> Result<Vec<u64>, StoreError> {
        lock::locked(self, sequences).await
    }

    async fn give_back(&self, owner: &OwnerId, ids: &[EventId]) -> Result<Vec<EventId>, StoreError> {
        give_back::give_back(self, owner, ids).await
    }

    async fn renew(&self, held: &[Fence], lease: Duration) -> Result<Renewed, StoreError> {
        lease::renew(self, held, lease).await
    }

    async fn next_due(&self) -> Result<Option<Duration>, StoreError> {
        claim::next_due(self).await
    }

    async fn unpark(&self, routes: &[Route], limit: u32) -> Result<u64, StoreError> {
        route::unpark(self, routes, limit).await
    }

    async fn parked_route(&self, after: Option<&Route>) -> Result<Option<Route>, StoreError> {
        route::parked(self, after).await
    }

    async fn routes(&self) -> Result<Vec<RouteRecord>, StoreError> {
        route::list(self).await
    }

    async fn count_routes(&self) -> Result<Vec<RouteRecord>, StoreError> {
        route::count(self).await
    }

    async fn pause(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError> {
        route::pause(self, route, audit).await
    }

    async fn resume(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError> {
        route::resume(self, route, audit).await
    }

    async fn forget_route(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError> {
        route::forget(self, route, audit).await
    }

    async fn remember_routes(&self, routes: &[Route]) -> Result<(), StoreError> {
        route::remember(self, routes).await
    }

    async fn heartbeat(&self, node: &Node, lease: Duration) -> Result<u32, StoreError> {
        node::heartbeat(self, node, lease).await
    }

    async fn leave(&self, owner: &OwnerId) -> Result<(), StoreError> {
        node::leave(self, owner).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>, StoreError> {
        node::nodes(self).await
    }

    async fn keep_partitions(&self, owner: &OwnerId, lease: Duration, most: u16, of: u16) -> Result<Vec<u16>, StoreError> {
        keys::keep(self, owner, lease, most, of).await
    }

    async fn release_partitions(&self, owner: &OwnerId, partitions: &[u16]) -> Result<(), StoreError> {
        keys::release(self, owner, partitions).await
    }

    async fn heads(&self, events: &[u64], waits_for: WaitsFor) -> Result<Vec<(u64, u64)>, StoreError> {
        keys::heads(self, events, waits_for).await
    }

    async fn blockers(&self, partitions: &[u16], after: u64, limit: u32) -> Result<Vec<Blocker>, StoreError> {
        keys::blockers(self, partitions, after, limit).await
    }

    async fn unblock(&self, blockers: &[u64], waits_for: WaitsFor, limit: u32) -> Result<Unblocked, StoreError> {
        firsts::unblock(self, blockers, waits_for, limit).await
    }

    async fn blocked_keys(&self, limit: u32) -> Result<Vec<BlockedKey>, StoreError> {
        keys::blocked_keys(self, limit).await
    }

    async fn notify(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn listen(&self) -> Result<Option<Box<dyn WakeUps>>, StoreError> {
        Ok(None)
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        inspect::stats(self).await
    }

    async fn sample(&self, most: u32) -> Result<Stats, StoreError> {
        inspect::sample(self, most).await
    }

    async fn list(&self, filter: &Filter, limit: u32) -> Result<Vec<Record>, StoreError> {
        inspect::list(self, filter, limit).await
    }

    async fn get(&self, id: EventId) -> Result<Option<Record>, StoreError> {
        inspect::get(self, id).await
    }

    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, StoreError> {
        dead::count(self, filter).await
    }

    async fn replay(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError> {
        dead::replay(self, id, audit).await
    }

    async fn replay_batch(&self, filter: &DeadFilter, limit: u32, audit: &Audit) -> Result<u64, StoreError> {
        dead::replay_batch(self, filter, limit, audit).await
    }

    async fn retry_now(
        &self,
        max_attempts: Option<u32>,
        after: u64,
        limit: u32,
        audit: &Audit,
    ) -> Result<RetriedNow, StoreError> {
        dead::retry_now(self, max_attempts, after, limit, audit).await
    }

    async fn count_waiting(&self, max_attempts: Option<u32>) -> Result<u64, StoreError> {
        dead::count_waiting(self, max_attempts).await
    }

    async fn discard(&self, id: EventId, dead_before: Option<Timestamp>, audit: &Audit) -> Result<bool, StoreError> {
        dead::discard(self, id, dead_before, audit).await
    }

    async fn skip(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError> {
        dead::skip(self, id, audit).await
    }

    async fn note(&self, audit: &Audit, action: &str, selector: &serde_json::Value, count: u64) -> Result<(), StoreError> {
        let mut connection = self.pool.acquire().await.map_err(|error| self.failed("note what was done", error))?;
        audit::note(self, &mut connection, audit, action, selector, count).await
    }

    async fn list_audit(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
        audit::list(self, filter, limit).await
    }

    async fn purge(&self, request: PurgeRequest) -> Result<PurgeBatch, StoreError> {
        purge::purge(self, request).await
    }

    async fn count_purgeable(&self, request: PurgeRequest) -> Result<Purgeable, StoreError> {
        purge::count(self, request).await
    }

    async fn purge_undelivered(&self, older_than: Duration, limit: u32) -> Result<PurgeBatch, StoreError> {
        purge::undelivered(self, older_than, limit).await
    }

    async fn diagnose(&self, expectations: &Expectations) -> Result<Vec<Finding>, StoreError> {
        diagnose::diagnose(self, expectations).await
    }

    async fn plans(&self) -> Result<Vec<Plan>, StoreError> {
        plan::plans(self).await
    }

    fn grants_sql(&self) -> String {
        grants::text(&self.table)
    }

    async fn close(&self) {
        self.keeper.close().await;
        if !self.is_lent {
            self.callers.close().await;
        }
        self.pool.close().await;
    }
}

impl TransactionalStore for MySqlStore {
    type Connection = MySqlConnection;
    type Transaction = MySqlTransaction<'static>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        transaction::begin_for_caller(self).await
    }

    async fn commit(transaction: Self::Transaction) -> Result<(), StoreError> {
        transaction::commit(transaction).await
    }

    async fn rollback(transaction: Self::Transaction) -> Result<(), StoreError> {
        transaction::rollback(transaction).await
    }

    fn is_in_transaction(connection: &mut Self::Connection) -> bool {
        sqlx::Connection::is_in_transaction(connection)
    }

    async fn insert(
        &self,
        connection: &mut Self::Connection,
        rows: &[NewRow<'_>],
        ownership: &Ownership,
    ) -> Result<Vec<Option<u64>>, StoreError> {
        insert::insert(self, connection, rows, ownership).await
    }

    async fn find(&self, connection: &mut Self::Connection, sequences: &[u64]) -> Result<Vec<(u64, EventId)>, StoreError> {
        find::find(self, connection, sequences).await
    }

    async fn delete_inserted(&self, connection: &mut Self::Connection, ids: &[EventId]) -> Result<(), StoreError> {
        insert::delete_inserted(self, connection, ids).await
    }
}
