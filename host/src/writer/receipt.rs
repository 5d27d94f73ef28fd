//! What is owed to events that were written in a transaction that is not decided yet.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use super::hook::{HookError, WriterHook};
use super::hot::{HotPath, Row};
use crate::event::{Envelope, EventId, Fence};
use crate::listener::panic_text;
use crate::store::Ownership;

/// Events in a transaction that is not decided yet.
pub(super) struct Written {
    events: Vec<(Envelope, Row)>,
    hooks: Arc<[Arc<dyn WriterHook>]>,
    hot: Arc<HotPath>,
    /// When the claim that the rows were inserted with ends.
    lease_end: Instant,
}

impl Written {
    pub(super) fn new(
        events: Vec<(Envelope, Row)>,
        hooks: Arc<[Arc<dyn WriterHook>]>,
        hot: Arc<HotPath>,
        ownership: &Ownership,
    ) -> Self {
        // A tenth early: the rows were inserted a moment ago, and a hot copy must never run under a claim that is over.
        let lease_end = Instant::now() + ownership.lease.mul_f64(0.9);
        Self { events, hooks, hot, lease_end }
    }

    pub(super) fn ids(&self) -> Vec<EventId> {
        self.events.iter().map(|(envelope, _)| envelope.id()).collect()
    }

    pub(super) fn after_write(&self) {
        self.run("after_write", |hook, events| hook.after_write(events));
    }

    pub(super) fn committed(self) {
        self.run("after_commit", |hook, events| hook.after_commit(events));
        self.hot.enqueue(self.events, self.lease_end);
    }

    pub(super) fn rolled_back(self) {
        self.run("after_rollback", |hook, events| hook.after_rollback(events));
    }

    /// Nobody knows whether the transaction was committed: the poller decides, and need not wait for our claims to end.
    pub(super) fn unknown(self) {
        let ours: Vec<Fence> = self
            .events
            .iter()
            .filter_map(|(_, row)| match row {
                Row::Ours(sequence) => Some(Fence { sequence: *sequence, claim: 1 }),
                Row::Free | Row::None => None,
            })
            .collect();
        self.hot.give_back(ours);
        self.hot.wake.now();
    }

    fn run(&self, what: &str, call: impl Fn(&dyn WriterHook, &[&Envelope]) -> Result<(), HookError>) {
        if self.hooks.is_empty() || self.events.is_empty() {
            return;
        }
        let events: Vec<&Envelope> = self.events.iter().map(|(envelope, _)| envelope).collect();
        for hook in self.hooks.iter() {
            let error = match std::panic::catch_unwind(AssertUnwindSafe(|| call(&**hook, &events))) {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(panic) => panic_text(&*panic),
            };
            tracing::error!(hook = what, events = events.len(), error, "a writer hook failed; the write stands");
        }
    }
}

/// What is owed to events that were written in a transaction of yours: tell it how the transaction ended.
///
/// Dropped without a word, it counts as an unknown result: the poller takes the events if they are there.
#[must_use = "tell it how your transaction ended: committed() or rolled_back()"]
pub struct Receipt(Option<Written>);

impl Receipt {
    pub(super) fn new(written: Written) -> Self {
        Self(Some(written))
    }

    /// The ids of the events, in order; empty when a hook suppressed the write.
    #[must_use]
    pub fn ids(&self) -> Vec<EventId> {
        self.0.as_ref().map(Written::ids).unwrap_or_default()
    }

    /// The transaction was committed: the events go straight to their listeners.
    pub fn committed(mut self) {
        if let Some(written) = self.0.take() {
            written.committed();
        }
    }

    /// The transaction was rolled back: the events never happened.
    pub fn rolled_back(mut self) {
        if let Some(written) = self.0.take() {
            written.rolled_back();
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(written) = self.0.take() {
            written.unknown();
        }
    }
}

impl std::fmt::Debug for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Receipt").field(&self.ids()).finish()
    }
}
