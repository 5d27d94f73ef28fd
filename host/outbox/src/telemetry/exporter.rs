//! Exports spans and metrics of this process until it is shut down.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use opentelemetry::KeyValue;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1 as otlp;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanLimits};
use outbox_listener::Health;
use prost::Message as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::collector::{Collector, Told};
use super::config::{CollectorConfig, Sampling, TelemetryConfig};
use super::points;
use super::queue::{self, Entrance, SpanQueue};
use super::spans::Spans;
use crate::metrics::Snapshot;
use crate::metrics::span_counts::SpanCounts;
use crate::time::system_clock;

/// How long a shutdown waits for the last spans and metrics to be taken.
const LAST_EXPORT: Duration = Duration::from_secs(5);

/// Why telemetry cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// Values that make no sense, all of them.
    #[error("the telemetry has {} faults: {}", .0.len(), .0.join("; "))]
    Config(Vec<String>),
}

/// Exports spans and metrics over OTLP until it is [shut down](Self::shutdown). A handle: its clones share one exporter, which
/// ends when the last is dropped.
///
/// Pass it to each outbox of the process by [`OutboxBuilder::telemetry`](crate::OutboxBuilder::telemetry). A service that has
/// set up OpenTelemetry already does not need it: see
/// [`OutboxBuilder::tracer_provider`](crate::OutboxBuilder::tracer_provider).
#[derive(Clone)]
pub struct Telemetry(Arc<Inner>);

struct Inner {
    /// `None` where no spans are exported.
    traces: Option<Traces>,
    /// The outboxes whose metrics are exported; `None` when no metrics are.
    watched: Option<Arc<Mutex<Vec<Watched>>>>,
    stopped: watch::Sender<bool>,
    health: Health,
    exports: Mutex<Vec<JoinHandle<()>>>,
}

struct Traces {
    provider: SdkTracerProvider,
    queue: Arc<SpanQueue>,
}

/// What one outbox has counted.
pub(crate) trait Numbers: Send + Sync {
    /// What the names begin with.
    fn prefix(&self) -> &str;

    /// All of them as they are now.
    fn snapshot(&self) -> Snapshot;

    /// Whether the outbox is gone, so that they change no more.
    fn is_gone(&self) -> bool;
}

/// The numbers of an outbox, and since when it counts, in nanoseconds of Unix time.
struct Watched {
    numbers: Box<dyn Numbers>,
    start: u64,
}

impl Telemetry {
    /// Starts the exporter. It connects when there is something to send; if a collector cannot be reached, the log says so
    /// once. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the configuration has faults; all of them together.
    pub fn start(config: &TelemetryConfig) -> Result<Self, TelemetryError> {
        let mut faults = config.faults();
        let mut collector = |config: &Option<CollectorConfig>| {
            let made = config.as_ref().map(Collector::new)?;
            made.map_err(|fault| faults.push(fault)).ok().map(Arc::new)
        };
        let (traces, metrics) = (collector(&config.traces), collector(&config.metrics));
        if !faults.is_empty() {
            return Err(TelemetryError::Config(faults));
        }
        let resource = resource(config);
        let of_resource = || ResourceAttributesWithSchema::from(&resource);
        let (stopped, stop) = watch::channel(false);
        let health = Health::default();
        let mut exports = Vec::new();
        let traces = traces.map(|collector| {
            let queue = Arc::new(SpanQueue::new(config.queue_size, config.batch_size));
            let exporting = queue::export(queue.clone(), collector, of_resource(), config.delay, stop.clone());
            exports.push(health.spawn("exporter of spans", exporting));
            let provider = SdkTracerProvider::builder()
                .with_resource(resource.clone())
                .with_sampler(sampler(config.sampling))
                .with_span_limits(SpanLimits::default())
                .with_span_processor(Entrance(queue.clone()))
                .build();
            Traces { provider, queue }
        });
        let watched = metrics.map(|collector| {
            let watched = Arc::<Mutex<Vec<Watched>>>::default();
            let exporting = export_metrics(watched.clone(), collector, of_resource(), config.metric_interval, stop);
            exports.push(health.spawn("exporter of metrics", exporting));
            watched
        });
        Ok(Self(Arc::new(Inner { traces, watched, stopped, health, exports: Mutex::new(exports) })))
    }

    /// How many spans were exported and dropped; `None` when no spans are exported.
    #[must_use]
    pub fn spans(&self) -> Option<Arc<SpanCounts>> {
        self.0.traces.as_ref().map(|traces| traces.queue.counts.clone())
    }

