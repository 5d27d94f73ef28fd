//! The events that others wait behind in the table, as far as this process knows of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::queue::Key;
use crate::refusals::Refusals;
use crate::store::Unblocked;

/// Most blockers looked at by one statement.
const BATCH: usize = 1_000;
/// How soon a blocker is looked at again after some were let go from behind it, unless their queue ends sooner; and how often
/// the blockers are looked at of which nothing was heard.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Most blockers kept in mind. Those that were looked at and still block are forgotten first: they are learned from the table
/// again, in turns.
const MOST: usize = 20_000;

/// Events that others wait behind.
#[derive(Debug, Default)]
pub(super) struct Blockers {
    all: BTreeSet<u64>,
    /// Those that may be out of the way, with the time when some were let go from behind them.
    open: BTreeMap<u64, Option<Instant>>,
    /// The aggregate of each, where that is known.
    keys: HashMap<u64, Key>,
    by_key: HashMap<Key, BTreeSet<u64>>,
    /// When the others were looked at last, and where that look ended.
    looked_at: Option<Instant>,
    looked_until: u64,
    /// Those that something was set aside behind since the latest statement began: it may not have seen that.
    touched: BTreeSet<u64>,
    /// The blockers behind which the database refuses to unblock an event.
    refused: Refusals<u64>,
}

impl Blockers {
    /// Whether those learned before have been looked at, so that others can be learned.
    pub(super) fn has_room_to_learn(&self) -> bool {
        self.open.len() < BATCH
    }

    /// Learns of an event that others wait behind, with its aggregate when that can be read. One that was not known may be out
    /// of the way already, so it is looked at soon; true then.
    pub(super) fn learn(&mut self, blocker: u64, key: Option<Key>) -> bool {
        let is_new = !self.all.contains(&blocker);
        match key {
            Some(key) => self.insert(blocker, key),
            None => self.remember(blocker),
        }
        if is_new {
            self.open.entry(blocker).or_insert(None);
        }
        is_new
    }

    fn remember(&mut self, blocker: u64) {
        self.all.insert(blocker);
        if self.all.len() > MOST {
            let is_idle = |known: &&u64| **known != blocker && !self.open.contains_key(known) && !self.touched.contains(known);
            if let Some(idle) = self.all.iter().find(is_idle).copied() {
                self.forget(idle);
            }
        }
    }

