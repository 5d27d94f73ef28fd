//! Outcomes that cannot be stored although others can, because another transaction has locked their rows or the database refuses them.
//! The host keeps their events, so that no listener is called for them again.

use std::collections::HashSet;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Settler;
use super::completion::{Batch, Completion};
use super::obstacle::{Apart, LOOK_AGAIN, Obstacle};
use crate::queue::Mark;
use crate::store::{RefusedOutcome, RefusedOutcomes, Settled, StoreError};

/// The most outcomes that wait apart. Beyond that the host stores nothing, and soon takes nothing: whatever is in the way is no matter
/// of single rows.
pub(crate) const MOST: usize = 1_000;

/// The most outcomes that the log names one by one at each look.
const NAMED: usize = 10;

impl Settler {
    /// Adds outcomes to those that wait apart. Returns those for which there is no place.
    pub(super) fn set_apart(
        &self,
        mut outcomes: Vec<Completion>,
        obstacle: &Obstacle,
        apart: &mut Vec<Completion>,
    ) -> Vec<Completion> {
        for one in &mut outcomes {
            let known = one.held.apart.take().or_else(|| {
                let place = self.places_apart.clone().try_acquire_owned().ok()?;
                Some(Box::new(Apart::new(place)))
            });
            one.held.apart = known.map(|mut known| {
                known.met(obstacle.clone());
                known
            });
        }
        apart.extend(outcomes.extract_if(.., |one| one.held.apart.is_some()));
        outcomes
    }

    /// Stores outcomes that were set apart, each when its obstacle is gone. There is no end to that while the host runs.
    pub(super) async fn write_apart(&self, mut inbox: mpsc::UnboundedReceiver<Completion>) {
        let mut batch = Batch::with_capacity(self.batch_size);
        let mut waiting = Vec::new();
        loop {
            if waiting.is_empty() && inbox.recv_many(&mut waiting, MOST).await == 0 {
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            while let Ok(one) = inbox.try_recv() {
                waiting.push(one);
            }
            // At a stop nothing comes any more: what is refused is tried once more, what is locked until the stop must be over.
            let is_stopping = inbox.is_closed() && inbox.is_empty();
            if self.must_give_up() {
                given_up(&waiting);
                return;
            }
            let due = self.take_due(&mut waiting, is_stopping).await;
            let tried = due.iter().filter(|one| !is_locked(one)).count();
            let mut still = self.try_again(due, &mut batch).await;
            let refused: Vec<Completion> = still.extract_if(.., |one| !is_locked(one)).collect();
            waiting.append(&mut still);
            if is_stopping {
                given_up(&refused);
                continue;
            }
            let is_over = refused.len() < tried;
            waiting.extend(refused);
            if is_over {
                // The obstacle of one is probably gone for the others too.
                waiting.iter_mut().filter_map(|one| one.held.apart.as_mut()).for_each(|apart| apart.again_at = Instant::now());
            }
            self.tell(&mut waiting).await;
            self.report(&waiting);
        }
    }

    /// Logs those that are new.
    async fn tell(&self, waiting: &mut [Completion]) {
        let mut locked = Vec::new();
        let mut named = 0;
        for one in waiting {
            let (sequence, id) = (one.settled.fence.sequence, one.held.mark.as_ref().map(Mark::id));
            let Some(apart) = one.held.apart.as_mut().filter(|apart| !apart.is_told) else { continue };
            apart.is_told = true;
            let Some(error) = apart.obstacle.error() else {
                locked.push(sequence);
                continue;
            };
            named += 1;
            if named > NAMED {
                continue;
            }
            let record = match id {
                Some(id) => self.store.get(id).await.ok().flatten(),
                None => None,
            };
            tracing::error!(
                event.id = id.map(|id| id.to_string()),
                event.sequence = sequence,
                route = record.map(|record| format!("{}/{}", record.aggregate_type, record.event_type)),
                error,
                "the database refuses an outcome; it is tried again, and its listener is not called again meanwhile"
            );
        }
        if named > NAMED {
            tracing::error!(
                events = named - NAMED,
                "the database refuses the outcomes of more events; `outbox doctor` says of how many"
            );
        }
        if let Some(first) = locked.iter().min() {
            tracing::warn!(
                events = locked.len(),
                event.sequence = first,
                "another transaction has locked the rows of events whose outcomes are to be stored; they wait, and hold up no others"
            );
        }
    }

    /// Publishes what waits, for the heartbeat and the metrics.
    fn report(&self, waiting: &[Completion]) {
        let refused = waiting.iter().filter_map(|one| {
            let apart = one.held.apart.as_ref()?;
            let error = apart.obstacle.error()?.to_owned();
            let event_id = one.held.mark.as_ref().map(Mark::id);
            Some(RefusedOutcome { seq: one.settled.fence.sequence, event_id, error, since: apart.since })
        });
        let mut refused: Vec<RefusedOutcome> = refused.collect();
        refused.sort_by_key(|one| (one.since, one.seq));
        let locked = waiting.len() - refused.len();
        self.metrics.outcomes_apart.set(locked, RefusedOutcomes::new(refused.len(), refused));
    }

    /// Takes out what can be tried now: what was locked and is free, and what was refused and has rested.
    async fn take_due(&self, waiting: &mut Vec<Completion>, all: bool) -> Vec<Completion> {
        let now = Instant::now();
        let locked = if waiting.iter().any(is_locked) {
            self.locked(waiting.iter().filter(|one| is_locked(one)).map(|one| &one.settled)).await.ok()
        } else {
            Some(HashSet::new())
        };
        let is_due = |one: &mut Completion| {
            let Some(apart) = &one.held.apart else { return true };
            match apart.obstacle {
                Obstacle::Locked => locked.as_ref().is_some_and(|locked| !locked.contains(&one.settled.fence.sequence)),
                Obstacle::Refused(_) | Obstacle::Unchanged => all || apart.again_at <= now,
            }
        };
        waiting.extract_if(.., is_due).collect()
    }

    /// Tries outcomes again: those that were locked together, those that were refused one by one. Returns those that meet an obstacle.
    async fn try_again(&self, mut due: Vec<Completion>, batch: &mut Batch) -> Vec<Completion> {
        let mut free: Vec<Completion> = due.extract_if(.., |one| is_locked(one)).collect();
        let mut still = self.store_all(&mut free, batch).await;
        for one in due {
            let sequence = one.settled.fence.sequence;
            let before = still.len();
            still.append(&mut self.store_all(&mut vec![one], batch).await);
            if still.len() == before {
                tracing::info!(
                    event.sequence = sequence,
                    "an outcome that was refused is stored, or has become another host's"
                );
            }
        }
        still
    }

    /// The `seq` of the outcomes whose rows another transaction has locked.
    pub(super) async fn locked(&self, settled: impl Iterator<Item = &Settled>) -> Result<HashSet<u64>, StoreError> {
        let sequences: Vec<u64> = settled.map(|settled| settled.fence.sequence).collect();
        let locked = self.store.locked(&sequences).await.inspect_err(|error| self.metrics.db_error(error))?;
        Ok(locked.into_iter().collect())
    }
}

fn is_locked(one: &Completion) -> bool {
    one.held.apart.as_ref().is_none_or(|apart| apart.obstacle == Obstacle::Locked)
}

fn given_up(outcomes: &[Completion]) {
    if !outcomes.is_empty() {
        let first = outcomes.iter().map(|one| one.settled.fence.sequence).min();
        tracing::error!(
            events = outcomes.len(),
            event.sequence = first,
            "outcomes could not be stored before the host stops; their events are delivered again"
        );
    }
}
