//! Builds an outbox: its store, its listeners, and the settings of its parts.

mod listeners;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use super::StartError;
use super::wanted::Wanted;
use super::{Mode, Outbox};
use crate::dispatcher::{DispatcherConfig, Interceptor};
use crate::listener::{BreakerConfig, Exponential};
use crate::metrics::MetricsConfig;
use crate::node::host_name;
use crate::order::OrderConfig;
use crate::poller::PollerConfig;
use crate::store::SharedStore;
use crate::telemetry::Spans;
use crate::writer::WriterHook;

/// Builds an outbox over a store of type `S`. Its typed listeners share a state of type `T`.
#[must_use = "start it"]
pub struct OutboxBuilder<S, T = ()> {
    wanted: Wanted<S>,
    state: Arc<T>,
}

impl<S: SharedStore> OutboxBuilder<S> {
    pub(super) fn new(store: S, mode: Mode) -> Self {
        let wanted = Wanted {
            store,
            mode,
            dispatcher: DispatcherConfig::default(),
            poller: PollerConfig::default(),
            purge: None,
            order: OrderConfig::default(),
            // Without metrics there is no reason to count rows.
            metrics: MetricsConfig { interval: Duration::ZERO, ..MetricsConfig::default() },
            retry: Arc::new(Exponential::default()),
            breaker: BreakerConfig::default(),
            listeners: Ok(Vec::new()),
            interceptors: Vec::new(),
            hooks: Vec::new(),
            migrate: false,
            label: host_name(),
            spans: Spans::default(),
            #[cfg(feature = "otel")]
            telemetry: None,
            #[cfg(feature = "sinks")]
            sinks: crate::sink::Sinks::default(),
            #[cfg(feature = "sinks")]
            relays: Ok(Vec::new()),
            #[cfg(feature = "wasm")]
            plugins: None,
        };
        Self { wanted, state: Arc::default() }
    }
}

impl<S: SharedStore, T: Send + Sync + 'static> OutboxBuilder<S, T> {
    /// Sets the state that typed listeners share and read from their [`Context`](crate::Context): clients, pools, settings.
    ///
    /// Call this before adding listeners: those added earlier keep the earlier state.
    pub fn state<U: Send + Sync + 'static>(self, state: U) -> OutboxBuilder<S, U> {
        OutboxBuilder { wanted: self.wanted, state: Arc::new(state) }
    }

    /// Sets the mode.
    ///
    /// ```
    /// # use outbox::{OutboxBuilder, SqliteStore};
    /// use outbox::Mode;
    ///
    /// # fn builder(builder: OutboxBuilder<SqliteStore>) -> OutboxBuilder<SqliteStore> {
    /// builder.mode(Mode::MultiNode) // as Outbox::multi_node(store)
    /// # }
    /// ```
    pub fn mode(mut self, mode: Mode) -> Self {
        self.wanted.mode = mode;
        self
    }

    /// Adds an interceptor, which runs around every attempt. Several run in the order in which they were added. See [`Interceptor`]
    /// for an example.
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.wanted.interceptors.push(Arc::new(interceptor));
        self
    }

    /// Adds a hook, which runs around every write. Several run in the order in which they were added. See [`WriterHook`] for an
    /// example.
    pub fn hook(mut self, hook: impl WriterHook) -> Self {
        self.wanted.hooks.push(Arc::new(hook));
        self
    }

    /// Whether `start` brings the schema up to date and adds the index that the mode needs. Default false: then a schema that is missing or
    /// too old, or a missing index, is an error.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.wanted.migrate = migrate;
        self
    }

    /// The name of this machine in `locked_by`, in lists of hosts and in the audit log; lists and the audit log add the number of the
    /// process. Default: the name that the kernel knows, or "outbox" where there is no `/proc`.
    ///
    /// Hosts of different machines need different labels: a host that starts replaces a vanished host with the same label, which is then no
    /// longer reported.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.wanted.label = label.into();
        self
    }

    /// Checks all settings, then starts the outbox.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing is left running.
    pub async fn start(self) -> Result<Outbox<S>, StartError> {
        self.wanted.start().await
    }
}