    /// Whether the exporters of spans and metrics run.
    pub(crate) fn health(&self) -> Health {
        self.0.health.clone()
    }

    /// Makes spans for an outbox; none where none are exported.
    pub(crate) fn tracer(&self) -> Spans {
        self.0.traces.as_ref().map_or_else(Spans::default, |traces| Spans::of(&traces.provider))
    }

    /// Exports the metrics of an outbox, too.
    pub(crate) fn watch(&self, numbers: impl Numbers + 'static) {
        if let Some(watched) = &self.0.watched {
            watched
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(Watched { numbers: Box::new(numbers), start: unix_nanos() });
        }
    }

    /// Sends the remaining spans and metrics, within 5 seconds, and ends. Call it after the outboxes were shut down; spans that
    /// end later are dropped. A second call does nothing.
    pub async fn shutdown(&self) {
        self.0.stopped.send_replace(true);
        let exports = std::mem::take(&mut *self.0.exports.lock().unwrap_or_else(PoisonError::into_inner));
        let ends = tokio::time::Instant::now() + LAST_EXPORT;
        let mut is_cut_off = false;
        for mut export in exports {
            if tokio::time::timeout_at(ends, &mut export).await.is_err() {
                export.abort();
                is_cut_off = true;
                // What it held is counted when it has ended.
                let _ = export.await;
            }
        }
        if let Some(traces) = &self.0.traces {
            traces.queue.close();
        }
        if is_cut_off {
            let dropped = self.spans().map_or(0, |spans| spans.dropped.get());
            tracing::warn!(spans_dropped = dropped, "the collector did not take the last telemetry within {LAST_EXPORT:?}");
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stopped.send_replace(true);
    }
}

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telemetry").field("traces", &self.0.traces.is_some()).finish_non_exhaustive()
    }
}

fn resource(config: &TelemetryConfig) -> Resource {
    let of_ours = [
        KeyValue::new("telemetry.sdk.language", "rust"),
        KeyValue::new("telemetry.sdk.name", "opentelemetry"),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
    ];
    let of_config = config.resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let resource = Resource::builder_empty().with_attributes(of_ours).with_attributes(of_config);
    resource.with_service_name(config.service_name.clone()).build()
}

fn sampler(sampling: Sampling) -> Sampler {
    let root = match sampling.ratio {
        ratio if ratio >= 1.0 => Sampler::AlwaysOn,
        ratio if ratio <= 0.0 => Sampler::AlwaysOff,
        ratio => Sampler::TraceIdRatioBased(ratio),
    };
    if sampling.follows_parent { Sampler::ParentBased(Box::new(root)) } else { root }
}

/// Sends the metrics of all outboxes at each interval, and once more when it is told to stop.
async fn export_metrics(
    watched: Arc<Mutex<Vec<Watched>>>,
    collector: Arc<Collector>,
    resource: ResourceAttributesWithSchema,
    interval: Duration,
    mut stopped: watch::Receiver<bool>,
) {
    let mut told = Told::new(collector.clone(), "metrics");
    let resource = otlp::Resource { attributes: resource.attributes.0, ..otlp::Resource::default() };
    let mut stops = false;
    while !stops {
        stops = tokio::time::timeout(interval, stopped.wait_for(|stopped| *stopped)).await.is_ok();
        let scopes = scopes(&watched);
        if scopes.is_empty() {
            continue;
        }
        let metrics = ResourceMetrics { resource: Some(resource.clone()), scope_metrics: scopes, ..ResourceMetrics::default() };
        let request = ExportMetricsServiceRequest { resource_metrics: vec![metrics] };
        match collector.send(Bytes::from(request.encode_to_vec())).await {
            Ok(_) => told.note(Ok(())),
            Err(error) => told.note(Err(&error.to_string())),
        }
    }
}

/// The numbers of each outbox now. One that is gone is told of for the last time.
fn scopes(watched: &Mutex<Vec<Watched>>) -> Vec<ScopeMetrics> {
    let now = unix_nanos();
    let mut scopes = Vec::new();
    watched.lock().unwrap_or_else(PoisonError::into_inner).retain(|Watched { numbers, start }| {
        let stays = !numbers.is_gone();
        let metrics = points::metrics(numbers.prefix(), numbers.snapshot(), *start, now);
        let scope = InstrumentationScope {
            name: "outbox".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        scopes.push(ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() });
        stays
    });
    scopes
}

fn unix_nanos() -> u64 {
    u64::try_from(system_clock().now().as_micros()).unwrap_or(0).saturating_mul(1_000)
}
