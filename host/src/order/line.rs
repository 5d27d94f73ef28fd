//! Which claimed events may start, and which wait in the table behind others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::OrderConfig;
use super::config::resolves;
use crate::queue::{Admission, Delivery, Key, LINE_CAPACITY, Lines, Turn};
use crate::store::{Settlement, Store, StoreError, WaitsFor};

/// Most events let go by one statement, and most blockers looked at.
const BATCH: usize = 1_000;

/// Order by aggregate, as this process keeps it.
#[derive(Debug)]
pub(crate) struct Order {
    waits_for: WaitsFor,
    lines: Arc<Lines>,
    blockers: Mutex<Blockers>,
}

/// The events that others wait behind in the table.
#[derive(Debug, Default)]
struct Blockers {
    all: BTreeSet<u64>,
    /// Those that may be out of the way, with their aggregate when this process saw them resolved: the others are looked at now
    /// and then.
    open: BTreeMap<u64, Option<Key>>,
    /// Where the last look at the others ended.
    looked_until: u64,
    /// Those that something was set aside behind since the latest statement began: it may not have seen that.
    touched: BTreeSet<u64>,
}

/// What becomes of a claimed event.
#[derive(Debug)]
pub(crate) enum Place {
    /// It may start.
    Start(Delivery),
    /// It waits in this process's hands.
    Waits,
    /// It is to be set aside behind this one, which is in this process's hands.
    Behind(Delivery, u64),
    /// It is to be set aside behind others that are not in this process's hands, of which this is the last.
    BehindOthers(Delivery, u64),
}

/// What follows the end of a turn.
#[derive(Debug)]
pub(crate) struct Next {
    /// Whose turn it is.
    pub(crate) start: Option<Delivery>,
    /// Those to be set aside, with this settlement.
    pub(crate) aside: Vec<(Delivery, Settlement)>,
    /// Whether events in the table may go on.
    pub(crate) opens: bool,
}

impl Order {
    pub(crate) fn new(config: OrderConfig) -> Self {
        Self { waits_for: config.waits_for(), lines: Arc::default(), blockers: Mutex::default() }
    }

    pub(crate) fn waits_for(&self) -> WaitsFor {
        self.waits_for
    }

    /// The lines in this process's hands.
    pub(crate) fn lines(&self) -> &Arc<Lines> {
        &self.lines
    }

    /// Gives a claimed event its place. Events must come in the order of their `seq`.
    pub(crate) fn place(&self, delivery: Delivery, behind: Option<u64>) -> Place {
        match self.lines.admit(delivery, behind) {
            Admission::Start(delivery) => Place::Start(delivery),
            Admission::Waits => Place::Waits,
            // Behind all that is in our hands: when that is done, and not before, it is its turn to be claimed again.
            Admission::Behind(delivery, last) => Place::Behind(delivery, last),
            Admission::Elsewhere(delivery, nearest) => Place::BehindOthers(delivery, nearest),
        }
    }

    /// The settlement that sets an event aside behind another.
    pub(crate) fn behind(&self, sequence: u64) -> Settlement {
        self.lock().all.insert(sequence);
        Settlement::Behind { sequence }
    }

    /// Ends a turn with what became of its event, once that is stored; `None` when it is not known.
    pub(crate) fn end(&self, turn: Turn, settlement: Option<&Settlement>) -> Next {
        let (sequence, key) = (turn.sequence(), turn.key().clone());
        let resolved = settlement.is_some_and(|settlement| resolves(settlement, self.waits_for));
        let after = turn.end(resolved);
        let mut blockers = self.lock();
        if !after.behind.is_empty() {
            blockers.all.insert(sequence);
        }
        if resolved && blockers.all.contains(&sequence) {
            blockers.open.insert(sequence, Some(key.clone()));
        }
        // What is left behind an open blocker waits for room in the line of its aggregate.
        let opens = after.next.is_none() && blockers.open.values().flatten().any(|open| *open == key);
        drop(blockers);
        let aside = after.behind.into_iter().map(|delivery| (delivery, Settlement::Behind { sequence })).collect();
        Next { start: after.next, aside, opens }
    }

    /// Notes that an event was set aside in the table. Its blocker may have been resolved just before.
    pub(crate) fn set_aside(&self, sequence: u64) {
        let held = self.lines.holds(sequence);
        let mut blockers = self.lock();
        blockers.all.insert(sequence);
        blockers.touched.insert(sequence);
        if !held {
            blockers.open.entry(sequence).or_insert(None);
        }
    }

    /// Remembers events that others wait behind.
    pub(crate) fn learn(&self, blockers: impl IntoIterator<Item = u64>) {
        self.lock().all.extend(blockers);
    }

    /// Lets events in the table go whose blocker is out of the way. Those that may be are looked at always, the others when
    /// `all` is asked for, a part of them each time.
    pub(crate) async fn unblock(&self, store: &dyn Store, all: bool) -> Result<(), StoreError> {
        let candidates = self.candidates(all);
        if candidates.is_empty() {
            return Ok(());
        }
        // No more than their lines have room for.
        let limit = u32::try_from((candidates.len() * LINE_CAPACITY).min(BATCH)).expect("a small number");
        let cleared = store.unblock(&candidates, self.waits_for, limit).await?;
        let mut blockers = self.lock();
        for blocker in &cleared {
            if !blockers.touched.contains(blocker) {
                blockers.all.remove(blocker);
                blockers.open.remove(blocker);
            }
        }
        Ok(())
    }

    fn candidates(&self, all: bool) -> Vec<u64> {
        let mut blockers = self.lock();
        blockers.touched.clear();
        let free = |key: &Option<Key>| key.as_ref().is_none_or(|key| !self.lines.has(key));
        let mut candidates: Vec<u64> =
            blockers.open.iter().filter(|(_, key)| free(key)).map(|(blocker, _)| *blocker).take(BATCH).collect();
        // Those that only may be resolved are tried once.
        for candidate in &candidates {
            if blockers.open.get(candidate).is_some_and(Option::is_none) {
                blockers.open.remove(candidate);
            }
        }
        if all {
            let room = BATCH - candidates.len();
            let others: Vec<u64> = blockers
                .all
                .range(blockers.looked_until + 1..)
                .filter(|blocker| !blockers.open.contains_key(blocker))
                .take(room)
                .copied()
                .collect();
            blockers.looked_until = if others.len() < room { 0 } else { others.last().copied().unwrap_or(0) };
            candidates.extend(others);
        }
        candidates
    }

    fn lock(&self) -> MutexGuard<'_, Blockers> {
        self.blockers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_blockers_are_looked_at_in_turns() {
        let order = Order::new(OrderConfig::default());
        order.learn(1..=2_500);
        let parts: Vec<usize> = (0..4).map(|_| order.candidates(true).len()).collect();
        assert_eq!(parts, [1_000, 1_000, 500, 1_000]);
        assert!(order.candidates(false).is_empty());
    }
}
