//! An event as its listener is given it.

use std::ops::Deref;
use std::time::Duration;

use bytes::Bytes;

use super::{Envelope, EventId, Headers, TRACEPARENT, TraceParent};

/// One delivery of an event: its envelope, and which delivery this is.
///
/// ```
/// # use outbox_event as outbox;
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
    waited: Duration,
    fence: u64,
    /// Of this delivery's own span, where the host makes one.
    trace: Option<TraceParent>,
}

impl Event {
    /// Starts an event with every field set to what a first delivery has; for the host, and for tests of listeners.
    #[must_use]
    pub fn of(envelope: Envelope) -> EventBuilder {
        EventBuilder(Self { envelope, sequence: 0, attempt: 1, waited: Duration::ZERO, fence: 1, trace: None })
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

    /// For how long hosts have given it back without an attempt, because its listener or its sink could not take it. Zero if its last
    /// visit was an attempt.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// The number that proves a claim is still ours; larger on every delivery.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// The W3C trace context under which this delivery's own requests and messages go on: that of its span `process` where the host
    /// makes spans, else the event's header as it was written. `None` when neither is there.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.trace.as_ref().map(TraceParent::as_str).or_else(|| self.headers().get(TRACEPARENT))
    }

    /// Says what the delivery's own span is.
    #[doc(hidden)] // for the host
    pub fn set_trace(&mut self, trace: TraceParent) {
        self.trace = Some(trace);
    }

    /// Frees the payload and the headers, which may be large.
    #[doc(hidden)] // for the host
    pub fn drop_content(&mut self) {
        (self.envelope.payload, self.envelope.headers) = (Bytes::new(), Headers::default());
    }

    /// The headers, with the trace context of this delivery in place of the writer's.
    #[doc(hidden)] // for the host
    pub fn headers_onward(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.trace.as_ref().map(|trace| (TRACEPARENT, trace.as_str()));
        let rest = self.headers().iter().filter(move |(name, _)| own.is_none() || *name != TRACEPARENT);
        rest.chain(own)
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

    /// For how long it was given back without an attempt. Default zero.
    #[must_use]
    pub fn waited(mut self, waited: Duration) -> Self {
        self.0.waited = waited;
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

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const OWN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-01";

    #[test]
    fn what_goes_on_is_the_trace_of_the_delivery_and_else_the_writers() {
        let envelope = Envelope::new("X").header("a", "1").traceparent(WRITTEN).json(&1).expect("good");
        let mut event = Event::of(envelope).build();
        assert_eq!(event.traceparent(), Some(WRITTEN));
        assert_eq!(event.headers_onward().collect::<Vec<_>>(), [("a", "1"), (TRACEPARENT, WRITTEN)]);

        event.set_trace(TraceParent::parse(OWN).expect("good"));

        assert_eq!(event.traceparent(), Some(OWN));
        assert_eq!(event.headers_onward().collect::<Vec<_>>(), [("a", "1"), (TRACEPARENT, OWN)]);
        assert_eq!(event.headers().get(TRACEPARENT), Some(WRITTEN), "what was written stays");
    }
}
