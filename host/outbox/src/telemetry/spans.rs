//! The spans of an event: `send` where it is written, `process` at each delivery.
//!
//! They follow OpenTelemetry's conventions for messaging. The header `traceparent` of an event is its creation context: the
//! parent of each `process`, and linked to it as well. Neither payloads nor headers become attributes.

use std::sync::Arc;

use opentelemetry::global::{BoxedTracer, ObjectSafeTracerProvider};
use opentelemetry::trace::{Link, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt, TraceState, Tracer};
use opentelemetry::{Context, ContextGuard, InstrumentationScope, KeyValue};
use outbox_event::TRACESTATE;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::event::{Envelope, Event, Headers, Route, TRACEPARENT, TraceParent};
use crate::listener::{Outcome, Owner};
use crate::store::Settlement;
use crate::text;

/// The most links of one span. Of a write of more events that bring their own context, the first are linked.
const MOST_LINKS: usize = 32;
/// The longest `tracestate` that is read. Source: W3C Trace Context, 3.3.1.5.
const MAX_STATE_BYTES: usize = 512;
/// The most of an error that a span tells.
const MAX_ERROR_BYTES: usize = 512;

/// Makes spans by a tracer that was given; nothing where none was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans(Option<Arc<BoxedTracer>>);

/// In whose trace something is written.
#[derive(Clone, Debug, Default)]
pub(crate) enum Caller {
    /// In no span that we know of.
    #[default]
    Nobody,
    /// In that of whoever calls us, in this process.
    Here(Context),
    /// In that of a request from elsewhere.
    Elsewhere(TraceParent),
}

impl Spans {
    /// By the tracer of a provider.
    pub(crate) fn of(provider: &dyn ObjectSafeTracerProvider) -> Self {
        let scope = InstrumentationScope::builder("outbox").with_version(env!("CARGO_PKG_VERSION")).build();
        Self(Some(Arc::new(BoxedTracer::new(provider.boxed_tracer(scope)))))
    }

    /// Whose span is open where this is called: one of OpenTelemetry's, or one of `tracing`'s that becomes one.
    pub(crate) fn caller(&self) -> Caller {
        if self.0.is_none() {
            return Caller::Nobody;
        }
        let here = Some(Context::current()).filter(TraceContextExt::has_active_span);
        let here = here.or_else(|| Some(tracing::Span::current().context()).filter(TraceContextExt::has_active_span));
        here.map_or(Caller::Nobody, Caller::Here)
    }

    /// Begins the span of a write, and gives each event that has no trace context this span's: not empty.
    pub(crate) fn send(&self, caller: &Caller, envelopes: &mut [Envelope]) -> SendSpan {
        let Some(tracer) = &self.0 else {
            if let Caller::Elsewhere(parent) = caller {
                envelopes.iter_mut().for_each(|envelope| envelope.trace(parent, ""));
            }
            return SendSpan(None);
        };
        if envelopes.is_empty() {
            return SendSpan(None);
        }
        let mut own = envelopes.iter().filter_map(|envelope| context_in(envelope.headers())).take(MOST_LINKS);
        let (parent, links) = match caller {
            Caller::Here(context) => (context.clone(), links(own)),
            Caller::Elsewhere(parent) => (remote(parent.span_context(TraceState::default())), links(own)),
            // Alone, an event that brings its context says in whose trace it was made.
            Caller::Nobody if envelopes.len() == 1 => (own.next().map_or_else(Context::new, remote), None),
            Caller::Nobody => (Context::new(), links(own)),
        };
        let builder = SpanBuilder {
            span_kind: Some(SpanKind::Producer),
            attributes: Some(of_write(envelopes)),
            links,
            ..SpanBuilder::from_name("send")
        };
        let context = parent.with_span(tracer.build_with_context(builder, &parent));
        let span = context.span().span_context().clone();
        if let Some(parent) = TraceParent::of(&span) {
            let state = span.trace_state().header();
            envelopes.iter_mut().for_each(|envelope| envelope.trace(&parent, &state));
        }
        SendSpan(Some(context))
    }

