//! Room for events.

/// Room for a number of events and of bytes: how much there is, or how much is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

impl Room {
    /// This room and that one.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { events: self.events.saturating_add(other.events), bytes: self.bytes.saturating_add(other.bytes) }
    }

    /// The part of this room that is left when `taken` is taken.
    pub(crate) fn without(self, taken: Self) -> Self {
        Self { events: self.events.saturating_sub(taken.events), bytes: self.bytes.saturating_sub(taken.bytes) }
    }
}
