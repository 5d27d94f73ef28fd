//! Outcomes with effects: which of them can be committed, and what is then written. Pure: each database reads what is there, asks
//! [`decide`], and writes the plan, in one transaction.

use std::collections::{BTreeMap, HashMap, HashSet};

use async_trait::async_trait;
use bytes::Bytes;
use outbox_event::{Effects, Fence, Settled, StateChanges, StateUsage, StateWrite};

use super::row::Named;
use super::{NewRow, StoreError, row};

/// Writing outcomes together with their effects: the events that listeners emitted, and the state that they changed.
#[async_trait]
pub trait EffectStore: Send + Sync {
    /// Writes outcomes, each under its fence and together with its effects: for each outcome everything or nothing is written. They
    /// are taken in order, and later outcomes see the changes of state of earlier ones. Returns one answer for each, in order.
    ///
    /// # Errors
    /// [`StoreError::PartitionsMoved`] when partitions of the events got other owners again and again; the database's own. Then
    /// nothing was written, unless the answer to the commit was lost. A repeat is safe: outcomes that were written are fenced off.
    async fn settle_with_effects(&self, settled: &[SettledWithEffects<'_>]) -> Result<Vec<Committed>, StoreError>;
}

/// Repeats the transaction until no partition gets another owner between the look at the events and the writing of their outcomes;
/// the transaction returns `None` when one did. Even a second time is rare. Each time at least one of the events belongs to another
/// host from then on, so there are at most as many repeats as outcomes.
///
/// # Errors
/// The transaction's own. [`StoreError::PartitionsMoved`] after as many repeats: partitions change their owners in a way that no
/// host does. Then nothing is written, and a repeat is safe.
#[cfg(any(feature = "postgres", feature = "mysql", test))]
pub(super) async fn until_written<T, F>(
    outcomes: usize,
    action: &'static str,
    mut transaction: T,
) -> Result<Vec<Committed>, StoreError>
where
    T: FnMut() -> F,
    F: Future<Output = Result<Option<Vec<Committed>>, StoreError>>,
{
    for _ in 0..=outcomes {
        if let Some(committed) = transaction().await? {
            return Ok(committed);
        }
    }
    Err(StoreError::PartitionsMoved { action, outcomes })
}

/// An outcome and its effects.
#[derive(Clone, Copy, Debug)]
pub struct SettledWithEffects<'a> {
    /// What to write for the event, and the claim under which it is written.
    pub settled: &'a Settled,
    /// What is written in the same transaction.
    pub effects: &'a Effects,
}

/// What became of an outcome with effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Everything was written.
    Stored,
    /// Nothing was written: another host holds the event by now, or the event is finished.
    Fenced,
    /// Nothing was written: a value that the listener read has changed since, or its writes no longer fit into its plugin's quota.
    /// This host still holds the event.
    Conflict,
}

/// A plugin's row in the table of usage. It is read under a lock, so that one transaction at a time changes the plugin's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UsageRow {
    pub(super) usage: StateUsage,
    /// The last version that a value was given. No version is used twice: otherwise a value that was deleted and written again
    /// could look unchanged.
    pub(super) revision: u64,
}

impl UsageRow {
    /// Reads the row.
    pub(super) fn read(row: &impl Named) -> Result<Self, sqlx::Error> {
        Ok(Self { usage: row::state_usage(row)?, revision: row.count("revision")? })
    }

    /// The row after a deletion of this many keys and bytes, which counts as one change.
    pub(super) fn without(self, keys: u64, bytes: u64) -> Self {
        let StateUsage { keys: used_keys, bytes: used_bytes } = self.usage;
        let usage = StateUsage { keys: used_keys.saturating_sub(keys), bytes: used_bytes.saturating_sub(bytes) };
        Self { usage, revision: self.revision + 1 }
    }
}

/// A value of a plugin's state, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredValue {
    pub(super) version: u64,
    pub(super) bytes: u64,
}

impl StoredValue {
    /// Reads a row of version and bytes.
    #[cfg(any(feature = "sqlite", feature = "mysql"))]
    pub(super) fn read(row: &impl Named) -> Result<Self, sqlx::Error> {
        Ok(Self { version: row.number(0)?, bytes: row.number(1)? })
    }
}

