//! OpenTelemetry: the spans `send` and `process`, and traces and metrics over OTLP.
//!
//! `spans` makes spans, by whatever tracer the outbox was given: that of [`Telemetry`], which exports by itself, or the
//! application's own. Where it was given none, nothing is made and nothing is allocated. The rest, with the feature `otel`, is one
//! exporter: spans go into a queue of bounded length, and a task of its own sends them; the numbers of `GET /metrics` are sent by
//! another. A collector that is away, slow or silent costs spans, which are counted, and never a delivery.
//!
//! This room does not read the environment: `bin/outbox/config/otel.rs` makes a [`TelemetryConfig`] of the standard variables.

#[cfg(feature = "otel")]
mod collector;
#[cfg(feature = "otel")]
mod config;
#[cfg(feature = "otel")]
mod exporter;
#[cfg(feature = "otel")]
mod points;
#[cfg(feature = "otel")]
mod queue;
#[cfg(feature = "otel")]
mod spans;
#[cfg(not(feature = "otel"))]
#[path = "no_spans.rs"]
mod spans;

#[cfg(feature = "otel")]
pub use config::{CollectorConfig, Sampling, TelemetryConfig};
#[cfg(feature = "otel")]
pub(crate) use exporter::Numbers;
#[cfg(feature = "otel")]
pub use exporter::{Telemetry, TelemetryError};
#[cfg(feature = "otel")]
pub(crate) use points::Points;
pub(crate) use spans::{Caller, ProcessSpan, Spans};

#[cfg(feature = "otel")]
pub use crate::metrics::span_counts::SpanCounts;
