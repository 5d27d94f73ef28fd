//! Settings of the parts of an outbox; each has a default.

use std::sync::Arc;

use super::OutboxBuilder;
use crate::dispatcher::DispatcherConfig;
use crate::listener::{BreakerConfig, RetryPolicy};
use crate::metrics::MetricsConfig;
use crate::order::OrderConfig;
use crate::poller::PollerConfig;
use crate::purge::PurgeConfig;
use crate::store::SharedStore;
#[cfg(feature = "otel")]
use crate::telemetry::Spans;

impl<S: SharedStore, T: Send + Sync + 'static> OutboxBuilder<S, T> {
    /// Sets when failed events are tried again, for listeners without a policy of their own.
    ///
    /// ```
    /// # use outbox::{OutboxBuilder, SqliteStore};
    /// use std::time::Duration;
    ///
    /// use outbox::listener::Exponential;
    ///
    /// # fn builder(builder: OutboxBuilder<SqliteStore>) -> OutboxBuilder<SqliteStore> {
    /// builder.retry(Exponential { base: Duration::from_secs(1), max: Duration::from_secs(600) })
    /// # }
    /// ```
    pub fn retry(mut self, policy: impl RetryPolicy) -> Self {
        self.wanted.retry = Arc::new(policy);
        self
    }

    /// Sets when the breaker of a listener that keeps failing opens, for listeners without a rule of their own.
    ///
    /// ```
    /// # use outbox::{OutboxBuilder, SqliteStore};
    /// use outbox::listener::BreakerConfig;
    ///
    /// # fn builder(builder: OutboxBuilder<SqliteStore>) -> OutboxBuilder<SqliteStore> {
    /// builder.breaker(BreakerConfig { threshold: 5, ..BreakerConfig::default() })
    /// # }
    /// ```
    pub fn breaker(mut self, config: BreakerConfig) -> Self {
        self.wanted.breaker = config;
        self
    }

    /// Sets how events are dispatched.
    ///
    /// ```
    /// # use outbox::{OutboxBuilder, SqliteStore};
    /// use std::time::Duration;
    ///
    /// use outbox::dispatcher::DispatcherConfig;
    ///
    /// # fn builder(builder: OutboxBuilder<SqliteStore>) -> OutboxBuilder<SqliteStore> {
    /// builder.dispatcher(DispatcherConfig { workers: 16, drain_timeout: Duration::from_secs(5), ..DispatcherConfig::default() })
    /// # }
    /// ```
    pub fn dispatcher(mut self, config: DispatcherConfig) -> Self {
        self.wanted.dispatcher = config;
        self
    }

    /// Sets how many events are handled at once; the other settings of the dispatcher stay.
    pub fn workers(mut self, workers: usize) -> Self {
        self.wanted.dispatcher.workers = workers;
        self
    }

    /// Sets how the table is polled.
    ///
    /// ```
    /// # use outbox::{OutboxBuilder, SqliteStore};
    /// use std::time::Duration;
    ///
    /// use outbox::poller::PollerConfig;
    ///
    /// # fn builder(builder: OutboxBuilder<SqliteStore>) -> OutboxBuilder<SqliteStore> {
    /// // Other programs insert events, and nothing wakes this one.
    /// builder.poller(PollerConfig { interval: Duration::from_millis(250), ..PollerConfig::default() })
    /// # }
    /// ```
    pub fn poller(mut self, config: PollerConfig) -> Self {
        self.wanted.poller = config;
        self
    }

    /// Sets which events are purged, and when. An outbox of the mode [`writer_only`](crate::Mode::WriterOnly) purges only when this
    /// is set: the hosts that deliver purge, and a service that only writes may lack the right. Where change data capture
    /// delivers the events, no host purges: set [`undelivered_retention`](PurgeConfig::undelivered_retention) here, or the table
    /// grows for ever.
    ///
    /// ```
    /// # use outbox::{OutboxBuilder, SqliteStore};
    /// use std::time::Duration;
    ///
    /// use outbox::purge::PurgeConfig;
    ///
    /// # fn builder(builder: OutboxBuilder<SqliteStore>) -> OutboxBuilder<SqliteStore> {
    /// builder.purge(PurgeConfig { retention: Duration::from_secs(24 * 3_600), ..PurgeConfig::default() })
    /// # }
    /// ```
    pub fn purge(mut self, config: PurgeConfig) -> Self {
        self.wanted.purge = Some(config);
        self
    }

    /// Sets what happens to the later events of an aggregate when an earlier one fails; for the mode `ordered_by_aggregate`.
    ///
    /// ```
    /// # use outbox::{OutboxBuilder, SqliteStore};
    /// use outbox::Mode;
    /// use outbox::order::{OnDead, OrderConfig};
    ///
    /// # fn builder(builder: OutboxBuilder<SqliteStore>) -> OutboxBuilder<SqliteStore> {
    /// builder.mode(Mode::OrderedByAggregate).order(OrderConfig { on_dead: OnDead::Skip, ..OrderConfig::default() })
    /// # }
    /// ```
    pub fn order(mut self, config: OrderConfig) -> Self {
        self.wanted.order = config;
        self
    }

    /// Sets how metrics are gathered. Without this call, the metrics that need a statement on the table are left out.
    ///
    /// ```
    /// # use outbox::{Outbox, OutboxBuilder, SqliteStore, StartError};
    /// use outbox::metrics::MetricsConfig;
    ///
    /// # async fn start(builder: OutboxBuilder<SqliteStore>) -> Result<(), StartError> {
    /// let outbox = builder.metrics(MetricsConfig::default()).start().await?;
    /// println!("{}", outbox.prometheus());
    /// # Ok(())
    /// # }
    /// ```
    pub fn metrics(mut self, config: MetricsConfig) -> Self {
        self.wanted.metrics = config;
        self
    }

    /// Exports spans and metrics over OTLP; see [`Telemetry`](crate::telemetry::Telemetry).
    #[cfg(feature = "otel")]
    pub fn telemetry(mut self, telemetry: &crate::telemetry::Telemetry) -> Self {
        self.wanted.spans = telemetry.tracer();
        self.wanted.telemetry = Some(telemetry.clone());
        self
    }

    /// Makes the spans `send` and `process` with your own provider, such as OpenTelemetry's global one. Set the global provider
    /// before this call, which reads it once.
    ///
    /// A write inside a span (OpenTelemetry's, or `tracing`'s with `tracing-opentelemetry`) belongs to the trace of that span.
    /// While a listener runs, `process` is the current span, so spans that the listener begins belong to the delivery.
    ///
    /// ```
    /// # use outbox::{OutboxBuilder, SqliteStore};
    /// # fn builder(builder: OutboxBuilder<SqliteStore>) -> OutboxBuilder<SqliteStore> {
    /// builder.tracer_provider(&outbox::opentelemetry::global::tracer_provider())
    /// # }
    /// ```
    #[cfg(feature = "otel")]
    pub fn tracer_provider(mut self, provider: &dyn opentelemetry::global::ObjectSafeTracerProvider) -> Self {
        self.wanted.spans = Spans::of(provider);
        self
    }
}
