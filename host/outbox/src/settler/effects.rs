//! Outcomes whose listeners emitted events or wrote state: each outcome is stored together with its effects, in one transaction.

use std::collections::HashSet;
use std::time::Duration;

use rand::RngExt;

use super::completion::{Batch, Completion};
use super::obstacle::Obstacle;
use super::trying::{Round, Trying};
use super::{Settler, fenced_off};
use crate::event::{Effects, Envelope};
use crate::settlement::{self, given_back_for};
use crate::store::{AttemptCost, Committed, Settled, SettledWithEffects, Settlement, StoreError};
use crate::time::system_clock;

/// The most outcomes with effects in one transaction, which locks the state of their plugins.
const TOGETHER: usize = 50;
/// How often a transaction is tried again after a transient error, before each of its outcomes is tried alone.
const REPEATS: u32 = 3;
/// The rest of an event after a conflict, in microseconds.
const CONFLICT_MICROS: std::ops::Range<u64> = 500..10_000;

/// What became of outcomes that were to be stored in one transaction.
enum Tried {
    /// The database's answer to each.
    Stored(Vec<Committed>),
    /// The database refused at least one of them.
    Refused(StoreError),
    /// Another transaction has locked a plugin's state, or the id of an emitted event.
    HeldUp,
    /// It took too long: the claims end with their leases.
    GivenUp,
}

impl Settler {
    /// Stores outcomes with effects. Outcomes that have to be written another way are added to `completions`, those whose rows are
    /// locked to `apart`.
    pub(super) async fn store_effects(
        &self,
        mut waiting: Vec<Completion>,
        round: Round,
        completions: &mut Vec<Completion>,
        apart: &mut Vec<Completion>,
    ) {
        let mut together = TOGETHER;
        while !waiting.is_empty() {
            let later = waiting.split_off(together.min(waiting.len()));
            let mut now = std::mem::replace(&mut waiting, later);
            match self.commit(&mut now, together < TOGETHER, round, apart).await {
                Tried::Stored(committed) => {
                    let unchanged = self.unchanged(&now, &committed).await;
                    for (completion, committed) in now.into_iter().zip(committed) {
                        if unchanged.contains(&completion.settled.fence.sequence) {
                            let unplaced = self.set_apart(vec![completion], &Obstacle::Unchanged, round, apart);
                            completions.extend(unplaced.into_iter().map(held_up));
                        } else {
                            self.ended(completion, committed, round, completions, apart).await;
                        }
                    }
                }
                Tried::GivenUp => self.conclude(&mut batch_of(now), None, completions),
                Tried::Refused(error) if now.len() == 1 => {
                    completions.extend(now.into_iter().map(|one| self.not_taken(one, &error)));
                }
                Tried::HeldUp if now.len() == 1 => {
                    // The plugin's other outcomes would wait as long, and hold up everything behind them.
                    let plugin = plugin_of(&now[0]).map(str::to_owned);
                    now.extend(waiting.extract_if(.., |one| plugin.is_some() && plugin_of(one) == plugin.as_deref()));
                    tracing::warn!(
                        events = now.len(),
                        plugin,
                        "somebody else has locked what a plugin keeps or an id that it emitted; its answers are asked for again"
                    );
                    completions.extend(now.into_iter().map(held_up));
                }
                Tried::Refused(_) | Tried::HeldUp => {
                    // One of them makes the transaction fail: it is found by trying each alone.
                    together = 1;
                    now.append(&mut waiting);
                    waiting = now;
                }
            }
        }
    }

    /// Sets a single outcome apart that the database left unwritten although its event is still ours: no partition has moved.
    async fn set_unchanged_apart(&self, completions: &mut Vec<Completion>, round: Round, apart: &mut Vec<Completion>) -> bool {
        let [one] = completions.as_slice() else { return false };
        let unsettled = self.store.unsettled(std::slice::from_ref(&one.settled)).await;
        if !unsettled.inspect_err(|error| self.metrics.db_error(error)).is_ok_and(|unsettled| !unsettled.is_empty()) {
            return false;
        }
        let alone = std::mem::take(completions);
        completions.append(&mut self.set_apart(alone, &Obstacle::Unchanged, round, apart));
        completions.is_empty()
    }

