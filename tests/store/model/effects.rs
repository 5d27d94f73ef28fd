//! What outcomes with effects do: follow-up events and what plugins keep.

use std::collections::BTreeMap;

use bytes::Bytes;
use outbox::Envelope;
use outbox::event::{StateChanges, StateUsage, StateWrite};
use outbox::store::{Audit, Committed, PluginUsage, SettledWithEffects, StateRecord};
use outbox::time::Timestamp;
use serde_json::json;

use super::table::Table;

/// A value that a plugin keeps.
#[derive(Clone, Debug)]
pub(super) struct KeptValue {
    /// The number of the change, among all of its plugin, that has written it.
    pub(super) version: u64,
    pub(super) value: Bytes,
    pub(super) updated_at: Timestamp,
}

/// What one plugin keeps.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    pub(super) values: BTreeMap<String, KeptValue>,
    /// How often it was changed. It never goes back, whatever is deleted.
    pub(super) changes: u64,
}

impl Values {
    /// Counted anew from what is there.
    fn usage(&self) -> StateUsage {
        let bytes = self.values.iter().map(|(key, kept)| (key.len() + kept.value.len()) as u64);
        StateUsage { keys: self.values.len() as u64, bytes: bytes.sum() }
    }

    pub(super) fn version(&self, key: &str) -> u64 {
        self.values.get(key).map_or(0, |kept| kept.version)
    }

    /// As a call has left it; `None` when something that it read is different now, or it grows beyond its quota.
    fn changed(&self, changes: &StateChanges, now: Timestamp) -> Option<Self> {
        if changes.keys.iter().any(|(key, change)| change.read.is_some_and(|read| read != self.version(key))) {
            return None;
        }
        let mut after = self.clone();
        let writes: Vec<_> = changes.keys.iter().filter_map(|(key, change)| Some((key, change.write.as_ref()?))).collect();
        after.changes += u64::from(!writes.is_empty());
        for (key, write) in writes {
            match write {
                StateWrite::Set(value) => {
                    let kept = KeptValue { version: after.changes, value: value.clone(), updated_at: now };
                    after.values.insert(key.clone(), kept);
                }
                StateWrite::Delete => {
                    after.values.remove(key);
                }
            }
        }
        let (used, uses) = (self.usage(), after.usage());
        let too_many = uses.keys > changes.quota.keys && uses.keys > used.keys;
        let too_large = uses.bytes > changes.quota.bytes && uses.bytes > used.bytes;
        (!too_many && !too_large).then_some(after)
    }
}

impl Table {
    /// Writes outcomes in order: each whole or not at all. The follow-up events of those that are stored come back, in order:
    /// they are inserted in the same transaction, and the database chooses their numbers.
    pub(super) fn settle_with_effects<'a>(&mut self, items: &[SettledWithEffects<'a>]) -> (Vec<Committed>, Vec<&'a Envelope>) {
        let mut emitted = Vec::new();
        let mut committed = Vec::new();
        for item in items {
            let became = self.settle_whole(item);
            if became == Committed::Stored {
                emitted.extend(&item.effects.emitted);
            }
            committed.push(became);
        }
        (committed, emitted)
    }

    fn settle_whole(&mut self, item: &SettledWithEffects<'_>) -> Committed {
        if self.held(item.settled.fence).is_none() {
            return Committed::Fenced;
        }
        if let Some(changes) = &item.effects.state {
            let Some(after) = self.state_of(&changes.plugin).changed(changes, self.now) else { return Committed::Conflict };
            self.kept.insert(changes.plugin.clone(), after);
        }
        self.settle_one(item.settled);
        Committed::Stored
    }

    pub(super) fn state_of(&self, plugin: &str) -> Values {
        self.kept.get(plugin).cloned().unwrap_or_default()
    }

    pub(super) fn state_usage(&self, plugin: &str) -> StateUsage {
        self.state_of(plugin).usage()
    }

    /// The plugins that keep something, by name.
    pub(super) fn state_usages(&self) -> Vec<PluginUsage> {
        let used = |(plugin, state): (&String, &Values)| PluginUsage { plugin: plugin.clone(), usage: state.usage() };
        self.kept.iter().filter(|(_, state)| !state.values.is_empty()).map(used).collect()
    }

    /// One value with all that is known of it.
    pub(super) fn get_state(&self, plugin: &str, key: &str) -> Option<StateRecord> {
        let kept = self.kept.get(plugin)?.values.get(key)?;
        Some(StateRecord {
            plugin: plugin.to_owned(),
            key: key.to_owned(),
            version: kept.version,
            value_bytes: kept.value.len() as u64,
            updated_at: kept.updated_at,
            value: Some(kept.value.clone()),
        })
    }

    /// The keys of a plugin that begin with a prefix and come after another, in order.
    pub(super) fn state_keys(&self, plugin: &str, prefix: &str, after: Option<&str>, limit: u32) -> Vec<String> {
        let keys = self.state_of(plugin).values.into_keys();
        let wanted = keys.filter(|key| key.starts_with(prefix) && after.is_none_or(|after| key.as_str() > after));
        wanted.take(limit as usize).collect()
    }

    pub(super) fn delete_state(&mut self, plugin: &str, key: &str, audit: &Audit) -> bool {
        let keys: Vec<String> = self.get_state(plugin, key).map(|record| record.key).into_iter().collect();
        self.forget(plugin, &keys);
        self.note(audit, "delete_state", json!({ "plugin": plugin, "key": key }), keys.len() as u64) == 1
    }

    /// Of every key, at most this many at once.
    pub(super) fn delete_all_state(&mut self, plugin: &str, limit: u32, audit: &Audit) -> u64 {
        let keys = self.state_keys(plugin, "", None, limit);
        self.forget(plugin, &keys);
        self.note(audit, "delete_state", json!({ "plugin": plugin }), keys.len() as u64)
    }

    /// Deleting is one change of the plugin's state.
    fn forget(&mut self, plugin: &str, keys: &[String]) {
        if let Some(state) = self.kept.get_mut(plugin).filter(|_| !keys.is_empty()) {
            state.changes += 1;
            state.values.retain(|key, _| !keys.contains(key));
        }
    }
}
