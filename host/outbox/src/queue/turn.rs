//! The right to be the one event of an aggregate that is delivered.

use std::fmt;
use std::sync::Arc;

use crate::event::{AggregateType, Event};

/// An aggregate.
pub(crate) type Key = (AggregateType, Arc<str>);

/// The aggregate that an event belongs to, if any.
pub(crate) fn key(event: &Event) -> Option<Key> {
    Some((event.route().aggregate_type.clone(), Arc::from(event.aggregate_id()?)))
}

/// The right of an event to be the one of its aggregate that is delivered. If it is dropped before its end (its claim was lost, its worker
/// was cut off), the events that wait for it are dropped, too.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<dyn Turns>,
    key: Key,
    sequence: u64,
    ended: bool,
}

/// The owner of the turns.
pub(super) trait Turns: fmt::Debug + Send + Sync {
    /// Drops the events that wait for this one, which is not resolved: no task settles them. They are due again when their
    /// claims end, or claimed when they are read again.
    fn abandon(&self, key: &Key, sequence: u64);
}

impl Turn {
    pub(super) fn new(turns: Arc<dyn Turns>, key: Key, sequence: u64) -> Self {
        Self { turns, key, sequence, ended: false }
    }

    /// The `seq` of the event.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The aggregate.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Notes that the events that wait for this one are handled.
    pub(super) fn set_ended(&mut self) {
        self.ended = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.ended {
            self.turns.abandon(&self.key, self.sequence);
        }
    }
}
