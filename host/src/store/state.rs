//! What plugins keep: read by their calls, looked at and deleted by people. It is written with the outcomes of events:
//! [`Store::settle_with_effects`](super::Store::settle_with_effects).

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;

use super::{Audit, StoreError};
use crate::event::{StateUsage, StateValue};
use crate::time::Timestamp;

/// The part of a store that plugins' state is in.
#[async_trait]
pub trait StateStore: Send + Sync + 'static {
    /// One value of a plugin's state; `None` when there is none.
    ///
    /// # Errors
    /// The database's own.
    async fn state(&self, plugin: &str, key: &str) -> Result<Option<StateValue>, StoreError>;

    /// How much a plugin keeps.
    ///
    /// # Errors
    /// The database's own.
    async fn state_usage(&self, plugin: &str) -> Result<StateUsage, StoreError>;

    /// The plugins that keep something and how much, by name: those after `after`, all for `None`; at most `limit`.
    ///
    /// # Errors
    /// The database's own.
    async fn state_usages(&self, after: Option<&str>, limit: u32) -> Result<Vec<PluginUsage>, StoreError>;

    /// What a plugin keeps, by key and without the values: keys that begin with `prefix` and come after `after`, all for an
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

    /// One value of a plugin's state with all that is known of it; `None` when there is none.
    ///
    /// # Errors
    /// The database's own.
    async fn get_state(&self, plugin: &str, key: &str) -> Result<Option<StateRecord>, StoreError>;

    /// Deletes one value. False when there is none. It counts as a change by the plugin: versions go on, so that a call that has
    /// read the value ends in a conflict. Noted as by [`replay`](super::Store::replay).
    ///
    /// # Errors
    /// The database's own.
    async fn delete_state(&self, plugin: &str, key: &str, audit: &Audit) -> Result<bool, StoreError>;

    /// Deletes what a plugin keeps, in the order of the keys, at most `limit` values. Returns how many. As
    /// [`delete_state`](Self::delete_state): the plugin's versions go on though nothing is left.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn delete_all_state(&self, plugin: &str, limit: u32, audit: &Audit) -> Result<u64, StoreError>;
}

/// One value of a plugin's state, as people look at it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StateRecord {
    /// Whose it is.
    pub plugin: String,
    /// Under which key; the column is called `name`.
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

/// How much one plugin keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginUsage {
    /// Which plugin.
    pub plugin: String,
    /// How much.
    pub usage: StateUsage,
}

/// Which values are deleted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Doomed<'a> {
    One(&'a str),
    /// The first so many.
    All(u32),
}

impl<'a> Doomed<'a> {
    /// As it is bound: the key, `None` for any; and the most values.
    pub(super) fn bounds(self) -> (Option<&'a str>, i64) {
        match self {
            Self::One(key) => (Some(key), 1),
            Self::All(limit) => (None, i64::from(limit)),
        }
    }

    /// As it is noted.
    pub(super) fn selector(self, plugin: &str) -> serde_json::Value {
        match self {
            Self::One(key) => serde_json::json!({ "plugin": plugin, "key": key }),
            Self::All(_) => serde_json::json!({ "plugin": plugin }),
        }
    }
}

/// As it is noted.
pub(super) const DELETE_STATE: &str = "delete_state";

/// The first text after all that begin with the prefix, byte by byte; `None` when there is none: then all that is not before the
/// prefix begins with it.
pub(super) fn after_all(prefix: &str) -> Option<String> {
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
        let end = |prefix: &str| after_all(prefix);
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