/// A plugin and one of its keys.
pub(super) type StateKey<'a> = (&'a str, &'a str);

/// What a transaction finds before it decides.
#[derive(Debug, Default)]
pub(super) struct Found<'a> {
    /// The fences under which events are still held; the rows of these events are locked.
    pub(super) held: HashSet<Fence>,
    pub(super) used: BTreeMap<&'a str, UsageRow>,
    pub(super) present: HashMap<StateKey<'a>, StoredValue>,
}

/// What a transaction writes.
#[derive(Debug, Default)]
pub(super) struct Plan<'a> {
    /// One for each outcome, in order.
    pub(super) committed: Vec<Committed>,
    pub(super) settled: Vec<&'a Settled>,
    pub(super) emitted: Vec<NewRow<'a>>,
    /// The last write of each key: the new value and its version, or `None` for a deletion.
    pub(super) writes: BTreeMap<StateKey<'a>, Option<(&'a Bytes, u64)>>,
    /// The new usage of each plugin whose state changes.
    pub(super) used: BTreeMap<&'a str, UsageRow>,
}

/// The plugins whose state is read or written, sorted: every transaction locks them in the same order.
pub(super) fn plugins<'a>(items: &[SettledWithEffects<'a>]) -> Vec<&'a str> {
    let mut plugins: Vec<&str> = items.iter().filter_map(|item| Some(item.effects.state.as_ref()?.plugin.as_str())).collect();
    plugins.sort_unstable();
    plugins.dedup();
    plugins
}

/// The keys that are read or written, sorted.
pub(super) fn keys<'a>(items: &[SettledWithEffects<'a>]) -> Vec<StateKey<'a>> {
    let states = items.iter().filter_map(|item| item.effects.state.as_ref());
    let mut keys: Vec<StateKey<'a>> =
        states.flat_map(|state| state.keys.keys().map(|key| (state.plugin.as_str(), key.as_str()))).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Decides which outcomes are committed, in order: later outcomes see what earlier ones write.
pub(super) fn decide<'a>(items: &[SettledWithEffects<'a>], found: Found<'a>) -> Plan<'a> {
    let Found { held, mut used, mut present } = found;
    let mut plan = Plan::default();
    let mut ended = HashSet::new();
    for item in items {
        let fence = item.settled.fence;
        if !held.contains(&fence) || ended.contains(&fence.sequence) {
            plan.committed.push(Committed::Fenced);
            continue;
        }
        if let Some(state) = &item.effects.state {
            let before = used.get(state.plugin.as_str()).copied().unwrap_or_default();
            let Some(after) = usage_after(state, before, &present) else {
                plan.committed.push(Committed::Conflict);
                continue;
            };
            plan_writes(state, after.revision, &mut present, &mut plan.writes);
            if after != before {
                used.insert(&state.plugin, after);
                plan.used.insert(&state.plugin, after);
            }
        }
        // An event has one outcome. One that ended in a conflict has none yet.
        ended.insert(fence.sequence);
        plan.committed.push(Committed::Stored);
        plan.settled.push(item.settled);
        plan.emitted.extend(item.effects.emitted.iter().map(|envelope| NewRow { envelope, claimed: false }));
    }
    plan
}

/// The plugin's usage after these changes; `None` when they cannot be made.
fn usage_after(state: &StateChanges, before: UsageRow, present: &HashMap<StateKey<'_>, StoredValue>) -> Option<UsageRow> {
    let mut usage = before.usage;
    let mut writes = false;
    for (key, change) in &state.keys {
        let there = present.get(&(state.plugin.as_str(), key.as_str()));
        if change.read.is_some_and(|version| version != there.map_or(0, |there| there.version)) {
            return None;
        }
        let Some(write) = &change.write else { continue };
        writes = true;
        if let Some(there) = there {
            usage.keys = usage.keys.saturating_sub(1);
            usage.bytes = usage.bytes.saturating_sub(there.bytes);
        }
        if let StateWrite::Set(value) = write {
            usage.keys += 1;
            usage.bytes += size(key, value);
        }
    }
    state.quota.allows(before.usage, usage).then_some(UsageRow { usage, revision: before.revision + u64::from(writes) })
}