    /// The `seq` of those that were dropped although their events are still ours; of all that were dropped if that cannot be asked.
    async fn unchanged(&self, completions: &[Completion], committed: &[Committed]) -> HashSet<u64> {
        let dropped = completions.iter().zip(committed).filter(|(_, committed)| matches!(committed, Committed::Fenced));
        let dropped: Vec<Settled> = dropped.map(|(completion, _)| completion.settled.clone()).collect();
        if dropped.is_empty() {
            return HashSet::new();
        }
        match self.store.unsettled(&dropped).await.inspect_err(|error| self.metrics.db_error(error)) {
            Ok(unsettled) => unsettled.into_iter().collect(),
            Err(_) => dropped.iter().map(|settled| settled.fence.sequence).collect(),
        }
    }

    /// Deals with the database's answer to one outcome.
    async fn ended(
        &self,
        mut completion: Completion,
        committed: Committed,
        round: Round,
        completions: &mut Vec<Completion>,
        apart: &mut Vec<Completion>,
    ) {
        let effects = completion.effects.take();
        match committed {
            Committed::Conflict => {
                self.metrics.state_conflicts.increment();
                // Other calls change the same value: an immediate repeat would meet them again.
                let after = Duration::from_micros(rand::rng().random_range(CONFLICT_MICROS));
                completion.settled.settlement = given_back_for(after);
                completion.settled.cost = None;
                completion.held.room = None;
                completions.push(completion);
            }
            Committed::Stored => {
                if let Some(effects) = effects {
                    self.tell_of_emitted(&effects);
                }
                completion.held.room = None;
                let mut batch = batch_of(vec![completion]);
                let mut unplaced = self.set_reverted_apart(&mut batch, round, apart).await;
                self.conclude(&mut batch, Some(0), completions);
                completions.append(&mut unplaced);
            }
            Committed::Fenced => {
                let (settled, is_answer_lost) = (completion.settled.clone(), completion.held.is_answer_lost);
                self.conclude(&mut batch_of(vec![completion]), Some(1), completions);
                // If an earlier try was committed, its emitted events are in the table.
                self.wake.now();
                let dropped = if is_answer_lost { self.unstored(std::slice::from_ref(&settled), 1).await } else { 1 };
                self.metrics.fenced_outcomes.add(dropped);
                fenced_off(dropped);
            }
        }
    }

    /// Tries the transaction until it is committed or cannot be. `is_divided` if a transaction for more outcomes failed.
    async fn commit(
        &self,
        completions: &mut Vec<Completion>,
        is_divided: bool,
        round: Round,
        apart: &mut Vec<Completion>,
    ) -> Tried {
        let Some(trying) = Trying::begin(self, round) else { return Tried::GivenUp };
        let mut trying = if is_divided { trying.of_part() } else { trying };
        let mut repeats = 0;
        loop {
            let settled: Vec<SettledWithEffects<'_>> = completions.iter().filter_map(with_effects).collect();
            let error = match self.store.settle_with_effects(&settled).await {
                Ok(committed) => {
                    self.metrics.storing.succeeded(None);
                    trying.stored(completions.len());
                    return Tried::Stored(committed);
                }
                Err(error) => error,
            };
            self.metrics.db_error(&error);
            completions.iter_mut().for_each(|one| one.held.note_failure(&error));
            let is_held_up = matches!(error, StoreError::Locked { .. } | StoreError::PartitionsMoved { .. });
            if is_held_up
                && let Ok(locked) = self.locked(completions.iter().map(|one| &one.settled)).await
                && !locked.is_empty()
            {
                let before = completions.len();
                let locked = completions.extract_if(.., |one| locked.contains(&one.settled.fence.sequence)).collect();
                completions.append(&mut self.set_apart(locked, &Obstacle::Locked, round, apart));
                if completions.len() < before {
                    continue;
                }
            }
            if matches!(error, StoreError::PartitionsMoved { .. }) && self.set_unchanged_apart(completions, round, apart).await
            {
                trying.abandoned();
                return Tried::Stored(Vec::new());
            }
            if is_held_up {
                trying.abandoned();
                return Tried::HeldUp;
            }
            repeats += 1;
            // A transaction that took too long would take as long again.
            let took_too_long = matches!(error, StoreError::TimedOut { .. }) && !self.must_give_up();
            if !error.is_transient() || ((repeats >= REPEATS || took_too_long) && completions.len() > 1) {
                trying.abandoned();
                return Tried::Refused(error);
            }
            let sequences: Vec<u64> = completions.iter().map(|one| one.settled.fence.sequence).collect();
            trying.note_failure(&sequences, &error).await;
            if trying.may_be_of_rows(&error, completions.len()) {
                // It takes too long or loses its connection again and again, and holds up all others.
                let alone = std::mem::take(completions);
                completions.append(&mut self.set_apart(alone, &Obstacle::Refused(crate::chain(&error).into()), round, apart));
                if completions.is_empty() {
                    trying.abandoned();
                    return Tried::Stored(Vec::new());
                }
            }
            if let Some(one) = completions.first() {
                trying.note_stall(&one.settled, &error).await;
            }
            if !trying.may_repeat(completions.len(), &crate::chain(&error)).await {
                return Tried::GivenUp;
            }
        }
    }

