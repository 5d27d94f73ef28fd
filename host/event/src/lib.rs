//! A part of [`outbox`](https://docs.rs/outbox): plain data, no I/O, no async. Use it through `outbox`; alone it promises nothing.
//!
//! An [`Envelope`] is an event as its writer hands it over; an [`Event`] is what a listener is given; an [`Outcome`] is how the
//! listener ended it; a [`Settlement`] is what the store writes for that. Everything with a rule is checked here, once, so that no other package checks it again.
//!
//! Below the events are the helpers that every package needs: [`time`], [`units`], [`chain`], [`text`], [`deceptive`] and [`wording`].
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attempt;
mod builder;
pub mod chain;
mod cost;
pub mod deceptive;
mod delivered;
mod effects;
mod envelope;
mod fence;
mod headers;
mod id;
mod json;
mod name;
mod outcome;
mod owner;
mod plugin;
mod report;
#[cfg(feature = "utoipa")]
mod schemas;
mod settled;
mod settlement;
mod sink;
mod status;
pub mod text;
pub mod time;
mod trace_parent;
pub mod units;
pub mod wording;

pub use attempt::{AttemptCost, AttemptEnd};
pub use builder::{EnvelopeBuilder, EnvelopeError, MAX_PAYLOAD_BYTES};
pub use cost::{Cost, GuestCost, ShortDigest, nanos};
pub use delivered::{Event, EventBuilder};
pub use effects::{Effects, StateChange, StateChanges, StateQuota, StateUsage, StateValue, StateWrite};
pub use envelope::{Envelope, Keeping};
pub use fence::{Fence, OwnerId};
pub use headers::{CORRELATION_ID, HeaderPairs, Headers, HeadersError, TRACEPARENT, TRACESTATE, TRANSACTION_ID};
pub use id::EventId;
pub use json::EnvelopeJsonError;
pub use name::{AggregateType, EventType, NameError, Route};
pub use outcome::{Answer, Cause, DispatchResult, Failure, FailureKind, Outcome, dead, retry_after};
pub use owner::Owner;
pub use plugin::{MOST_SWAPS, PluginCapability, PluginDetails, PluginLimits, PluginState, PluginStatus, PluginSwap};
pub use report::HostReport;
#[cfg(feature = "utoipa")]
pub use schemas::ID_PATTERN;
pub use settled::Settled;
pub use settlement::{NO_LISTENER, Settlement};
pub use sink::{SinkOutage, SinkState, SinkStatus};
pub use status::Status;
pub use trace_parent::TraceParent;
