//! OpenTelemetry: the spans `send` and `process`, and traces and metrics over OTLP.
//!
//! `spans` makes spans with the tracer that the outbox was given: that of [`Telemetry`], which has its own exporter, or the
//! application's. Without a tracer nothing is made or allocated. The other modules, with the feature `otel`, are the exporter:
//! one task sends spans from a queue of bounded length, another sends the numbers of `GET /metrics`. If a collector is down or
//! slow, spans are dropped and counted; deliveries never wait for it.
//!
//! This module does not read the environment: `cli/src/config/otel.rs` makes a [`TelemetryConfig`] of the standard variables.

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
#[path = "telemetry/no_spans.rs"]
mod spans;

#[cfg(feature = "otel")]
pub use config::{CollectorConfig, Sampling, TelemetryConfig};
#[cfg(feature = "otel")]
pub(crate) use exporter::Numbers;
#[cfg(feature = "otel")]
pub use exporter::{Telemetry, TelemetryError};
pub(crate) use spans::{Caller, ProcessSpan, Spans};

#[cfg(feature = "otel")]
pub use crate::metrics::span_counts::SpanCounts;
