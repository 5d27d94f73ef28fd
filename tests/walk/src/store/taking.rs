//! Taking events: by claim, or by reading a partition; and keeping them.

use std::time::Duration;

use async_trait::async_trait;
use outbox::event::{Fence, OwnerId};
use outbox::store::{
    ClaimRequest, ClaimStore, Claimed, LeaseStore, Position, ReadEvent, ReadRequest, ReadStore, Record, Renewed,
};
use outbox::{Event, EventId, Route, StoreError};

use super::MemoryStore;
use crate::taking::Taken;
use crate::world::{World, shown};

#[async_trait]
impl ClaimStore for MemoryStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        self.run("claim", |world| {
            let ended = world.ended_claims();
            let taken = world.past_locked(|world| world.table.claim(request));
            let seqs: Vec<u64> = taken.iter().map(|taken| taken.row.seq).collect();
            // A host that claims row by row takes what others have read: beside a host of an earlier version.
            let by_row = world.plan.faults.claimer;
            let over = ended.into_iter().filter(|(seq, _)| seqs.contains(seq)).map(|(seq, ended)| (seq, ended || by_row));
            world.take_over(&over.collect::<Vec<_>>());
            let claimed: Vec<Claimed> = taken.into_iter().map(|taken| world.claimed(self.life, taken)).collect();
            world.log_taken(self.life, "claimed", &claimed);
            claimed
        })
        .await
    }

    async fn next_due(&self) -> Result<Option<Duration>, StoreError> {
        self.run("next_due", |world| world.table.next_due()).await
    }
}

#[async_trait]
impl ReadStore for MemoryStore {
    async fn read(&self, request: &ReadRequest) -> Result<Vec<ReadEvent>, StoreError> {
        let front_takes = if request.after.is_none() { self.world().plan.front_takes } else { Duration::ZERO };
        let read = self.run("read", |world| {
            let taken = world.table.read(request);
            let read: Vec<ReadEvent> = taken
                .into_iter()
                .map(|taken| {
                    let (partition, was_claimed) = (world.table.partition(&taken.row), taken.row.locked_by.is_some());
                    let due_at = taken.row.due_at.expect("it is due");
                    let position = Position { due_at, sequence: taken.row.seq };
                    ReadEvent::new(world.claimed(self.life, taken), partition, position, was_claimed)
                })
                .collect();
            if !read.is_empty() {
                let fences: Vec<String> = read.iter().map(shown_as_read).collect();
                let line = format!("{} read {}", world.name(self.life), fences.join(" "));
                world.note(line);
            }
            read
        });
        let read = read.await;
        self.takes(front_takes).await;
        self.answer(Duration::ZERO, read).await
    }

    async fn next_to_read(&self, owner: &OwnerId, held: &[u64], busy: &[Route]) -> Result<Option<Duration>, StoreError> {
        self.run("next_to_read", |world| world.table.next_to_read(owner.as_str(), held, busy)).await
    }

    async fn claim_these(&self, owner: &OwnerId, lease: Duration, fences: &[Fence]) -> Result<Vec<Claimed>, StoreError> {
        self.run("claim_these", |world| {
            let ended = world.ended_claims();
            let taken = world.past_locked(|world| world.table.claim_these(owner, lease, fences));
            let seqs: Vec<u64> = taken.iter().map(|taken| taken.row.seq).collect();
            world.take_over(&ended.into_iter().filter(|(seq, _)| seqs.contains(seq)).collect::<Vec<_>>());
            let claimed: Vec<Claimed> = taken.into_iter().map(|taken| world.claimed(self.life, taken)).collect();
            world.log_taken(self.life, "claimed of what it had read", &claimed);
            claimed
        })
        .await
    }
}

/// What was read, as the history shows it: with the event that it waits behind.
fn shown_as_read(read: &ReadEvent) -> String {
    let behind = read.event.behind.map(|behind| format!(" (behind {behind})")).unwrap_or_default();
    format!("{}{behind}", shown(read.event.fence))
}

#[async_trait]
impl LeaseStore for MemoryStore {
    async fn renew(&self, held: &[Fence], lease: Duration) -> Result<Renewed, StoreError> {
        self.run("renew", |world| {
            let (locked, free): (Vec<Fence>, Vec<Fence>) = held.iter().partition(|fence| world.is_locked(fence.sequence));
            let held = world.table.renew(&free, lease);
            Renewed { held, locked: locked.into_iter().map(|fence| fence.sequence).collect() }
        })
        .await
    }

    async fn give_back(&self, owner: &OwnerId, ids: &[EventId]) -> Result<Vec<EventId>, StoreError> {
        self.run("give_back", |world| {
            let locked: Vec<EventId> =
                world.table.rows.values().filter(|row| world.is_locked(row.seq)).map(|row| row.event_id).collect();
            let free: Vec<EventId> = ids.iter().copied().filter(|id| !locked.contains(id)).collect();
            let line = format!("{} gives back {free:?}", world.name(self.life));
            world.note(line);
            world.table.give_back(owner, &free)
        })
        .await
    }

    async fn count_start(&self, fence: Fence) -> Result<bool, StoreError> {
        self.run_on(&[fence.sequence], "count_start", |world| world.table.count_start(fence)).await
    }

    async fn uncount_start(&self, sequence: u64) -> Result<(), StoreError> {
        self.run_on(&[sequence], "uncount_start", |world| world.table.uncount_start(sequence)).await
    }
}

impl World {
    /// What was claimed, as the host gets it.
    fn claimed(&mut self, life: usize, taken: Taken) -> Claimed {
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
    fn take_over(&mut self, taken: &[(u64, bool)]) {
        self.lost(|_, row| taken.contains(&(row.seq, true)));
    }

    /// For each row whether a claim of it has ended without an outcome.
    fn ended_claims(&self) -> Vec<(u64, bool)> {
        let now = self.table.now;
        let ended = |row: &Record| row.locked_by.is_some() && row.lease_end.is_some_and(|end| end <= now);
        self.table.rows.values().map(|row| (row.seq, ended(row))).collect()
    }

    fn log_taken(&mut self, life: usize, what: &str, claimed: &[Claimed]) {
        if !claimed.is_empty() {
            let fences: Vec<String> = claimed.iter().map(|claimed| shown(claimed.fence)).collect();
            let line = format!("{} {what} {}", self.name(life), fences.join(" "));
            self.note(line);
        }
    }
}