    /// Fails an event whose effects the database refused; none of the effects was written.
    fn not_taken(&self, mut completion: Completion, error: &StoreError) -> Completion {
        let error = format!("what it emitted or keeps could not be stored: {}", crate::chain(error));
        let event = completion.held.event.as_deref();
        tracing::error!(
            event.id = event.map(|event| event.id().to_string()),
            route = event.map(|event| event.route().to_string()),
            attempt = event.map(|event| event.attempt()),
            error,
            "an answer was not taken"
        );
        let settlement = self.rules.not_taken(completion.held.if_not_taken.is_last, error);
        if matches!(settlement, Settlement::Dead { .. }) {
            match event {
                Some(event) => self.metrics.routes.of(event.route()).dead.increment(),
                None => self.metrics.routes.other().dead.increment(),
            }
        }
        let cost = completion.settled.cost.take().or(completion.held.if_not_taken.cost.take());
        let cost = cost.and_then(|spent| AttemptCost::new(spent.attempt, &settlement, spent.cost));
        (completion.effects, completion.held.room) = (None, None);
        completion.settled.cost = cost.map(Box::new);
        completion.settled.settlement = settlement;
        completion
    }

    /// Counts emitted events, and wakes the pollers for them.
    fn tell_of_emitted(&self, effects: &Effects) {
        let now = system_clock().now();
        let due = |envelope: &Envelope| envelope.available_at().since(now);
        if let Some(first) = effects.emitted.iter().map(due).min() {
            self.wake.within(first);
            self.metrics.events_written.add(effects.emitted.len() as u64);
            self.notifier.notify();
        }
    }
}

/// A lock of another transaction, or partitions that changed their owners, are no failure of the listener: the event is delivered
/// again, without counting an attempt.
fn held_up(mut completion: Completion) -> Completion {
    (completion.effects, completion.held.room) = (None, None);
    completion.settled.settlement = settlement::held_up();
    completion.settled.cost = None;
    completion
}

/// The plugin whose state an answer reads or writes.
fn plugin_of(completion: &Completion) -> Option<&str> {
    Some(completion.effects.as_ref()?.state.as_ref()?.plugin.as_str())
}

fn batch_of(completions: Vec<Completion>) -> Batch {
    let mut batch = Batch::with_capacity(completions.len());
    batch.extend(completions.into_iter());
    batch
}

fn with_effects(completion: &Completion) -> Option<SettledWithEffects<'_>> {
    let settled: &Settled = &completion.settled;
    completion.effects.as_deref().map(|effects| SettledWithEffects { settled, effects })
}
