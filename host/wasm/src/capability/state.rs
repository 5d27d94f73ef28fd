//! The `state` interface: values that a plugin keeps in the outbox's database. Reads go to the database, writes are kept until
//! the answer is committed.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use outbox_event::{StateChanges, StateQuota, StateUsage, StateValue, StateWrite};

use super::{HostState, not_granted, refusal};
use crate::bindings::outbox::listener::state::Host;
use crate::bindings::outbox::listener::types::{Refusal, RefusalKind};
use crate::manifest::advice::at_the_top;

/// The longest key, in bytes.
const MAX_KEY_BYTES: usize = 255;
/// The most keys that one call may touch: each costs the database a look, in the transaction that others wait for.
const MAX_KEYS: usize = 100;

/// Where the values are that plugins keep.
#[async_trait]
pub trait StateSource: Send + Sync + 'static {
    /// One value of a plugin; `None` when there is none.
    ///
    /// # Errors
    /// Why it could not be read just now, for the plugin.
    async fn get(&self, plugin: &str, key: &str) -> Result<Option<StateValue>, String>;

    /// How much a plugin keeps.
    ///
    /// # Errors
    /// Why it could not be read just now, for the plugin.
    async fn usage(&self, plugin: &str) -> Result<StateUsage, String>;
}

/// That a plugin may keep values, and how much.
#[derive(Clone)]
pub(crate) struct StateGrant {
    pub(crate) source: Arc<dyn StateSource>,
    pub(crate) quota: StateQuota,
}

impl std::fmt::Debug for StateGrant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateGrant").field("quota", &self.quota).finish_non_exhaustive()
    }
}

/// What a call has read of its plugin's state.
#[derive(Debug, Default)]
pub(super) struct Seen {
    values: BTreeMap<String, Option<StateValue>>,
    /// `None` until the first write.
    usage: Option<StateUsage>,
}

impl Host for HostState {
    async fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<Vec<u8>>, Refusal>> {
        self.meter.charge(key.len())?;
        let value = match self.value(&key).await {
            Ok(value) => value,
            Err(refusal) => return Ok(Err(refusal)),
        };
        Ok(Ok(value.map(Vec::from)))
    }

    async fn set(&mut self, key: String, value: Vec<u8>) -> wasmtime::Result<Result<(), Refusal>> {
        self.meter.charge(key.len() + value.len())?;
        Ok(self.write(key, StateWrite::Set(Bytes::from(value))).await)
    }

    async fn delete(&mut self, key: String) -> wasmtime::Result<Result<(), Refusal>> {
        self.meter.charge(key.len())?;
        Ok(self.write(key, StateWrite::Delete).await)
    }
}

impl HostState {
    /// The value under a key, as this call has left it.
    async fn value(&mut self, key: &str) -> Result<Option<Bytes>, Refusal> {
        let grant = self.state_grant(key, "state.get")?;
        if let Some(write) = self.changes(&grant).keys.get(key).and_then(|change| change.write.as_ref()) {
            let written = match write {
                StateWrite::Set(value) => Some(value.clone()),
                StateWrite::Delete => None,
            };
            self.charge(written.as_ref().map_or(0, Bytes::len))?;
            return Ok(written);
        }
        let again = self.seen.values.contains_key(key);
        let found = self.read(&grant, key).await?;
        if again {
            self.charge(found.as_ref().map_or(0, |found| found.value.len()))?;
        }
        let version = found.as_ref().map_or(0, |found| found.version);
        self.changes(&grant).keys.entry(key.to_owned()).or_default().read = Some(version);
        Ok(found.map(|found| found.value))
    }

    async fn write(&mut self, key: String, write: StateWrite) -> Result<(), Refusal> {
        let asked = if matches!(write, StateWrite::Delete) { "state.delete" } else { "state.set" };
        let grant = self.state_grant(&key, asked)?;
        // What is replaced makes room. It is looked at without counting as read: the call does not depend on it.
        self.read(&grant, &key).await?;
        if let StateWrite::Set(value) = &write {
            self.check_quota(&grant, &key, value.len() as u64).await?;
        }
        self.changes(&grant).keys.entry(key).or_default().write = Some(write);
        Ok(())
    }

