//! What an event is: plain data, no I/O, no async.
//!
//! An [`Envelope`] is an event as its writer hands it over; an [`Event`] is what a listener is given. Everything with a rule
//! is checked here, once, so that no other room checks it again.

mod builder;
mod cost;
mod delivered;
mod effects;
mod envelope;
mod fence;
mod headers;
mod id;
mod json;
mod name;
mod status;
mod trace_parent;

pub use builder::{EnvelopeBuilder, EnvelopeError, MAX_PAYLOAD_BYTES};
pub(crate) use cost::nanos;
pub use cost::{Cost, GuestCost, ShortDigest};
pub use delivered::{Event, EventBuilder};
pub use effects::{Effects, StateChange, StateChanges, StateQuota, StateUsage, StateValue, StateWrite};
pub use envelope::{Envelope, Keeping};
pub use fence::{Fence, OwnerId};
pub use headers::{CORRELATION_ID, Headers, HeadersError, TRACEPARENT, TRANSACTION_ID};
pub(crate) use headers::{HeaderPairs, TRACESTATE};
pub use id::EventId;
pub use json::EnvelopeJsonError;
pub use name::{AggregateType, EventType, NameError, Route};
pub use status::Status;
pub(crate) use trace_parent::TraceParent;