    /// Begins the span of a delivery to this listener.
    pub(crate) fn process(&self, event: &Event, listener: &Owner) -> ProcessSpan {
        let Some(tracer) = &self.0 else { return ProcessSpan(None) };
        let creation = context_in(event.headers());
        let links = creation.clone().map(|creation| vec![Link::with_context(creation)]);
        let parent = creation.map_or_else(Context::new, remote);
        let mut attributes = Vec::with_capacity(10);
        attributes.extend(of_operation("process"));
        attributes.extend(of_event(event));
        attributes.extend([
            KeyValue::new("outbox.listener", listener.to_string()),
            KeyValue::new("outbox.attempt", i64::from(event.attempt())),
        ]);
        let builder = SpanBuilder {
            span_kind: Some(SpanKind::Consumer),
            attributes: Some(attributes),
            links,
            ..SpanBuilder::from_name("process")
        };
        ProcessSpan(Some(parent.with_span(tracer.build_with_context(builder, &parent))))
    }
}

/// The span of a write. Dropped, it ends where the write was given up.
pub(crate) struct SendSpan(Option<Context>);

impl SendSpan {
    /// Ends it: the rows are in the transaction, or are not for this reason.
    pub(crate) fn end<E: std::error::Error>(self, error: Option<&E>) {
        let Some(context) = self.0 else { return };
        let span = context.span();
        if let Some(error) = error {
            span.set_attribute(KeyValue::new("error.type", "not_written"));
            span.set_status(failed(&crate::chain(error)));
        }
        span.end();
    }
}

/// The span of a delivery; none where nobody traces, or nobody answers.
pub(crate) struct ProcessSpan(Option<Context>);

impl ProcessSpan {
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// What whatever is done within it goes on with.
    pub(crate) fn trace_parent(&self) -> Option<TraceParent> {
        TraceParent::of(self.0.as_ref()?.span().span_context())
    }

    /// Makes it the current one of this thread, as long as the value lives: for one step of the listener's future.
    pub(crate) fn enter(&self) -> Option<ContextGuard> {
        self.0.as_ref().map(|context| context.clone().attach())
    }

    /// Says what the attempt came to.
    pub(crate) fn outcome(&self, outcome: &Outcome) {
        let Some(context) = &self.0 else { return };
        let (kind, error) = match outcome {
            Outcome::Failed(failure) => (failure.cause.code(), failure.message.as_str()),
            Outcome::Dead(reason) => ("dead", reason.as_str()),
            Outcome::Unroutable(reason) => ("no_listener", reason.as_str()),
            Outcome::Done | Outcome::RetryAfter(_) | Outcome::Busy { .. } => return,
        };
        let span = context.span();
        span.set_attribute(KeyValue::new("error.type", kind));
        span.set_status(failed(error));
    }

    /// Ends it: what the store is to write, or `None` when the claim was lost on the way.
    pub(crate) fn end(self, settlement: Option<&Settlement>) {
        let Some(context) = self.0 else { return };
        let span = context.span();
        let outcome = match settlement {
            Some(Settlement::Done | Settlement::Erased) => "success",
            Some(Settlement::Retry { .. }) => "failure",
            Some(Settlement::Dead { .. }) => "dead",
            Some(Settlement::Deferred { .. }) => "deferred",
            Some(Settlement::Parked { .. }) => "parked",
            Some(Settlement::Released { .. } | Settlement::Behind { .. }) => "released",
            None => {
                span.set_attribute(KeyValue::new("error.type", "lease_lost"));
                span.set_status(failed("lease lost; the host that holds the event now redelivers it"));
                "lost"
            }
        };
        span.set_attribute(KeyValue::new("outbox.outcome", outcome));
        span.end();
    }
}

/// What the headers say of the trace that an event belongs to; `None` when they say nothing, or nothing that can be read.
fn context_in(headers: &Headers) -> Option<SpanContext> {
    let parent = TraceParent::parse(headers.get(TRACEPARENT)?)?;
    let state = headers.get(TRACESTATE).filter(|state| state.len() <= MAX_STATE_BYTES);
    let state = state.and_then(|state| state.parse::<TraceState>().ok()).unwrap_or_default();
    Some(parent.span_context(state))
}

fn remote(span: SpanContext) -> Context {
    Context::new().with_remote_span_context(span)
}

fn links(contexts: impl Iterator<Item = SpanContext>) -> Option<Vec<Link>> {
    let links: Vec<Link> = contexts.map(Link::with_context).collect();
    (!links.is_empty()).then_some(links)
}

fn of_operation(operation: &'static str) -> [KeyValue; 3] {
    [
        KeyValue::new("messaging.system", "outbox"),
        KeyValue::new("messaging.operation.name", operation),
        KeyValue::new("messaging.operation.type", operation),
    ]
}

