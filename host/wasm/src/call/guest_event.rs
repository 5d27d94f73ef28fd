//! An event as a guest is given it: borrowed from the event, but for the little that is made for a call.

use std::io::Write;

use outbox_event::{Event, EventId};

use crate::bindings::exports::outbox::listener::handler as wit;
use crate::bindings::outbox::listener::types::RouteParam;

/// One event on its way into a guest.
pub(crate) struct GuestEvent<'e> {
    event: &'e Event,
    id: EventId,
    delivery_id: String,
    max_attempts: Decimal,
    deferrals: Decimal,
}

/// Its lists, which borrow from it.
pub(crate) struct GuestLists<'g> {
    headers: Vec<(&'g str, &'g str)>,
    attributes: [(&'g str, &'g str); 4],
    count: usize,
}

impl<'e> GuestEvent<'e> {
    pub(crate) fn new(event: &'e Event, max_attempts: u32, deferrals: u32) -> Self {
        let (max_attempts, deferrals) = (Decimal::of(max_attempts), Decimal::of(deferrals));
        Self { event, id: event.id(), delivery_id: event.delivery_id(), max_attempts, deferrals }
    }

    /// The lists; `deadline_ms` is the bound of the call.
    pub(crate) fn lists<'g>(&'g self, deadline_ms: &'g str) -> GuestLists<'g> {
        let trace = self.event.traceparent();
        let attributes = [
            ("max-attempts", self.max_attempts.as_str()),
            ("deferrals", self.deferrals.as_str()),
            ("deadline-ms", deadline_ms),
            // Last, since not every event has one.
            ("traceparent", trace.unwrap_or_default()),
        ];
        GuestLists { headers: self.event.headers().iter().collect(), attributes, count: 3 + usize::from(trace.is_some()) }
    }

    pub(crate) fn param<'g>(&'g self, lists: &'g GuestLists<'g>) -> wit::Event<'g> {
        let event = self.event;
        wit::Event {
            id: self.id.as_str(),
            delivery_id: &self.delivery_id,
            route: RouteParam { aggregate_type: event.aggregate_type().as_str(), event_type: event.event_type().as_str() },
            aggregate_id: event.aggregate_id(),
            tenant_id: event.tenant_id(),
            sequence: event.sequence(),
            occurred_at_ms: event.occurred_at().as_millis_unsigned(),
            attempt: event.attempt(),
            content_type: event.content_type(),
            payload: event.payload_bytes(),
            headers: &lists.headers,
            attributes: &lists.attributes[..lists.count],
        }
    }
}

/// A number as text, without a string of its own.
struct Decimal {
    digits: [u8; 10],
    count: usize,
}

impl Decimal {
    fn of(number: u32) -> Self {
        let mut digits = [0; 10];
        let mut rest = &mut digits[..];
        write!(rest, "{number}").expect("a number of 32 bits has at most 10 digits");
        let count = 10 - rest.len();
        Self { digits, count }
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.digits[..self.count]).expect("digits are text")
    }
}
