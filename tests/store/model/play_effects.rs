//! Steps that settle events with their effects, and those that read or delete what plugins keep.

use std::collections::BTreeMap;

use bytes::Bytes;
use outbox::event::{Effects, StateChange, StateChanges, StateQuota, StateValue, StateWrite};
use outbox::store::{Committed, EffectStore, NewRow, Ownership, Record, Settled, SettledWithEffects, StateRecord, StateStore};
use outbox::{Envelope, EventId};
use support::Database;

use super::compare::agree;
use super::late::Late;
use super::parts::{NewEvent, ReadChoice, StateWork, ValueWrite, WithEffects, span};
use super::play::{Player, audit, envelope, round, said};
use super::play_hold::cost;
use super::step::Step;
use super::table::{Fault, Uncommitted};

/// Names that differ in one bit, which no database may take for one.
pub(super) const PLUGINS: [&str; 2] = ["mailer", "Mailer"];
/// The second begins with the first, and no collation may take the third for it.
pub(super) const KEYS: [&str; 3] = ["a", "ab", "ä"];
/// A type of events and a key that the databases of these traces refuse: then nothing of the whole call has happened.
const REFUSED_TYPE: &str = "Refused";
const REFUSED_KEY: &str = "refused";

/// What makes a database refuse them.
pub(super) fn refusals(kind: &str) -> &'static str {
    if kind == "sqlite" {
        "CREATE TRIGGER refused_event BEFORE INSERT ON outbox_event WHEN NEW.event_type = 'Refused'
         BEGIN SELECT RAISE(ABORT, 'refused'); END;
         CREATE TRIGGER refused_value BEFORE INSERT ON outbox_event_state WHEN NEW.name = 'refused'
         BEGIN SELECT RAISE(ABORT, 'refused'); END"
    } else {
        "ALTER TABLE outbox_event ADD CONSTRAINT refused_event CHECK (event_type <> 'Refused');
         ALTER TABLE outbox_event_state ADD CONSTRAINT refused_value CHECK (name <> 'refused')"
    }
}

/// What one listener did, by the database's clock and by the table's.
struct Done {
    settled: Settled,
    theirs: Effects,
    ours: Effects,
}

