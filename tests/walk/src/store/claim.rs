//! Claiming single events.

use std::time::Duration;

use async_trait::async_trait;
use outbox::event::{Fence, OwnerId};
use outbox::store::{ClaimStore, Claimed, Record};
use outbox::{Event, StoreError, sqlx};

use super::{MemoryStore, refused_by_trigger};
use crate::table::is_unfinished;
use crate::taking::Taken;
use crate::world::{Change, World, shown};

#[async_trait]
impl ClaimStore for MemoryStore {
    async fn claim(&self, owner: &OwnerId, lease: Duration, fences: &[Fence]) -> Result<Vec<Claimed>, StoreError> {
        let claimed = self.run("claim", |world| {
            let rows = world.unfinished(fences);
            if world.refuses(Change::Claim, &rows) {
                return Err(Change::Claim);
            }
            if world.refuses(Change::Payload, &rows) {
                return Err(Change::Payload);
            }
            let ended = world.ended_claims();
            let taken = world.past_locked(|world| world.table.claim(owner, lease, fences));
            let seqs: Vec<u64> = taken.iter().map(|taken| taken.row.seq).collect();
            world.take_over(&ended.into_iter().filter(|(seq, _)| seqs.contains(seq)).collect::<Vec<_>>());
            let claimed: Vec<Claimed> = taken.into_iter().map(|taken| world.claimed(self.life, taken)).collect();
            world.log_taken(self.life, "claimed", &claimed);
            Ok(claimed)
        });
        claimed.await?.map_err(|refused| match refused {
            Change::Payload => self.damaged(),
            change => self.refused("claim events", change),
        })
    }
}

impl MemoryStore {
    /// The answer to a statement that changes claims, one of which the database refuses.
    pub(super) fn refused(&self, action: &'static str, change: Change) -> StoreError {
        let mut world = self.world();
        let line = format!("{} may not {action}: {change:?} of {:?}", world.name(self.life), world.refused_rows(change));
        world.note(line);
        refused_by_trigger(action)
    }

    /// The answer to a statement that returns payloads, one of which is damaged.
    pub(super) fn damaged(&self) -> StoreError {
        let mut world = self.world();
        let line = format!("{} meets a damaged payload of {:?}", world.name(self.life), world.refused_rows(Change::Payload));
        world.note(line);
        StoreError::Corrupt { action: "return payloads", source: sqlx::Error::Protocol("a page is damaged".into()) }
    }
}

impl World {
    /// Of these rows, those that a claim or its renewal could change.
    pub(super) fn unfinished(&self, fences: &[Fence]) -> Vec<u64> {
        let seqs = fences.iter().map(|fence| fence.sequence);
        seqs.filter(|seq| self.table.rows.get(seq).is_some_and(is_unfinished)).collect()
    }

    /// What was claimed, as the host gets it.
    pub(super) fn claimed(&mut self, life: usize, taken: Taken) -> Claimed {
        let Taken { row, fence, due, behind } = taken;
        self.showed(life, fence);
        let envelope = self.envelopes[&row.event_id].clone();
        let event = Event::of(envelope).sequence(row.seq).attempt(row.attempts + 1).fence(fence.claim).build();
        let mut claimed = Claimed::new(fence, event);
        (claimed.attempts, claimed.deferrals) = (row.attempts, row.deferrals);
        (claimed.claims, claimed.starts) = (row.claims, row.starts);
        claimed.expires_in = row.expires_at.map(|expires_at| expires_at.since(self.table.now));
        (claimed.due, claimed.behind) = (due, behind);
        claimed
    }

    /// Notes what is taken from somebody whose claim has ended.
    pub(super) fn take_over(&mut self, taken: &[(u64, bool)]) {
        self.lost(|_, row| taken.contains(&(row.seq, true)));
    }

    /// For each row whether a claim of it has ended without an outcome.
    pub(super) fn ended_claims(&self) -> Vec<(u64, bool)> {
        let now = self.table.now;
        let ended = |row: &Record| row.locked_by.is_some() && row.lease_end.is_some_and(|end| end <= now);
        self.table.rows.values().map(|row| (row.seq, ended(row))).collect()
    }

    pub(super) fn log_taken(&mut self, life: usize, what: &str, claimed: &[Claimed]) {
        if !claimed.is_empty() {
            let fences: Vec<String> = claimed.iter().map(|claimed| shown(claimed.fence)).collect();
            let line = format!("{} {what} {}", self.name(life), fences.join(" "));
            self.note(line);
        }
    }
}
