//! Outcomes that cannot be stored although others can, because another transaction has locked their rows or the database refuses them.
//! The host keeps their events, so that no listener is called for them again.

use std::collections::HashSet;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Settler;
use super::completion::{Batch, Completion};
use super::obstacle::{Apart, LONG_WAIT, LOOK_AGAIN, Obstacle};
use super::trying::Round;
use crate::queue::Mark;
use crate::store::{Settled, StoreError, StuckEvent, StuckEvents, StuckReason};
use crate::time::system_clock;

/// How many outcomes are taken in at once.
const TAKEN: usize = 1_000;
/// The most outcomes that the log names one by one at each look.
const LOGGED: usize = 10;
/// The error of an outcome that waits for a lock.
const LOCKED: &str = "the row is locked by another transaction";

impl Settler {
    /// Adds outcomes to those that wait apart. Returns those for which there is no place.
    pub(super) fn set_apart(
        &self,
        mut outcomes: Vec<Completion>,
        obstacle: &Obstacle,
        round: Round,
        apart: &mut Vec<Completion>,
    ) -> Vec<Completion> {
        for one in &mut outcomes {
            match &mut one.held.apart {
                Some(waiting) => waiting.met(obstacle, &self.places),
                none => *none = Apart::new(obstacle, round == Round::First, &self.places).map(Box::new),
            }
        }
        apart.extend(outcomes.extract_if(.., |one| one.held.apart.is_some()));
        outcomes
    }

