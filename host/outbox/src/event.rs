//! Plain data: events before and after they are stored, their names, and the effects and costs of their calls.
//!
//! An [`Envelope`] is an event as its writer hands it over; an [`Event`] is what a listener is given. The types are declared in
//! the package `outbox-event`, which checks every rule once.

#[doc(hidden)] // for tests of stores
pub use outbox_event::NO_LISTENER;
pub(crate) use outbox_event::TraceParent;
#[doc(inline)]
pub use outbox_event::{
    AggregateType, CORRELATION_ID, Cost, Effects, Envelope, EnvelopeBuilder, EnvelopeError, EnvelopeJsonError, Event,
    EventBuilder, EventId, EventType, Fence, GuestCost, Headers, HeadersError, Keeping, MAX_PAYLOAD_BYTES, NameError, OwnerId,
    Route, ShortDigest, StateChange, StateChanges, StateQuota, StateUsage, StateValue, StateWrite, Status, TRACEPARENT,
    TRANSACTION_ID,
};
