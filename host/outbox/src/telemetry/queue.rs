//! Finished spans on their way to the collector: a queue of bounded length that never waits, and the task that empties it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use opentelemetry::Context;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use prost::Message as _;
use tokio::sync::{Notify, watch};

use super::collector::{Collector, Told};
use crate::metrics::span_counts::SpanCounts;
use crate::text::keepable;

/// The most of what a collector says of spans that it left out.
const MAX_TOLD: usize = 200;

/// Finished spans that wait to be sent.
#[derive(Debug)]
pub(super) struct SpanQueue {
    /// `None` once nobody takes any more.
    waiting: Mutex<Option<VecDeque<SpanData>>>,
    /// Told when there are enough for a request.
    full: Notify,
    size: usize,
    batch: usize,
    pub(super) counts: Arc<SpanCounts>,
}

impl SpanQueue {
    pub(super) fn new(size: usize, batch: usize) -> Self {
        Self { waiting: Mutex::new(Some(VecDeque::new())), full: Notify::new(), size, batch, counts: Arc::default() }
    }

    fn push(&self, span: SpanData) {
        let mut waiting = self.lock();
        let Some(spans) = waiting.as_mut().filter(|spans| spans.len() < self.size) else {
            drop(waiting);
            self.counts.dropped.increment();
            return;
        };
        spans.push_back(span);
        // Once for a batch: to wake a task for each span would cost more than the span.
        let is_enough = spans.len() == self.batch;
        drop(waiting);
        if is_enough {
            self.full.notify_one();
        }
    }

    /// The first spans, as many as go into a request.
    fn take(&self) -> Vec<SpanData> {
        let mut waiting = self.lock();
        let spans = waiting.as_mut().map(|spans| spans.drain(..self.batch.min(spans.len())).collect());
        spans.unwrap_or_default()
    }

    fn len(&self) -> usize {
        self.lock().as_ref().map_or(0, VecDeque::len)
    }

    /// Drops what still waits, and what comes later.
    pub(super) fn close(&self) {
        let left = self.lock().take().map_or(0, |spans| spans.len());
        SpanCounts::add(&self.counts.dropped, left);
    }

    fn lock(&self) -> MutexGuard<'_, Option<VecDeque<SpanData>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queue as the tracer sees it. Nothing in it waits: it is called where a listener has just answered.
#[derive(Debug)]
pub(super) struct Entrance(pub(super) Arc<SpanQueue>);

impl SpanProcessor for Entrance {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() {
            self.0.push(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.full.notify_one();
        Ok(())
    }

    /// Whoever started the export ends it: see [`Telemetry::shutdown`](super::Telemetry::shutdown).
    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Sends what is in the queue until it is told to stop; then all that is in it by then.
pub(super) async fn export(
    queue: Arc<SpanQueue>,
    collector: Arc<Collector>,
    resource: ResourceAttributesWithSchema,
    delay: Duration,
    mut stopped: watch::Receiver<bool>,
) {
    let mut told = Told::new(collector.clone(), "spans");
    let mut stops = false;
    while !stops {
        stops = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => true,
            () = queue.full.notified() => false,
            () = tokio::time::sleep(delay) => false,
        };
        // Those that are there now. What comes meanwhile waits for its own request, which is a larger one then.
        let mut left = queue.len();
        while left > 0 {
            let batch = queue.take();
            left = left.saturating_sub(batch.len().max(1));
            send(&queue.counts, &collector, &resource, batch, &mut told).await;
        }
    }
}

async fn send(
    counts: &SpanCounts,
    collector: &Collector,
    resource: &ResourceAttributesWithSchema,
    batch: Vec<SpanData>,
    told: &mut Told,
) {
    let sent = batch.len();
    // A stop that cuts this short loses them.
    let lost = Lost { counts, spans: sent };
    let request = ExportTraceServiceRequest { resource_spans: group_spans_by_resource_and_scope(batch, resource) };
    match collector.send(Bytes::from(request.encode_to_vec())).await {
        Ok(answer) => {
            let answer = ExportTraceServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
            let refused = answer.as_ref().map_or(0, |partial| usize::try_from(partial.rejected_spans).unwrap_or(0)).min(sent);
            lost.only(refused);
            SpanCounts::add(&counts.exported, sent - refused);
            match answer.filter(|_| refused > 0) {
                None => told.note(Ok(())),
                Some(partial) => told.note(Err(&keepable(&partial.error_message, MAX_TOLD))),
            }
        }
        Err(error) => {
            drop(lost);
            told.note(Err(&error.to_string()));
        }
    }
}

/// Counts spans as dropped when it is dropped.
struct Lost<'a> {
    counts: &'a SpanCounts,
    spans: usize,
}

impl Lost<'_> {
    fn only(mut self, spans: usize) {
        self.spans = spans;
    }
}

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        SpanCounts::add(&self.counts.dropped, self.spans);
    }
}
