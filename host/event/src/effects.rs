//! What a listener does beside its answer: committed with the outcome of its event, in one transaction, or not at all.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Envelope;

/// Follow-up events and changes of state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// Follow-up events, in the order in which they were emitted. One whose id is in the table already is not written again.
    pub emitted: Vec<Envelope>,
    /// `None` when the listener touched no state.
    pub state: Option<StateChanges>,
}

/// What one call read and wrote of its plugin's state.
#[derive(Clone, Debug, PartialEq)]
pub struct StateChanges {
    /// Whose state it is.
    pub plugin: String,
    /// The most that the plugin may keep.
    pub quota: StateQuota,
    /// Every key that the call read or wrote.
    pub keys: BTreeMap<String, StateChange>,
}

/// What one call did to one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateChange {
    /// The version that the call read, 0 when there was no value; `None` when it did not read the key. Another version at the
    /// commit means that the call was based on something that is no longer true.
    pub read: Option<u64>,
    /// What the call wrote; `None` when it only read.
    pub write: Option<StateWrite>,
}

/// A change of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateWrite {
    /// The value is this from now on.
    Set(Bytes),
    /// There is no value any more.
    Delete,
}

/// The most that one plugin may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateQuota {
    /// Keys.
    pub keys: u64,
    /// Bytes of keys and values together.
    pub bytes: u64,
}

impl StateQuota {
    /// Whether a plugin may go from one use to another: neither may what is beyond the quota grow.
    #[must_use]
    pub fn allows(&self, before: StateUsage, after: StateUsage) -> bool {
        let fits = |before: u64, after: u64, most: u64| after <= most || after <= before;
        fits(before.keys, after.keys, self.keys) && fits(before.bytes, after.bytes, self.bytes)
    }
}

/// One value of a plugin's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateValue {
    /// Larger after every change, and never used twice by one plugin.
    pub version: u64,
    /// The value.
    pub value: Bytes,
}

/// How much of its quota a plugin uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateUsage {
    /// Keys.
    pub keys: u64,
    /// Bytes of keys and values together.
    pub bytes: u64,
}

impl Effects {
    /// About how many bytes of memory they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        const EACH: usize = 256;
        let emitted = self.emitted.iter().map(|envelope| {
            let headers = envelope.headers().iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
            envelope.payload_bytes().len() + headers + EACH
        });
        let written = |change: &StateChange| match &change.write {
            Some(StateWrite::Set(value)) => value.len(),
            Some(StateWrite::Delete) | None => 0,
        };
        let keys = self.state.iter().flat_map(|state| &state.keys).map(|(key, change)| key.len() + written(change) + EACH);
        emitted.chain(keys).sum()
    }

    /// Whether there is nothing to commit. A call that only read its state has nothing to commit either.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let writes = |state: &StateChanges| state.keys.values().any(|change| change.write.is_some());
        self.emitted.is_empty() && !self.state.as_ref().is_some_and(writes)
    }
}
