//! Plugin state: values by plugin and key. Calls read it, operators list and delete it. It is written together with the outcomes of
//! events, by [`EffectStore::settle_with_effects`](super::EffectStore::settle_with_effects).

use async_trait::async_trait;
use bytes::Bytes;
use outbox_event::time::Timestamp;
use outbox_event::{StateUsage, StateValue};
use serde::Serialize;

use super::{Audit, StoreError};

/// Reads, lists and deletes plugin state.
#[async_trait]
pub trait StateStore: Send + Sync + 'static {
    /// One value of a plugin's state; `None` when there is none.
    ///
    /// # Errors
    /// The database's own.
    async fn state(&self, plugin: &str, key: &str) -> Result<Option<StateValue>, StoreError>;

    /// How many keys and bytes the state of a plugin has.
    ///
    /// # Errors
    /// The database's own.
    async fn state_usage(&self, plugin: &str) -> Result<StateUsage, StoreError>;

    /// The plugins that have state and how much, by name: those after `after`, all for `None`; at most `limit`.
    ///
    /// # Errors
    /// The database's own.
    async fn state_usages(&self, after: Option<&str>, limit: u32) -> Result<Vec<PluginUsage>, StoreError>;

    /// The state of a plugin, by key and without the values: keys that begin with `prefix` and come after `after`, all for an
    /// empty text and `None`; at most `limit`. Keys are compared byte by byte.
    ///
    /// # Errors
    /// The database's own.
    async fn list_state(
        &self,
        plugin: &str,
        prefix: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<StateRecord>, StoreError>;

    /// One value of a plugin's state with its version, size and time; `None` when there is none.
    ///
    /// # Errors
    /// The database's own.
    async fn get_state(&self, plugin: &str, key: &str) -> Result<Option<StateRecord>, StoreError>;

    /// Deletes one value and writes an audit record. Returns false, and writes nothing, when there is no such value. The delete
    /// counts as a change: a call that read the value before ends in [`Committed::Conflict`](super::Committed::Conflict).
    ///
    /// # Errors
    /// The database's own. A repeat is safe; it returns false when the first call has deleted the value after all.
    async fn delete_state(&self, plugin: &str, key: &str, audit: &Audit) -> Result<bool, StoreError>;

    /// Deletes the values of a plugin in the order of their keys, at most `limit`, and writes one audit record. Returns how many;
    /// writes nothing when there are none. Counts as one change, like [`delete_state`](Self::delete_state).
    ///
    /// # Errors
    /// The database's own. A repeat is safe; it deletes the next values when the first call has deleted its own after all.
    async fn delete_all_state(&self, plugin: &str, limit: u32, audit: &Audit) -> Result<u64, StoreError>;
}

/// One value of a plugin's state, as operators see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StateRecord {
    /// The plugin's name.
    pub plugin: String,
    /// The key; its column is called `name`.
    pub key: String,
    /// Larger after every change.
    pub version: u64,
    /// The value's size in bytes.
    pub value_bytes: u64,
    /// When it was last written.
    pub updated_at: Timestamp,
    /// The value; left out of lists.
    #[serde(skip)]
    pub value: Option<Bytes>,
}

/// How much state one plugin has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginUsage {
    /// The plugin's name.
    pub plugin: String,
    /// Its keys and bytes.
    pub usage: StateUsage,
}

/// The values to delete.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deletion<'a> {
    One(&'a str),
    /// Of every key, at most this many at once.
    All(u32),
}

impl<'a> Deletion<'a> {
    /// The statement's parameters: the key (`None` for every key) and the limit.
    pub(super) fn parameters(self) -> (Option<&'a str>, i64) {
        match self {
            Self::One(key) => (Some(key), 1),
            Self::All(limit) => (None, i64::from(limit)),
        }
    }

    /// What the audit record names as deleted.
    pub(super) fn selector(self, plugin: &str) -> serde_json::Value {
        match self {
            Self::One(key) => serde_json::json!({ "plugin": plugin, "key": key }),
            Self::All(_) => serde_json::json!({ "plugin": plugin }),
        }
    }
}

/// The action that the audit record names.
pub(super) const DELETE_STATE: &str = "delete_state";

/// The upper bound of a prefix scan: the smallest text above every text that begins with `prefix`, byte by byte. `None` when
/// there is no such text; the scan then needs no bound.
pub(super) fn end_of_prefix(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // Skips the surrogates, which are no characters.
        if let Some(next) = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32) {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_the_next_text_that_does_not_begin_with_it() {
        let end = |prefix: &str| end_of_prefix(prefix);
        assert_eq!(end("order:").as_deref(), Some("order;"));
        assert_eq!(end("a\u{7f}").as_deref(), Some("a\u{80}"));
        assert_eq!(end("a\u{d7ff}").as_deref(), Some("a\u{e000}"), "no surrogate is a character");
        assert_eq!(end("a\u{10ffff}\u{10ffff}").as_deref(), Some("b"));
        assert_eq!((end(""), end("\u{10ffff}")), (None, None));
        for (prefix, longest) in [("a", "a\u{10ffff}"), ("ü", "ü\u{10ffff}\u{10ffff}")] {
            assert!(longest < end(prefix).expect("there is one").as_str());
        }
    }
}