fn of_write(envelopes: &[Envelope]) -> Vec<KeyValue> {
    let mut attributes = Vec::with_capacity(7);
    attributes.extend(of_operation("send"));
    match envelopes {
        [one] => attributes.extend(of_event(one)),
        [first, rest @ ..] => {
            let count = i64::try_from(envelopes.len()).unwrap_or(i64::MAX);
            attributes.push(KeyValue::new("messaging.batch.message_count", count));
            if rest.iter().all(|envelope| envelope.route() == first.route()) {
                attributes.push(of_route(first.route()));
            }
        }
        [] => {}
    }
    attributes
}

fn of_event(envelope: &Envelope) -> [KeyValue; 3] {
    let bytes = i64::try_from(envelope.payload_bytes().len()).unwrap_or(i64::MAX);
    [
        of_route(envelope.route()),
        KeyValue::new("messaging.message.id", envelope.id().to_string()),
        KeyValue::new("messaging.message.body.size", bytes),
    ]
}

fn of_route(route: &Route) -> KeyValue {
    KeyValue::new("messaging.destination.name", route.to_string())
}

fn failed(error: &str) -> Status {
    Status::error(text::keepable(error, MAX_ERROR_BYTES))
}

#[cfg(test)]
mod tests {
    use opentelemetry_sdk::trace::SdkTracerProvider;

    use super::*;

    const REQUEST: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn elsewhere() -> Caller {
        Caller::Elsewhere(TraceParent::parse(REQUEST).expect("good"))
    }

    fn header(envelope: &Envelope) -> &str {
        envelope.headers().get(TRACEPARENT).unwrap_or_default()
    }

    fn plain() -> Envelope {
        Envelope::new("X").json(&1).expect("good")
    }

    #[test]
    fn the_trace_of_a_request_goes_on_through_the_write_where_it_is_traced_and_around_it_where_it_is_not() {
        let provider = SdkTracerProvider::builder().build();
        let mut events = [plain(), Envelope::new("X").traceparent("its own").json(&1).expect("good")];

        Spans::of(&provider).send(&elsewhere(), &mut events).end::<std::fmt::Error>(None);

        assert_eq!((&header(&events[0])[..36], header(&events[1])), (&REQUEST[..36], "its own"));
        assert_ne!(header(&events[0]), REQUEST, "the write's own span is between them");
        let mut event = [plain()];
        Spans::default().send(&elsewhere(), &mut event).end::<std::fmt::Error>(None);
        assert_eq!(header(&event[0]), REQUEST);
    }

    #[test]
    fn nothing_is_said_of_traces_where_nobody_traces() {
        let (spans, mut events) = (Spans::default(), [plain()]);
        let context = Context::new()
            .with_remote_span_context(TraceParent::parse(REQUEST).expect("good").span_context(TraceState::default()));
        let _inside = context.attach();

        assert!(matches!(spans.caller(), Caller::Nobody));
        spans.send(&spans.caller(), &mut events).end::<std::fmt::Error>(None);
        let [event] = events;
        let process = spans.process(&Event::of(event.clone()).build(), &Owner::Native);

        assert_eq!((header(&event), process.trace_parent().is_none()), ("", true));
    }

    #[test]
    fn a_write_is_linked_to_a_bounded_number_of_the_traces_that_its_events_bring() {
        let provider = SdkTracerProvider::builder().build();
        let brings = |number: usize| {
            Envelope::new("X").traceparent(format!("00-{number:032x}-{number:016x}-01")).json(&1).expect("good")
        };
        let mut events: Vec<Envelope> = (1..=100).map(brings).collect();

        let own = || events.iter().filter_map(|event| context_in(event.headers()));
        assert_eq!(links(own().take(MOST_LINKS)).map(|links| links.len()), Some(32));
        let send = Spans::of(&provider).send(&Caller::Nobody, &mut events);

        assert!(send.0.is_some_and(|context| !context.span().span_context().is_remote()), "none of them is its parent");
        let huge = Headers::new([(TRACEPARENT.to_owned(), REQUEST.to_owned()), (TRACESTATE.to_owned(), "a=b,".repeat(60_000))]);
        let context = context_in(&huge.expect("good")).expect("the parent can be read");
        assert_eq!(context.trace_state().header(), "", "what is too long is left out");
    }
}
