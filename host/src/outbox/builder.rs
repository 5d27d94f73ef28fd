//! What an outbox is made of.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::StartError;
use super::start::Wanted;
use super::{Mode, Outbox};
use crate::dispatcher::{DispatcherConfig, Interceptor};
use crate::event::{NameError, Route};
use crate::listener::{
    BreakerConfig, Context, DispatchResult, Exponential, Failure, JsonListener, Listener, Registration, RetryPolicy,
};
use crate::metrics::MetricsConfig;
use crate::order::OrderConfig;
use crate::poller::PollerConfig;
use crate::purge::PurgeConfig;
use crate::store::SharedStore;
use crate::telemetry::Spans;
use crate::writer::WriterHook;

/// What an outbox is made of: a store of type `S`, and what its typed listeners share, of type `T`.
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
            // Whoever shows no metrics need not ask the table for them.
            metrics: MetricsConfig { interval: Duration::ZERO, ..MetricsConfig::default() },
            retry: Arc::new(Exponential::default()),
            breaker: BreakerConfig::default(),
            listeners: Ok(Vec::new()),
            interceptors: Vec::new(),
            hooks: Vec::new(),
            migrate: false,
            label: "outbox".to_owned(),
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
    /// What typed listeners share: clients, pools, settings. Each of them gets it with its [`Context`].
    ///
    /// Listeners that were added before keep what was set before: call this first.
    pub fn state<U: Send + Sync + 'static>(self, state: U) -> OutboxBuilder<S, U> {
        OutboxBuilder { wanted: self.wanted, state: Arc::new(state) }
    }

    /// Adds a native listener that takes the payload as a value: `async fn(OrderPlaced, Context<T>)`, which is done by
    /// `Ok(())`.
    ///
    /// ```
    /// use outbox::{Answer, Context, Done, OrFail, OutboxBuilder, SqliteStore, dead};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct OrderPlaced {
    ///     order_id: u64,
    ///     quantity: String,
    /// }
    ///
    /// struct Warehouse;
    ///
    /// impl Warehouse {
    ///     async fn reserve(&self, key: &str, quantity: u32) -> Result<(), std::io::Error> {
    /// #       let _ = (key, quantity);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// async fn on_order_placed(order: OrderPlaced, context: Context<Warehouse>) -> Answer {
    ///     let quantity: u32 = order.quantity.parse().or_unrecoverable("reading the quantity")?; // dead: no use in another attempt
    ///     if quantity == 0 {
    ///         return Ok(dead(format!("order {} is of nothing", order.order_id))); // dead as well, without an error
    ///     }
    ///     context.state().reserve(context.id().as_str(), quantity).await?; // any other error: tried again
    ///     Ok(Done)
    /// }
    ///
    /// fn listening(builder: OutboxBuilder<SqliteStore>) -> OutboxBuilder<SqliteStore, Warehouse> {
    ///     builder.state(Warehouse).listener_json("Order", "OrderPlaced", on_order_placed)
    /// }
    /// ```
    ///
    /// A payload that is not JSON of this type never will be: the event is dead at once, with the place of the fault in its
    /// error. An error that the function returns, whatever can be boxed as one, is tried again when the retry policy says; a
    /// [`Failure`] says what follows itself. For settings of its own, such as a deadline, see
    /// [`registration`](Self::registration) and [`JsonListener`].
    pub fn listener_json<P, F, R, A, E>(self, aggregate_type: impl AsRef<str>, event_type: impl AsRef<str>, function: F) -> Self
    where
        P: DeserializeOwned + 'static,
        F: Fn(P, Context<T>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<A, E>> + Send + 'static,
        A: Into<DispatchResult> + 'static,
        E: Into<Failure> + 'static,
    {
        let listener = JsonListener::<P, T, F>::new(self.state.clone(), function);
        self.listener((aggregate_type, event_type), listener)
    }

    /// Another mode, as if the outbox had been made in it.
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

    /// Adds a native listener for a route: `("Order", "OrderPlaced")`, or `"OrderPlaced"` of the global aggregate type.
    ///
    /// ```
    /// # use outbox::{OutboxBuilder, SqliteStore};
    /// use std::sync::Arc;
    ///
    /// use outbox::{Done, Event};
    ///
    /// # fn builder(builder: OutboxBuilder<SqliteStore>) -> OutboxBuilder<SqliteStore> {
    /// builder.listener(("Order", "OrderPlaced"), |event: Arc<Event>| async move {
    ///     println!("{} bytes of {}", event.payload_bytes().len(), event.content_type());
    ///     Ok(Done)
    /// })
    /// # }
    /// ```
    pub fn listener<R>(mut self, route: R, listener: impl Listener) -> Self
    where
        R: TryInto<Route, Error = NameError>,
    {
        self.wanted.listeners = self.wanted.listeners.and_then(|mut listeners| {
            listeners.push(Registration::new(route.try_into()?, listener));
            Ok(listeners)
        });
        self
    }

    /// Adds a native listener with settings of its own.
    ///
    /// ```
    /// # use outbox::{OutboxBuilder, SqliteStore};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use outbox::listener::JsonListener;
    /// use outbox::{Context, Failure, Registration, Route};
    ///
    /// async fn on_order_placed(order_id: u64, _: Context<()>) -> Result<(), Failure> {
    /// #   let _ = order_id;
    ///     Ok(())
    /// }
    ///
    /// # fn builder(builder: OutboxBuilder<SqliteStore>) -> Result<OutboxBuilder<SqliteStore>, outbox::event::NameError> {
    /// let listener = JsonListener::new(Arc::new(()), on_order_placed);
    /// let registration = Registration::new(Route::new("Order", "OrderPlaced")?, listener);
    /// Ok(builder.registration(registration.deadline(Duration::from_secs(5)).concurrency(4)))
    /// # }
    /// ```
    pub fn registration(mut self, registration: Registration) -> Self {
        if let Ok(listeners) = &mut self.wanted.listeners {
            listeners.push(registration);
        }
        self
    }

    /// Where relays send to, and what plugins may be granted to publish to.
    #[cfg(feature = "sinks")]
    pub fn sinks(mut self, sinks: crate::sink::Sinks) -> Self {
        self.wanted.sinks = sinks;
        self
    }

    /// Sends the events of a route to a sink, unless a listener or a plugin answers the route. `*` stands for any name in each half
    /// of it, `("Order", "*")`; of several that cover a route the most exact counts. See [`RelayConfig`](crate::RelayConfig) for an
    /// example.
    #[cfg(feature = "sinks")]
    pub fn relay<R>(mut self, route: R, config: crate::RelayConfig) -> Self
    where
        R: TryInto<Route, Error = NameError>,
    {
        self.wanted.relays = self.wanted.relays.and_then(|mut relays| {
            relays.push((route.try_into()?, config));
            Ok(relays)
        });
        self
    }

    /// Loads plugins from a directory, and swaps them when it changes.
    ///
    /// ```
    /// # use outbox::{OutboxBuilder, SqliteStore};
    /// # fn builder(builder: OutboxBuilder<SqliteStore>) -> OutboxBuilder<SqliteStore> {
    /// builder.plugins("/var/lib/shop/plugins") // NAME.wasm, each with a manifest NAME.toml where it needs one
    /// # }
    /// ```
    #[cfg(feature = "wasm")]
    pub fn plugins(self, directory: impl Into<std::path::PathBuf>) -> Self {
        self.plugins_config(crate::wasm::PluginsConfig { dir: directory.into(), ..crate::wasm::PluginsConfig::default() })
    }

    /// Loads plugins, with settings.
    ///
    /// ```
    /// # use outbox::{OutboxBuilder, SqliteStore};
    /// use outbox::wasm::PluginsConfig;
    ///
    /// # fn builder(builder: OutboxBuilder<SqliteStore>) -> OutboxBuilder<SqliteStore> {
    /// builder.plugins_config(PluginsConfig { dir: "plugins".into(), ..PluginsConfig::default() })
    /// # }
    /// ```
    #[cfg(feature = "wasm")]
    pub fn plugins_config(mut self, config: crate::wasm::PluginsConfig) -> Self {
        self.wanted.plugins = Some(config);
        self
    }

    /// What happens around every attempt; in the order of adding. See [`Interceptor`] for an example.
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.wanted.interceptors.push(Arc::new(interceptor));
        self
    }

    /// What happens around every write; in the order of adding. See [`WriterHook`] for an example.
    pub fn hook(mut self, hook: impl WriterHook) -> Self {
        self.wanted.hooks.push(Arc::new(hook));
        self
    }

    /// When failed events are tried again, unless their listener has a policy of its own.
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

    /// When a listener that keeps breaking is paused, unless it has a rule of its own.
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

    /// How events are dispatched.
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

    /// How many workers; the rest as it is.
    pub fn workers(mut self, workers: usize) -> Self {
        self.wanted.dispatcher.workers = workers;
        self
    }

    /// How the table is polled.
    ///
    /// ```
    /// # use outbox::{OutboxBuilder, SqliteStore};
    /// use std::time::Duration;
    ///
    /// use outbox::poller::PollerConfig;
    ///
    /// # fn builder(builder: OutboxBuilder<SqliteStore>) -> OutboxBuilder<SqliteStore> {
    /// // Where other programs insert, and nobody wakes this one.
    /// builder.poller(PollerConfig { interval: Duration::from_millis(250), ..PollerConfig::default() })
    /// # }
    /// ```
    pub fn poller(mut self, config: PollerConfig) -> Self {
        self.wanted.poller = config;
        self
    }

    /// What is purged. In the mode [`writer_only`](Mode::WriterOnly) an outbox purges nothing unless asked here: a service that
    /// only writes may lack the right, and whoever delivers purges. Where change data capture delivers, nobody does: set
    /// [`undelivered_retention`](PurgeConfig::undelivered_retention), or the table grows for ever.
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

    /// What happens to the later events of an aggregate when an earlier one fails; for `ordered_by_aggregate`.
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

    /// How metrics are shown. Without this the table is not looked at for them: those that cost a statement are left out.
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

    /// Makes the spans `send` and `process` by a provider of your own, such as OpenTelemetry's global one. Set that first: what is
    /// global here is asked for once.
    ///
    /// A write inside a span, one of OpenTelemetry's or one of `tracing`'s with `tracing-opentelemetry`, belongs to its trace; while
    /// a listener runs, `process` is the current span, so that what it begins belongs to the delivery.
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

    /// Brings the schema up to date at the start. Default false: then a missing schema is an error.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.wanted.migrate = migrate;
        self
    }

    /// What people see in `locked_by`, a host name for example.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.wanted.label = label.into();
        self
    }

    /// Checks everything, then starts everything.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing is left running.
    pub async fn start(self) -> Result<Outbox<S>, StartError> {
        self.wanted.start().await
    }
}
