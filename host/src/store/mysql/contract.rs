//! The contract: each call goes to the file that has its statements.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlTransaction};

use super::{
    MySqlStore, audit, claim, dead, diagnose, find, give_back, grants, insert, inspect, lease, line, lock, migrate, node, plan,
    purge, route, settle, start, transaction,
};
use crate::event::{EventId, Fence, OwnerId, Route};
use crate::store::firsts;
use crate::store::{
    Audit, AuditRecord, BlockedKey, Blocker, ClaimRequest, Claimed, DeadFilter, Expectations, Filter, Finding, Migration,
    NewRow, Node, NodeRecord, Ownership, Plan, PurgeBatch, PurgeRequest, Purgeable, Record, Renewed, RouteRecord, Settled,
    Stats, Store, StoreError, TransactionalStore, Unblocked, WaitsFor, WakeUps,
};
use crate::time::Timestamp;

const NOW: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

#[async_trait]
impl Store for MySqlStore {
    fn kind(&self) -> &'static str {
        "mysql"
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

    async fn remember_routes(&self, routes: &[Route]) -> Result<(), StoreError> {
        route::remember(self, routes).await
    }

    async fn beat(&self, node: &Node, lease: Duration) -> Result<u32, StoreError> {
        node::beat(self, node, lease).await
    }

    async fn leave(&self, owner: &OwnerId) -> Result<(), StoreError> {
        node::leave(self, owner).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>, StoreError> {
        node::nodes(self).await
    }

    async fn keep_lanes(&self, owner: &OwnerId, lease: Duration, most: u16, of: u16) -> Result<Vec<u16>, StoreError> {
        line::keep(self, owner, lease, most, of).await
    }

    async fn release_lanes(&self, owner: &OwnerId, lanes: &[u16]) -> Result<(), StoreError> {
        line::release(self, owner, lanes).await
    }

    async fn heads(&self, events: &[u64], waits_for: WaitsFor) -> Result<Vec<(u64, u64)>, StoreError> {
        line::heads(self, events, waits_for).await
    }

    async fn blockers(&self, lanes: &[u16], after: u64, limit: u32) -> Result<Vec<Blocker>, StoreError> {
        line::blockers(self, lanes, after, limit).await
    }

    async fn unblock(&self, blockers: &[u64], waits_for: WaitsFor, limit: u32) -> Result<Unblocked, StoreError> {
        firsts::unblock(self, blockers, waits_for, limit).await
    }

    async fn blocked_keys(&self, limit: u32) -> Result<Vec<BlockedKey>, StoreError> {
        line::blocked_keys(self, limit).await
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

    async fn hasten(&self, max_attempts: Option<u32>, limit: u32, audit: &Audit) -> Result<u64, StoreError> {
        dead::hasten(self, max_attempts, limit, audit).await
    }

    async fn count_waiting(&self, max_attempts: Option<u32>) -> Result<u64, StoreError> {
        dead::count_waiting(self, max_attempts).await
    }

    async fn discard(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError> {
        dead::discard(self, id, audit).await
    }

    async fn skip(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError> {
        dead::skip(self, id, audit).await
    }

    async fn note(&self, audit: &Audit, action: &str, selector: &serde_json::Value, count: u64) -> Result<(), StoreError> {
        let mut connection = self.pool.acquire().await.map_err(|error| self.failed("note what was done", error))?;
        audit::note(self, &mut connection, audit, action, selector, count).await
    }

    async fn audit(&self, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
        audit::list(self, limit).await
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
        self.callers.close().await;
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

    async fn find(&self, connection: &mut Self::Connection, ids: &[EventId]) -> Result<Vec<EventId>, StoreError> {
        find::find(self, connection, ids).await
    }

    async fn take_back(&self, connection: &mut Self::Connection, sequences: &[u64]) -> Result<(), StoreError> {
        insert::take_back(self, connection, sequences).await
    }
}