impl<D: Database> Player<'_, D> {
    pub(super) async fn keep(&mut self, step: &Step) -> Result<(), Fault> {
        let who = audit(true);
        match step {
            Step::SettleWithEffects { items } => return self.settle_with_effects(items).await,
            Step::ReadState { plugin, key } => return self.read_state(PLUGINS[*plugin], KEYS[*key]).await,
            Step::DeleteState { plugin, key } => {
                let (plugin, key) = (PLUGINS[*plugin], KEYS[*key]);
                self.tick().await;
                let deleted = said("delete_state", self.store.delete_state(plugin, key, &who).await)?;
                agree("deleted", self.table.delete_state(plugin, key, &who), deleted)?;
            }
            Step::DeleteAllState { plugin, limit } => {
                let plugin = PLUGINS[*plugin];
                self.tick().await;
                let deleted = said("delete_all_state", self.store.delete_all_state(plugin, *limit, &who).await)?;
                agree("deleted", self.table.delete_all_state(plugin, *limit, &who), deleted)?;
            }
            other => return Err(format!("{other:?} keeps nothing")),
        }
        self.agree_state().await
    }

    async fn settle_with_effects(&mut self, items: &[WithEffects]) -> Result<(), Fault> {
        let done = self.done(items).await;
        self.tick().await;
        let by = |effects: fn(&Done) -> &Effects| -> Vec<SettledWithEffects<'_>> {
            done.iter().map(|done| SettledWithEffects { settled: &done.settled, effects: effects(done) }).collect()
        };
        let before = self.table.clone();
        let (expected, emitted) = self.table.settle_with_effects(&by(|done| &done.ours));
        let answer = self.store.settle_with_effects(&by(|done| &done.theirs)).await;
        if done.iter().zip(&expected).any(|(done, became)| *became == Committed::Stored && is_refused(&done.ours)) {
            self.table = before;
            agree("whether the database took what it refuses", false, answer.is_ok())?;
        } else {
            let became = said("settle_with_effects", answer)?;
            for (done, became) in done.iter().zip(&became) {
                if *became == Committed::Stored {
                    self.watch.stored(done.settled.fence)?;
                }
            }
            agree("what became of the outcomes", expected, became)?;
            self.emitted(&emitted).await?;
        }
        self.agree_state().await
    }

    /// Takes over the follow-up events under the numbers that the database gave them.
    async fn emitted(&mut self, emitted: &[&Envelope]) -> Result<(), Fault> {
        let rows = self.list().await?;
        let mut left: BTreeMap<EventId, u64> = rows.iter().map(|row: &Record| (row.event_id, row.seq)).collect();
        // One that was there before, or twice among these, gets no number.
        let mut number = |id: EventId| if self.table.has(id) { None } else { left.remove(&id) };
        let numbers: Vec<Option<u64>> = emitted.iter().map(|envelope| number(envelope.id())).collect();
        let new: Vec<NewRow<'_>> = emitted.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
        let ownership = Ownership { owner: self.owner(0), lease: span(0) };
        let mut transaction = Uncommitted::new();
        self.table.insert(&mut transaction, &new, &ownership, &numbers)?;
        self.commit(transaction).await
    }

    async fn done(&mut self, items: &[WithEffects]) -> Vec<Done> {
        let (theirs, ours) = self.clocks().await;
        let fences: Vec<_> = items.iter().map(|item| self.fence(item.fence)).collect();
        let mut known = self.repeatable();
        if self.late.iter().any(Late::is_open) {
            // One of these may be erased by this call: see `repeatable`.
            let settled = |id: &EventId| {
                self.table.rows.values().any(|row| row.event_id == *id && fences.iter().any(|fence| fence.sequence == row.seq))
            };
            known.retain(|id| !settled(id));
        }
        let mut done = Vec::with_capacity(items.len());
        for (item, fence) in items.iter().zip(fences) {
            let settlement = self.settlement(fence, &item.outcome);
            let events = self.named_among(&item.emitted, &mut known);
            let refused = if item.emits_refused { self.named_among(&[NewEvent::plain()], &mut Vec::new()) } else { Vec::new() };
            let state = item.state.as_ref().map(|work| self.changes(work));
            let effects = |now| {
                let events = events.iter().map(|(id, event)| envelope(*id, event, now));
                let refused = refused
                    .iter()
                    .map(|(id, _)| Envelope::new(REFUSED_TYPE).now(now).id(*id).json(&1).expect("a good envelope"));
                Effects { emitted: events.chain(refused).collect(), state: state.clone() }
            };
            let (theirs, ours) = (effects(theirs), effects(ours));
            let cost = cost(fence, &settlement).map(Box::new);
            done.push(Done { settled: Settled { cost, ..Settled::new(fence, settlement) }, theirs, ours });
        }
        done
    }

    fn changes(&self, work: &StateWork) -> StateChanges {
        let plugin = PLUGINS[work.plugin];
        let state = self.table.state_of(plugin);
        let value = |bytes: usize| {
            // Bytes of every kind.
            Bytes::from((0..bytes).map(|at| u8::try_from(at * 37 % 256).expect("below 256")).collect::<Vec<u8>>())
        };
        let mut keys: BTreeMap<String, StateChange> = BTreeMap::new();
        for one in &work.keys {
            let key = KEYS[one.key];
            let read = one.read.map(|read| match read {
                ReadChoice::Now => state.version(key),
                ReadChoice::Nothing => 0,
                ReadChoice::Earlier(number) => {
                    let seen = self.seen.get(&(plugin, key)).map(Vec::as_slice).unwrap_or_default();
                    round(seen, number).copied().unwrap_or(state.changes + 7)
                }
            });
            let write = one.write.map(|write| match write {
                ValueWrite::Set(bytes) => StateWrite::Set(value(bytes)),
                ValueWrite::Delete => StateWrite::Delete,
            });
            keys.insert(key.to_owned(), StateChange { read, write });
        }
        if work.writes_refused {
            let write = Some(StateWrite::Set(Bytes::new()));
            keys.insert(REFUSED_KEY.to_owned(), StateChange { read: None, write });
        }
        let (max_keys, max_bytes) = work.quota;
        StateChanges { plugin: plugin.to_owned(), quota: StateQuota { keys: max_keys, bytes: max_bytes }, keys }
    }

    /// As a call reads it.
    async fn read_state(&mut self, plugin: &'static str, key: &'static str) -> Result<(), Fault> {
        let expected = self.table.state_of(plugin).values.remove(key);
        let expected = expected.map(|kept| StateValue { version: kept.version, value: kept.value });
        let found = said("state", self.store.state(plugin, key).await)?;
        self.seen.entry((plugin, key)).or_default().push(found.as_ref().map_or(0, |found| found.version));
        agree("a value of a plugin's state", expected, found)?;
        let usage = said("state_usage", self.store.state_usage(plugin).await)?;
        agree("how much a plugin keeps", self.table.state_usage(plugin), usage)
    }

    /// An error when what plugins keep is not what the table says.
    pub(super) async fn agree_state(&mut self) -> Result<(), Fault> {
        let usages = said("state_usages", self.store.state_usages(None, 100).await)?;
        agree("how much plugins keep", self.table.state_usages(), usages)?;
        for plugin in PLUGINS {
            let listed = said("list_state", self.store.list_state(plugin, "", None, 100).await)?;
            let keys: Vec<String> = listed.iter().map(|record| record.key.clone()).collect();
            agree("the keys of a plugin", self.table.state_keys(plugin, "", None, 100), keys)?;
            for listed in listed {
                let found = said("get_state", self.store.get_state(plugin, &listed.key).await)?;
                let found = found.ok_or_else(|| format!("{} of {plugin} is listed and not there", listed.key))?;
                agree("a listed value", StateRecord { value: None, ..found.clone() }, listed)?;
                let mut found = found;
                let expected = self.table.get_state(plugin, &found.key).ok_or("it was expected above")?;
                self.times.settle(expected.updated_at, &mut found.updated_at);
                agree("a value with all that is known of it", expected, found)?;
            }
        }
        Ok(())
    }

    /// Each way to list what plugins keep.
    pub(super) async fn look_at_state(&mut self, number: usize) -> Result<(), Fault> {
        self.agree_state().await?;
        let (plugin, key) = (PLUGINS[number % PLUGINS.len()], KEYS[number % KEYS.len()]);
        for (prefix, after, limit) in [(key, None, 100), ("", Some(key), 100), ("a", Some("a"), 1), ("", None, 1)] {
            let listed = said("list_state", self.store.list_state(plugin, prefix, after, limit).await)?;
            let keys: Vec<String> = listed.into_iter().map(|record| record.key).collect();
            agree("the chosen keys of a plugin", self.table.state_keys(plugin, prefix, after, limit), keys)?;
        }
        let after = said("state_usages", self.store.state_usages(Some(PLUGINS[1]), 1).await)?;
        let expected = self.table.state_usages().into_iter().filter(|used| used.plugin.as_str() > PLUGINS[1]).take(1);
        agree("the plugins after one", expected.collect(), after)
    }
}

/// Whether the database refuses any of it.
fn is_refused(effects: &Effects) -> bool {
    effects.emitted.iter().any(|envelope| envelope.event_type().as_str() == REFUSED_TYPE)
        || effects.state.as_ref().is_some_and(|state| state.keys.contains_key(REFUSED_KEY))
}