    /// Refuses what would not fit by what is known now. The commit decides: others may have written meanwhile.
    async fn check_quota(&mut self, grant: &StateGrant, key: &str, bytes: u64) -> Result<(), Refusal> {
        if self.seen.usage.is_none() {
            let name = self.identity.name.clone();
            self.seen.usage = Some(grant.source.usage(&name).await.map_err(unavailable)?);
        }
        let mut usage = self.seen.usage.unwrap_or_default();
        let changes = self.changes(grant).keys.clone();
        let mut count = |key: &str, write: &StateWrite, seen: &Seen| {
            if let Some(Some(before)) = seen.values.get(key) {
                usage.keys = usage.keys.saturating_sub(1);
                usage.bytes = usage.bytes.saturating_sub((key.len() + before.value.len()) as u64);
            }
            if let StateWrite::Set(value) = write {
                usage.keys += 1;
                usage.bytes += (key.len() + value.len()) as u64;
            }
        };
        for (other, change) in changes.iter().filter(|(other, _)| *other != key) {
            if let Some(write) = &change.write {
                count(other, write, &self.seen);
            }
        }
        count(key, &StateWrite::Delete, &self.seen);
        let (keys, bytes) = (usage.keys + 1, usage.bytes + key.len() as u64 + bytes);
        let before = self.seen.usage.unwrap_or_default();
        if !grant.quota.allows(before, StateUsage { keys, bytes }) {
            let name = &self.identity.name;
            return Err(refusal(
                RefusalKind::OverLimit,
                format!(
                    "the plugin {name} would keep {keys} keys and {bytes} bytes; it may keep {} keys and {} bytes: raise \
                     state.max_keys or state.max_bytes in {name}.toml, or remove what is not needed",
                    grant.quota.keys, grant.quota.bytes
                ),
            ));
        }
        Ok(())
    }

    /// Reads a value once; later reads of the same call see the same.
    async fn read(&mut self, grant: &StateGrant, key: &str) -> Result<Option<StateValue>, Refusal> {
        if let Some(seen) = self.seen.values.get(key) {
            return Ok(seen.clone());
        }
        if self.seen.values.len() >= MAX_KEYS {
            return Err(refusal(RefusalKind::OverLimit, format!("one call may use at most {MAX_KEYS} keys of its state")));
        }
        let name = self.identity.name.clone();
        let found = grant.source.get(&name, key).await.map_err(unavailable)?;
        self.charge(found.as_ref().map_or(0, |found| found.value.len()))?;
        self.seen.values.insert(key.to_owned(), found.clone());
        Ok(found)
    }

    /// Counts the bytes of a value that is read, each time.
    fn charge(&mut self, bytes: usize) -> Result<(), Refusal> {
        let exceeded = |exceeded| refusal(RefusalKind::OverLimit, format!("the call has {exceeded}"));
        self.meter.charge_bytes(bytes).map_err(exceeded)
    }

    /// The grant, for a key that may be used in the call that was asked for.
    fn state_grant(&mut self, key: &str, asked: &str) -> Result<StateGrant, Refusal> {
        let name = &self.identity.name;
        let Some(grant) = self.identity.grants.state.clone() else {
            let advice = at_the_top("state = true", name);
            let message = format!("keeping state is not granted to the plugin {name}; {advice}");
            self.identity.refused(asked, &message);
            return Err(not_granted(message));
        };
        if key.is_empty() || key.len() > MAX_KEY_BYTES || key.chars().any(char::is_control) {
            let message =
                format!("a key must have 1 to {MAX_KEY_BYTES} bytes and no control characters; this one has {}", key.len());
            return Err(refusal(RefusalKind::Invalid, message));
        }
        self.stored_event("state")?;
        Ok(grant)
    }

    fn changes(&mut self, grant: &StateGrant) -> &mut StateChanges {
        let plugin = &self.identity.name;
        let quota = grant.quota;
        let effects = self.effects.get_or_insert_default();
        effects.state.get_or_insert_with(|| StateChanges { plugin: plugin.clone(), quota, keys: BTreeMap::new() })
    }
}

fn unavailable(reason: String) -> Refusal {
    refusal(RefusalKind::Unavailable, format!("the state could not be read: {reason}"))
}