    /// Stores outcomes that were set apart, each when its obstacle is gone. There is no end to that while the host runs.
    pub(super) async fn write_apart(&self, mut inbox: mpsc::UnboundedReceiver<Completion>) {
        let mut batch = Batch::with_capacity(self.batch_size.most());
        let mut waiting = Vec::new();
        loop {
            if waiting.is_empty() && inbox.recv_many(&mut waiting, TAKEN).await == 0 {
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            while let Ok(one) = inbox.try_recv() {
                waiting.push(one);
            }
            // At a stop nothing comes any more: what is refused is tried once more, what is locked until the stop must be over.
            let is_stopping = inbox.is_closed() && inbox.is_empty();
            if self.must_give_up() {
                log_given_up(&waiting);
                return;
            }
            let due = self.take_due(&mut waiting, is_stopping).await;
            let (mut unstored, is_over) = self.try_again(due, &mut batch).await;
            let refused: Vec<Completion> = unstored.extract_if(.., |one| !is_locked(one)).collect();
            waiting.append(&mut unstored);
            if is_stopping {
                log_given_up(&refused);
                continue;
            }
            waiting.extend(refused);
            if is_over {
                // The obstacle of one is probably gone for the others too.
                waiting.iter_mut().filter_map(|one| one.held.apart.as_mut()).for_each(|apart| apart.again_at = Instant::now());
            }
            self.log_new(&mut waiting).await;
            self.publish(&waiting);
        }
    }

    /// Logs those that are new.
    async fn log_new(&self, waiting: &mut [Completion]) {
        let mut locked = Vec::new();
        let mut named = 0;
        for one in waiting {
            let (sequence, id) = (one.settled.fence.sequence, one.held.mark.as_ref().map(Mark::id));
            let Some(apart) = one.held.apart.as_mut().filter(|apart| !apart.is_logged) else { continue };
            apart.is_logged = true;
            let Some(error) = apart.obstacle.error() else {
                locked.push(sequence);
                continue;
            };
            named += 1;
            if named > LOGGED {
                continue;
            }
            let record = match id {
                Some(id) => self.store.get(id).await.ok().flatten(),
                None => None,
            };
            tracing::error!(
                event.id = id.map(display),
                event.sequence = sequence,
                route = record.map(|record| display(format!("{}/{}", record.aggregate_type, record.event_type))),
                error,
                "the database refuses an outcome; retrying without another call of the listener"
            );
        }
        if named > LOGGED {
            tracing::error!(events = named - LOGGED, "more refused outcomes are not logged one by one; see `outbox doctor`");
        }
        if let Some(first) = locked.iter().min() {
            tracing::warn!(
                events = locked.len(),
                event.sequence = first,
                "rows are locked by another transaction; their outcomes wait, and others are stored"
            );
        }
    }

    /// Publishes what waits, for the heartbeat and the metrics.
    fn publish(&self, waiting: &[Completion]) {
        let now = system_clock().now();
        let (mut refused, mut locked) = (Vec::new(), Vec::new());
        for one in waiting {
            let Some(apart) = one.held.apart.as_deref() else { continue };
            if !apart.obstacle.is_lock() {
                refused.push((one, apart));
            } else if now.since(apart.since) >= LONG_WAIT {
                locked.push((one, apart));
            }
        }
        let are_locked = waiting.len() - refused.len();
        let stuck = [(StuckReason::OutcomeRefused, refused), (StuckReason::OutcomeLocked, locked)];
        let stuck = stuck.into_iter().filter(|(_, outcomes)| !outcomes.is_empty());
        let stuck = stuck.map(|(reason, outcomes)| stuck_events(reason, outcomes));
        self.metrics.outcomes_apart.set(are_locked, stuck.collect());
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

    /// Tries outcomes again: those that were locked together, those that were refused one by one. Returns those that meet an obstacle,
    /// and whether one that was refused meets none any more.
    async fn try_again(&self, mut due: Vec<Completion>, batch: &mut Batch) -> (Vec<Completion>, bool) {
        let mut free: Vec<Completion> = due.extract_if(.., |one| is_locked(one)).collect();
        let mut unstored = self.store_all(&mut free, batch, Round::Again).await;
        let mut is_over = false;
        for one in due {
            let sequence = one.settled.fence.sequence;
            let mut obstructed = self.store_all(&mut vec![one], batch, Round::Again).await;
            if obstructed.is_empty() {
                is_over = true;
                tracing::info!(
                    event.sequence = sequence,
                    "an outcome that was refused is stored, or belongs to another host by now"
                );
            }
            unstored.append(&mut obstructed);
        }
        (unstored, is_over)
    }

    /// The `seq` of the outcomes whose rows another transaction has locked.
    pub(super) async fn locked(&self, settled: impl Iterator<Item = &Settled>) -> Result<HashSet<u64>, StoreError> {
        let sequences: Vec<u64> = settled.map(|settled| settled.fence.sequence).collect();
        let locked = self.store.locked(&sequences).await.inspect_err(|error| self.metrics.db_error(error))?;
        Ok(locked.into_iter().collect())
    }
}

/// The events of these outcomes. Copies only the errors of the events that it names: thousands of outcomes may wait, and this is published
/// several times a second.
fn stuck_events(reason: StuckReason, mut outcomes: Vec<(&Completion, &Apart)>) -> StuckEvents {
    outcomes.sort_unstable_by_key(|(one, apart)| (apart.since, one.settled.fence.sequence));
    let named = outcomes.iter().take(StuckEvents::NAMED).map(|(one, apart)| {
        let error = apart.obstacle.error().unwrap_or(LOCKED);
        StuckEvent::new(one.settled.fence.sequence, one.held.mark.as_ref().map(Mark::id), error, apart.since)
    });
    StuckEvents::new(reason, outcomes.len(), named)
}

fn is_locked(one: &Completion) -> bool {
    one.held.apart.as_ref().is_none_or(|apart| apart.obstacle.is_lock())
}

fn log_given_up(outcomes: &[Completion]) {
    if !outcomes.is_empty() {
        let first = outcomes.iter().map(|one| one.settled.fence.sequence).min();
        tracing::error!(
            events = outcomes.len(),
            event.sequence = first,
            "outcomes could not be stored before the stop; their events are delivered again"
        );
    }
}
