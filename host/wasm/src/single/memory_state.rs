//! A plugin's state without a database: a map in this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use outbox_event::{StateChanges, StateUsage, StateValue, StateWrite};

use crate::capability::state::StateSource;

/// Values by key, with the versions that a database would give them. Clones share the same values.
///
/// Whose values they are is not looked at: one plugin, one map.
#[derive(Clone, Debug, Default)]
pub struct MemoryState(Arc<Mutex<Values>>);

#[derive(Debug, Default)]
struct Values {
    values: BTreeMap<String, StateValue>,
    /// The last version that was given to a value.
    revision: u64,
}

impl MemoryState {
    /// With these values.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = (String, Bytes)>) -> Self {
        let state = Self::default();
        for (key, value) in values {
            state.write(&key, Some(value));
        }
        state
    }

    /// The value under a key; `None` when there is none.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<Bytes> {
        self.lock().values.get(key).map(|kept| kept.value.clone())
    }

    /// All values, by key.
    #[must_use]
    pub fn values(&self) -> BTreeMap<String, Bytes> {
        self.lock().values.iter().map(|(key, kept)| (key.clone(), kept.value.clone())).collect()
    }

    /// Puts a value under a key, or removes it.
    pub fn write(&self, key: &str, value: Option<Bytes>) {
        let mut state = self.lock();
        state.revision += 1;
        let version = state.revision;
        match value {
            Some(value) => state.values.insert(key.to_owned(), StateValue { version, value }),
            None => state.values.remove(key),
        };
    }

    /// Does what a call asked for, as a commit would: all of it. What the call read is not compared with what is there, and its
    /// quota is not looked at again.
    pub fn apply(&self, changes: &StateChanges) {
        for (key, change) in &changes.keys {
            match &change.write {
                Some(StateWrite::Set(value)) => self.write(key, Some(value.clone())),
                Some(StateWrite::Delete) => self.write(key, None),
                None => {}
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Values> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl StateSource for MemoryState {
    async fn get(&self, _: &str, key: &str) -> Result<Option<StateValue>, String> {
        Ok(self.lock().values.get(key).cloned())
    }

    async fn usage(&self, _: &str) -> Result<StateUsage, String> {
        let state = self.lock();
        let bytes = state.values.iter().map(|(key, kept)| (key.len() + kept.value.len()) as u64).sum();
        Ok(StateUsage { keys: state.values.len() as u64, bytes })
    }
}

#[cfg(test)]
mod tests {
    use outbox_event::{StateChange, StateQuota};

    use super::*;

    #[tokio::test]
    async fn what_was_removed_and_written_again_has_another_version() {
        let state = MemoryState::of([("a".to_owned(), Bytes::from_static(b"1"))]);
        let version = async || state.get("", "a").await.unwrap().map(|kept| kept.version);
        let first = version().await;
        let change = |write| BTreeMap::from([("a".to_owned(), StateChange { read: first, write: Some(write) })]);
        let changes =
            |write| StateChanges { plugin: "p".to_owned(), quota: StateQuota { keys: 1, bytes: 1 }, keys: change(write) };

        state.apply(&changes(StateWrite::Delete));
        assert_eq!((version().await, state.usage("").await), (None, Ok(StateUsage::default())));
        state.apply(&changes(StateWrite::Set(Bytes::from_static(b"1"))));

        assert!(version().await > first);
        assert_eq!(state.usage("").await, Ok(StateUsage { keys: 1, bytes: 2 }));
    }
}
