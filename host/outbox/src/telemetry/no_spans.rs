//! Without the feature `otel`: no spans, and no code where they would be. A trace that somebody else began goes on all the same.

use crate::event::{Envelope, Event, TraceParent};
use crate::listener::{Outcome, Owner};
use crate::store::Settlement;

/// Makes no spans.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {}

/// In whose trace something is written.
#[derive(Clone, Debug, Default)]
pub(crate) enum Caller {
    /// In no span that we know of.
    #[default]
    Nobody,
    /// In that of a request from elsewhere.
    Elsewhere(TraceParent),
}

/// The span of a write.
pub(crate) struct SendSpan;

/// The span of a delivery.
pub(crate) struct ProcessSpan;

/// Says that a span is the current one.
pub(crate) struct Entered;

impl Spans {
    pub(crate) fn caller(&self) -> Caller {
        Caller::Nobody
    }

    pub(crate) fn send(&self, caller: &Caller, envelopes: &mut [Envelope]) -> SendSpan {
        if let Caller::Elsewhere(parent) = caller {
            envelopes.iter_mut().for_each(|envelope| envelope.trace(parent, ""));
        }
        SendSpan
    }

    pub(crate) fn process(&self, _: &Event, _: &Owner) -> ProcessSpan {
        ProcessSpan
    }
}

impl SendSpan {
    pub(crate) fn end<E: std::error::Error>(self, _: Option<&E>) {}
}

impl ProcessSpan {
    pub(crate) fn none() -> Self {
        Self
    }

    pub(crate) fn trace_parent(&self) -> Option<TraceParent> {
        None
    }

    pub(crate) fn enter(&self) -> Entered {
        Entered
    }

    pub(crate) fn outcome(&self, _: &Outcome) {}

    pub(crate) fn end(self, _: Option<&Settlement>) {}
}