    fn forget(&mut self, blocker: u64) {
        self.all.remove(&blocker);
        if let Some(key) = self.keys.remove(&blocker)
            && let Some(others) = self.by_key.get_mut(&key)
        {
            others.remove(&blocker);
            if others.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }

    /// Remembers one with its aggregate.
    pub(super) fn insert(&mut self, blocker: u64, key: Key) {
        self.remember(blocker);
        self.by_key.entry(key.clone()).or_default().insert(blocker);
        self.keys.insert(blocker, key);
    }

    /// Notes that an event of this aggregate was set aside behind one; it may be out of the way already when it is not `held`
    /// by this process. A look at the table that came too early may have forgotten it meanwhile.
    pub(super) fn touch(&mut self, blocker: u64, key: Option<Key>, held: bool) {
        self.touched.insert(blocker);
        match key {
            Some(key) => self.insert(blocker, key),
            None => self.remember(blocker),
        }
        if !held {
            self.open.entry(blocker).or_insert(None);
        }
    }

    /// Opens those of an aggregate, whose queue in this process's hands has ended. False when there are none.
    pub(super) fn queue_ended(&mut self, key: &Key) -> bool {
        let Some(blockers) = self.by_key.get(key) else { return false };
        self.open.extend(blockers.iter().map(|blocker| (*blocker, None)));
        true
    }

    /// The blockers to look at now: open ones, and when `all` is asked for or it is time, a part of the others. Left out are
    /// those that are `held_up`: an event let go from behind one of these would be set aside again at once. So are those that rest
    /// because the database refused to unblock an event behind them.
    pub(super) fn candidates(&mut self, all: bool, held_up: impl Fn(&Key, u64) -> bool) -> Vec<u64> {
        self.touched.clear();
        let resting: BTreeSet<u64> = self.refused.resting(Instant::now()).into_iter().collect();
        let is_due = |let_go_at: &Option<Instant>| let_go_at.is_none_or(|at| at.elapsed() >= LOOK_AGAIN);
        let is_free =
            |blocker: &u64| !resting.contains(blocker) && self.keys.get(blocker).is_none_or(|key| !held_up(key, *blocker));
        let open = self.open.iter().filter(|(blocker, let_go_at)| is_due(let_go_at) && is_free(blocker));
        let mut candidates: Vec<u64> = open.map(|(blocker, _)| *blocker).take(BATCH).collect();
        if all || self.looked_at.is_none_or(|at| at.elapsed() >= LOOK_AGAIN) {
            let room = BATCH - candidates.len();
            let others =
                self.all.range(self.looked_until + 1..).filter(|blocker| !self.open.contains_key(blocker) && is_free(blocker));
            let others: Vec<u64> = others.take(room).copied().collect();
            self.looked_until = if others.len() < room { 0 } else { others.last().copied().unwrap_or(0) };
            self.looked_at = Some(Instant::now());
            candidates.extend(others);
        }
        candidates
    }

    /// Lets a blocker rest behind which the database refused to unblock an event. Returns whether it is new among those that rest.
    pub(super) fn refuse(&mut self, blocker: u64, now: Instant) -> bool {
        self.refused.refuse(blocker, now)
    }

    /// How long until the first of those that rest is looked at again. `None` if none rests.
    pub(super) fn next_retry(&self, now: Instant) -> Option<Duration> {
        self.refused.next_retry(now)
    }

    /// Notes that the database has refused to unblock no event behind these.
    pub(super) fn accepted(&mut self, blockers: &[u64]) {
        self.refused.accepted(blockers.iter().copied());
    }

    /// Notes what became of the candidates. True when some are open still.
    pub(super) fn note(&mut self, candidates: &[u64], unblocked: &Unblocked) -> bool {
        for candidate in candidates {
            // Those that still wait for somebody are opened again when that one is out of the way.
            if !self.touched.contains(candidate) {
                self.open.remove(candidate);
            }
        }
        for blocker in &unblocked.cleared {
            if !self.touched.contains(blocker) {
                self.forget(*blocker);
            }
        }
        self.open.extend(unblocked.left.iter().map(|blocker| (*blocker, Some(Instant::now()))));
        !self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str) -> Key {
        ("Order".parse().expect("good"), id.into())
    }

    #[test]
    fn all_blockers_are_looked_at_in_turns() {
        let mut blockers = Blockers::default();
        (1..=2_500).for_each(|blocker| blockers.insert(blocker, key("42")));
        let parts: Vec<usize> = (0..4).map(|_| blockers.candidates(true, |_, _| false).len()).collect();
        assert_eq!(parts, [1_000, 1_000, 500, 1_000]);
        assert!(blockers.candidates(false, |_, _| false).is_empty());
    }

    #[test]
    fn a_blocker_is_looked_at_when_its_queue_has_ended_and_not_while_it_is_in_our_hands() {
        let mut blockers = Blockers::default();
        blockers.insert(1, key("42"));
        blockers.candidates(true, |_, _| true);
        assert!(!blockers.queue_ended(&key("7")));
        assert!(blockers.queue_ended(&key("42")));

        assert!(blockers.candidates(false, |_, _| true).is_empty());
        assert_eq!(blockers.candidates(false, |_, _| false), [1]);
        assert!(blockers.note(&[1], &Unblocked { cleared: vec![], left: vec![1] }));

        assert!(blockers.candidates(false, |_, _| false).is_empty(), "some were let go: they come first");
        blockers.queue_ended(&key("42"));
        assert_eq!(blockers.candidates(false, |_, _| false), [1]);
        assert!(!blockers.note(&[1], &Unblocked { cleared: vec![1], left: vec![] }));
        assert!(!blockers.queue_ended(&key("42")), "it is forgotten");
    }

    #[test]
    fn while_its_queue_is_in_our_hands_a_blocker_is_not_looked_at_though_all_are() {
        let mut blockers = Blockers::default();
        blockers.insert(1, key("42"));
        blockers.insert(2, key("7"));
        assert_eq!(blockers.candidates(true, |in_hands, _| *in_hands == key("42")), [2]);
        assert_eq!(blockers.candidates(true, |_, _| false), [1, 2]);
    }

    #[test]
    fn a_blocker_rests_after_a_refusal_and_is_looked_at_again_after_it() {
        let (mut blockers, now) = (Blockers::default(), Instant::now());
        blockers.learn(1, Some(key("42")));
        blockers.learn(2, None);
        assert_eq!(blockers.candidates(true, |_, _| false), [1, 2]);

        assert!(!blockers.note(&[1, 2], &Unblocked { cleared: vec![2], left: vec![] }));
        assert!(blockers.refuse(1, now), "it is logged once");
        assert!(blockers.candidates(true, |_, _| false).is_empty(), "it rests");
        assert!(blockers.next_retry(now).is_some());
        assert!(!blockers.refuse(1, now));

        blockers.accepted(&[1]);
        assert_eq!(blockers.next_retry(now), None);
        assert_eq!(blockers.candidates(true, |_, _| false), [1]);
    }

    #[test]
    fn what_is_learned_is_looked_at_soon_and_once() {
        let mut blockers = Blockers::default();
        blockers.candidates(true, |_, _| false);
        assert!(blockers.learn(1, Some(key("42"))) && blockers.learn(2, None));
        assert_eq!(blockers.candidates(false, |_, _| false), [1, 2]);
        assert!(!blockers.note(&[1, 2], &Unblocked::default()), "both still block");
        assert!(!blockers.learn(1, Some(key("42"))), "it is known");
        assert!(blockers.candidates(false, |_, _| false).is_empty());
    }

    #[test]
    fn any_number_of_blockers_is_learned_in_turns_and_few_are_kept_in_mind() {
        let mut blockers = Blockers::default();
        let all: Vec<u64> = (1..=50_000).collect();
        let mut looked_at = BTreeSet::new();
        for page in all.chunks(1_000) {
            assert!(blockers.has_room_to_learn());
            for blocker in page {
                blockers.learn(*blocker, Some(key(&blocker.to_string())));
            }
            while !blockers.has_room_to_learn() {
                let candidates = blockers.candidates(false, |_, _| false);
                looked_at.extend(candidates.iter().copied());
                blockers.note(&candidates, &Unblocked::default());
            }
        }
        assert_eq!(looked_at.len(), all.len(), "each was looked at");
        let kept = (blockers.all.len(), blockers.keys.len(), blockers.by_key.len());
        assert_eq!(kept, (MOST, MOST, MOST));
    }

    #[test]
    fn what_was_forgotten_before_it_was_stored_is_opened_when_its_queue_ends() {
        let mut blockers = Blockers::default();
        blockers.insert(1, key("42"));
        let candidates = blockers.candidates(true, |_, _| false);
        blockers.note(&candidates, &Unblocked { cleared: vec![1], left: vec![] });
        blockers.touch(1, Some(key("42")), true);
        assert!(blockers.queue_ended(&key("42")));
    }

    #[test]
    fn what_is_set_aside_while_the_table_is_asked_is_not_forgotten() {
        let mut blockers = Blockers::default();
        blockers.insert(1, key("42"));
        assert_eq!(blockers.candidates(true, |_, _| false), [1]);
        blockers.touch(1, Some(key("42")), false);
        assert!(blockers.note(&[1], &Unblocked { cleared: vec![1], left: vec![] }));
        assert_eq!(blockers.candidates(false, |_, _| false), [1]);
    }
}