fn plan_writes<'a>(
    state: &'a StateChanges,
    version: u64,
    present: &mut HashMap<StateKey<'a>, StoredValue>,
    writes: &mut BTreeMap<StateKey<'a>, Option<(&'a Bytes, u64)>>,
) {
    for (key, change) in &state.keys {
        let at = (state.plugin.as_str(), key.as_str());
        match &change.write {
            Some(StateWrite::Set(value)) => {
                present.insert(at, StoredValue { version, bytes: size(key, value) });
                writes.insert(at, Some((value, version)));
            }
            Some(StateWrite::Delete) => {
                present.remove(&at);
                writes.insert(at, None);
            }
            None => {}
        }
    }
}

/// How many bytes of a plugin's quota a value takes.
fn size(key: &str, value: &Bytes) -> u64 {
    (key.len() + value.len()) as u64
}

#[cfg(test)]
mod tests {
    use outbox_event::{Settlement, StateChange, StateQuota};

    use super::*;

    const QUOTA: StateQuota = StateQuota { keys: 2, bytes: 20 };

    fn settled(sequence: u64) -> Settled {
        Settled::new(Fence { sequence, claim: 1 }, Settlement::Done)
    }

    fn effects(changes: &[(&str, Option<u64>, Option<&'static str>)]) -> Effects {
        let change = |(key, read, value): &(&str, Option<u64>, Option<&'static str>)| {
            let write = value.map(|value| match value {
                "" => StateWrite::Delete,
                value => StateWrite::Set(Bytes::from_static(value.as_bytes())),
            });
            ((*key).to_owned(), StateChange { read: *read, write })
        };
        let keys = changes.iter().map(change).collect();
        Effects { emitted: Vec::new(), state: Some(StateChanges { plugin: "p".to_owned(), quota: QUOTA, keys }) }
    }

    fn read(present: &[(&'static str, u64, u64)], revision: u64) -> Found<'static> {
        let usage = StateUsage { keys: present.len() as u64, bytes: present.iter().map(|(_, _, bytes)| bytes).sum() };
        Found {
            held: (1..100).map(|sequence| settled(sequence).fence).collect(),
            used: BTreeMap::from([("p", UsageRow { usage, revision })]),
            present: present
                .iter()
                .map(|(key, version, bytes)| (("p", *key), StoredValue { version: *version, bytes: *bytes }))
                .collect(),
        }
    }

    fn committed(effects: &[Effects], found: Found<'static>) -> Vec<Committed> {
        let settled: Vec<Settled> = (1..=effects.len() as u64).map(settled).collect();
        let items: Vec<_> =
            settled.iter().zip(effects).map(|(settled, effects)| SettledWithEffects { settled, effects }).collect();
        let Plan { committed, .. } = decide(&items, found);
        committed
    }

    #[test]
    fn what_was_read_must_not_have_changed() {
        use Committed::{Conflict, Stored};
        let there = || read(&[("a", 7, 3)], 7);
        assert_eq!(committed(&[effects(&[("a", Some(7), Some("x"))])], there()), [Stored]);
        assert_eq!(committed(&[effects(&[("a", Some(6), Some("x"))])], there()), [Conflict]);
        assert_eq!(committed(&[effects(&[("a", Some(0), Some("x"))])], there()), [Conflict], "read as absent");
        assert_eq!(committed(&[effects(&[("b", Some(0), Some("x"))])], there()), [Stored]);
        assert_eq!(committed(&[effects(&[("a", None, Some("x"))])], there()), [Stored], "written without a look");
        assert_eq!(committed(&[effects(&[("a", Some(6), None), ("b", None, Some("x"))])], there()), [Conflict], "only read");
        let twice = [effects(&[("a", Some(7), Some("x"))]), effects(&[("a", Some(7), Some("y"))])];
        assert_eq!(committed(&twice, there()), [Stored, Conflict], "the second did not see the first");
        let again =
            [effects(&[("a", None, Some(""))]), effects(&[("a", None, Some("x"))]), effects(&[("a", Some(7), Some("y"))])];
        assert_eq!(committed(&again, there()), [Stored, Stored, Conflict], "removed and written again is not unchanged");
    }

    #[test]
    fn a_plugin_stays_within_its_quota_and_may_always_shrink() {
        use Committed::{Conflict, Stored};
        let full = || read(&[("a", 1, 10), ("b", 2, 10)], 2);
        assert_eq!(committed(&[effects(&[("c", None, Some("x"))])], full()), [Conflict]);
        assert_eq!(committed(&[effects(&[("a", None, Some("")), ("c", None, Some("x"))])], full()), [Stored]);
        let over = || read(&[("a", 1, 10), ("b", 2, 10), ("c", 3, 10)], 3);
        assert_eq!(committed(&[effects(&[("a", None, Some("x"))])], over()), [Stored], "smaller than before");
        assert_eq!(committed(&[effects(&[("a", None, Some("0123456789"))])], over()), [Conflict]);
        assert_eq!(committed(&[effects(&[("a", None, Some(""))])], over()), [Stored]);
    }

    #[test]
    fn a_delete_takes_from_the_usage_and_counts_as_one_change() {
        let used = |keys, bytes, revision| UsageRow { usage: StateUsage { keys, bytes }, revision };
        assert_eq!(used(3, 30, 7).without(2, 25), used(1, 5, 8));
        assert_eq!(used(3, 30, 7).without(4, 40), used(0, 0, 8), "a count that was too low stays at zero");
    }

    #[tokio::test]
    async fn a_transaction_is_repeated_until_no_partition_is_lost_in_the_middle_of_it() {
        let lost_first = async |lost: usize, outcomes: usize| {
            let mut tries = 0;
            let written = until_written(outcomes, "store", || {
                tries += 1;
                std::future::ready(Ok((tries > lost).then(|| vec![Committed::Fenced; outcomes])))
            });
            written.await
        };
        assert_eq!(lost_first(5, 5).await.expect("each of five may be lost by itself"), [Committed::Fenced; 5]);
        assert_eq!(lost_first(1, 1).await.expect("it is lost"), [Committed::Fenced]);
        let error = lost_first(2, 1).await.expect_err("it is lost once");
        assert!(matches!(error, StoreError::PartitionsMoved { outcomes: 1, .. }), "{error:?}");
        assert!(error.is_transient(), "the listener is not to blame: {error}");
    }

    #[test]
    fn an_outcome_without_its_claim_writes_nothing_and_an_event_has_one() {
        let wrong = effects(&[("a", Some(7), Some("y"))]);
        let (settled, effects) = (settled(1), effects(&[("a", None, Some("x"))]));
        let item = SettledWithEffects { settled: &settled, effects: &effects };
        let plan = decide(&[item, item], Found { held: HashSet::from([settled.fence]), ..read(&[], 0) });
        assert_eq!(plan.committed, [Committed::Stored, Committed::Fenced]);
        assert_eq!((plan.settled.len(), plan.used["p"].revision), (1, 1));
        let plan = decide(&[item], Found::default());
        assert_eq!((plan.committed, plan.writes.len(), plan.settled.len()), (vec![Committed::Fenced], 0, 0));

        let conflict = SettledWithEffects { settled: &settled, effects: &wrong };
        let plan = decide(&[conflict, item], Found { held: HashSet::from([settled.fence]), ..read(&[], 0) });
        assert_eq!(plan.committed, [Committed::Conflict, Committed::Stored], "the event was held still");

        let lost = Settled::new(Fence { claim: 0, ..settled.fence }, Settlement::Done);
        let late = SettledWithEffects { settled: &lost, effects: &effects };
        let plan = decide(&[late, item], Found { held: HashSet::from([settled.fence]), ..read(&[], 0) });
        assert_eq!(plan.committed, [Committed::Fenced, Committed::Stored], "of the same event, under another claim");
    }
}
