//! One attempt to deliver an event, step by step:
//!
//! ```text
//! Delivery ──admit──▶ Attempt ──begin──▶ Begun ──answer──▶ Answered ──conclude──▶ Conclusion ──end──▶ settler
//! ```
//!
//! A stop may cut an attempt off at any await before `end`: while it waits in `begin`, during the call, or while interceptors run.

mod admit;
mod answer;
mod begin;
mod call;
mod conclude;
mod interceptors;

use std::sync::{Arc, OnceLock};

pub(super) use self::admit::{Admission, admit};
use super::alone::Start;
use super::presence::VisitSlot;
use super::shared::Shared;
use crate::listener::RegistryEntry;
use crate::queue::Delivery;
use crate::settlement::given_back;
use crate::settler::{Conclusion, SettlerHandle};
use crate::store::Settlement;
use crate::telemetry::ProcessSpan;

/// One attempt to deliver an event that was admitted.
pub(super) struct Attempt<'a> {
    shared: &'a Shared,
    worker: usize,
    delivery: Delivery,
    target: Target,
    /// The call slot that the listener gave to the event.
    pub(super) slot: VisitSlot,
    /// Counts the start of an event that is delivered alone. `None` for all others.
    start: Option<Start>,
    pub(super) span: ProcessSpan,
    /// Set before the interceptors run after the call. Never set if the event's lease is lost.
    conclusion: OnceLock<Conclusion>,
}

/// The listener of an event, or the reason why none is called.
pub(super) enum Target {
    Listener(Arc<RegistryEntry>),
    /// The route is paused for this reason.
    Paused(String),
    /// No listener is registered for the route.
    Missing,
}

impl<'a> Attempt<'a> {
    /// Begins the span of an attempt if tracing is on and the event has a listener. The event then carries the span's trace context,
    /// which its listener's requests and messages continue.
    pub(super) fn new(shared: &'a Shared, worker: usize, mut delivery: Delivery, target: Target) -> Self {
        let span = match &target {
            Target::Listener(entry) => shared.spans.process(&delivery.event, &entry.owner),
            Target::Paused(_) | Target::Missing => ProcessSpan::none(),
        };
        if let Some(trace) = span.trace_parent() {
            Arc::make_mut(&mut delivery.event).set_trace(trace);
        }
        let slot = VisitSlot::new(delivery.slot.take());
        let start = delivery.alone.then(Start::default);
        Self { shared, worker, delivery, target, slot, start, span, conclusion: OnceLock::new() }
    }

    /// Makes the attempt, up to its conclusion.
    pub(super) async fn walk(&self) {
        let begun = match self.begin().await {
            Ok(begun) => begun,
            Err(instead) => return self.conclude_without_call(instead),
        };
        let Some(answered) = self.answer(&begun).await else { return };
        self.span.outcome(&answered.reply.outcome);
        let for_interceptors = answered.is_intercepted.then(|| answered.reply.outcome.clone());
        // Set before the interceptors run: a stop that cuts them off must not deliver the event a second time.
        self.set(self.conclude(answered));
        if let Some(outcome) = for_interceptors {
            self.after(&begun, &outcome).await;
        }
    }

    /// Hands the conclusion to the settler, and frees the event's call slot.
    pub(super) async fn end(mut self, settler: &SettlerHandle, is_cut_off: bool) {
        let conclusion = self.conclusion.take().or_else(|| is_cut_off.then(|| given_back().into()));
        self.span.end(conclusion.as_ref().map(|conclusion| &conclusion.settlement));
        if let Some(conclusion) = &conclusion {
            self.target.count(self.shared, &self.delivery, &conclusion.settlement);
        }
        // Effects wait for memory in the event's call slot. This bounds the waiting effects by the calls that a listener may have at
        // once, and leaves workers for other listeners. Meanwhile another call of the listener may compute. An event that is delivered
        // alone has let its slot go.
        let effects = conclusion.as_ref().filter(|_| self.start.is_none()).and_then(|conclusion| conclusion.effects.as_deref());
        let room = self.slot.wait(&self.shared.queue, settler.room_for(effects)).await;
        // Before the outcome is sent: other events wait for the slot.
        self.slot.let_go();
        match (conclusion, self.start) {
            (Some(conclusion), None) => settler.send_with(room, self.delivery, conclusion).await,
            (conclusion, Some(start)) => start.end(self.shared, settler, self.delivery, conclusion).await,
            (None, None) => {}
        }
    }

    fn conclude_without_call(&self, instead: Option<Settlement>) {
        if let Some(settlement) = instead {
            self.set(settlement.into());
        }
    }

    fn set(&self, conclusion: Conclusion) {
        let set = self.conclusion.set(conclusion);
        debug_assert!(set.is_ok(), "an attempt has one conclusion");
    }
}

impl Target {
    /// Counts the outcome of an event for its route. Routes without a listener share one counter, so that a writer cannot fill the
    /// metrics with made-up names.
    fn count(&self, shared: &Shared, delivery: &Delivery, settlement: &Settlement) {
        let totals = match self {
            Self::Listener(entry) => entry.route_totals(),
            Self::Paused(_) | Self::Missing => shared.metrics.routes.other(),
        };
        totals.count(&delivery.event, settlement);
    }
}
