//! An event as its listener is given it.

use std::ops::Deref;

use super::{Envelope, EventId};

/// One delivery of an event: its envelope, and which delivery this is.
///
/// ```
/// use outbox::{Envelope, Event};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // A listener is given one; for a unit test of the listener it is made like this.
/// let event = Event::of(Envelope::new("OrderPlaced").json(&99.5)?).attempt(2).build();
///
/// assert_eq!((event.attempt(), event.payload::<f64>()?), (2, 99.5));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    envelope: Envelope,
    sequence: u64,
    attempt: u32,
    fence: u64,
}

impl Event {
    /// Starts an event with every field set to what a first delivery has; for the host, and for tests of listeners.
    #[must_use]
    pub fn of(envelope: Envelope) -> EventBuilder {
        EventBuilder(Self { envelope, sequence: 0, attempt: 1, fence: 1 })
    }

    /// The envelope as it was written.
    #[must_use]
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// The order in which the database took the events in; 0 for an event that was never stored.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// 1 on the first attempt; one more after each counted failure.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The number that proves a claim is still ours; larger on every delivery.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// `id:fence`: names this delivery, so that a downstream can refuse a late one.
    #[must_use]
    pub fn delivery_id(&self) -> String {
        let id: EventId = self.envelope.id();
        format!("{id}:{}", self.fence)
    }
}

impl Deref for Event {
    type Target = Envelope;

    fn deref(&self) -> &Envelope {
        &self.envelope
    }
}

/// An event in the making.
#[derive(Clone, Debug)]
pub struct EventBuilder(Event);

impl EventBuilder {
    /// The database's insertion order. Default 0.
    #[must_use]
    pub fn sequence(mut self, sequence: u64) -> Self {
        self.0.sequence = sequence;
        self
    }

    /// Which attempt this is. Default 1.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.0.attempt = attempt;
        self
    }

    /// The fence of the claim. Default 1.
    #[must_use]
    pub fn fence(mut self, fence: u64) -> Self {
        self.0.fence = fence;
        self
    }

    /// The event.
    #[must_use]
    pub fn build(self) -> Event {
        self.0
    }
}
