//! Deleting old events.

use std::time::Duration;

use async_trait::async_trait;
use outbox::store::{PurgeBatch, PurgeRequest, PurgeRow, PurgeStore, PurgeTarget, Purgeable};
use outbox::time::Timestamp;
use outbox::{Status, StoreError, sqlx};

use super::{MemoryStore, refused_by_trigger};
use crate::world::{Change, World};

#[async_trait]
impl PurgeStore for MemoryStore {
    async fn purge(&self, request: &PurgeRequest) -> Result<PurgeBatch, StoreError> {
        self.run("purge", |world| {
            if world.plan.faults.may_not_purge == Some(world.lives[self.life].place) {
                let source = sqlx::Error::Protocol("it may not delete".into());
                return Err(StoreError::Forbidden { action: "purge finished events", source });
            }
            world.purge(self.life, request)
        })
        .await?
    }

    async fn next_to_purge(&self, request: &PurgeRequest) -> Result<Option<PurgeRow>, StoreError> {
        self.run("next_to_purge", |world| world.to_purge(request).first().copied()).await
    }

    async fn oldest_purgeable(&self, status: Status, finished_before: Timestamp) -> Result<Option<PurgeRow>, StoreError> {
        self.run("oldest_purgeable", |world| {
            let finished = world.purgeable(status).filter(|row| row.at <= finished_before);
            finished.min_by_key(|row| (row.at, row.seq))
        })
        .await
    }

    async fn count_purgeable(&self, status: Status, finished_before: Timestamp) -> Result<Purgeable, StoreError> {
        self.run("count_purgeable", |world| world.table.count_purgeable(status, finished_before)).await
    }
}

impl World {
    /// The finished rows of this status that a purge may delete, whatever their age.
    pub(crate) fn purgeable(&self, status: Status) -> impl Iterator<Item = PurgeRow> {
        let finished = self.table.rows.values().filter(move |row| row.status == status && !row.blocks);
        finished.filter_map(|row| Some(PurgeRow { seq: row.seq, event_id: Some(row.event_id), at: row.done_at? }))
    }

    /// The rows that a request means, oldest first. Skips locked rows, as `SKIP LOCKED` does.
    fn to_purge(&self, request: &PurgeRequest) -> Vec<PurgeRow> {
        let PurgeTarget::Finished { status, finished_before } = request.target else { return Vec::new() };
        let is_meant = |row: &PurgeRow| {
            row.at <= finished_before
                && request.from.is_none_or(|from| row.at >= from)
                && !request.skip.contains(&row.seq)
                && !self.is_locked(row.seq)
        };
        let mut rows: Vec<PurgeRow> = self.purgeable(status).filter(is_meant).collect();
        rows.sort_by_key(|row| (row.at, row.seq));
        rows.truncate(request.limit as usize);
        rows
    }

    /// Deletes the rows of a request. Of those that the database does not delete, the ones with an even number stay without an error.
    fn purge(&mut self, life: usize, request: &PurgeRequest) -> Result<PurgeBatch, StoreError> {
        if let Some(fault) = self.fault_of_purge(request) {
            self.violated(format!("{} purges {:?}: {fault}", self.name(life), request.target));
        }
        let chosen = self.to_purge(request);
        let seqs: Vec<u64> = chosen.iter().map(|row| row.seq).collect();
        let is_refused = self.refuses(Change::Purge, &seqs);
        let is_kept = |row: &PurgeRow| is_refused && self.refused_rows(Change::Purge).contains(&row.seq);
        let (remaining, deleted): (Vec<PurgeRow>, Vec<PurgeRow>) = chosen.into_iter().partition(is_kept);
        if let Some(row) = remaining.iter().find(|row| row.seq % 2 == 1) {
            self.note(format!("{} may not delete {}", self.name(life), row.seq));
            return Err(refused_by_trigger("purge finished events"));
        }
        for row in &deleted {
            let before = self.table.rows.remove(&row.seq);
            self.purged.extend(before.map(|before| (row.seq, before)));
        }
        if !seqs.is_empty() {
            let kept: Vec<u64> = remaining.iter().map(|row| row.seq).collect();
            self.note(format!("{} purges {seqs:?}, and {kept:?} remain", self.name(life)));
        }
        let times: Vec<Timestamp> = deleted.iter().map(|row| row.at).collect();
        Ok(PurgeBatch { remaining, ..PurgeBatch::of(&times) })
    }

    /// Why no host may purge this: it would delete events that are not finished, or not old enough.
    fn fault_of_purge(&self, request: &PurgeRequest) -> Option<&'static str> {
        let PurgeTarget::Finished { status, finished_before } = request.target else {
            return Some("undelivered events are kept");
        };
        let Some(kept) = self.plan.purge.kept(status) else { return Some("such events are kept for ever") };
        // The host reads the database's clock first, and it may be set backwards since.
        let error = if self.plan.database_clock.is_set() { 2 * self.clock_error() } else { Duration::ZERO };
        (finished_before.plus(kept) > self.table.now.plus(error)).then_some("some of them are not old enough")
    }
}
