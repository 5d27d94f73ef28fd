//! Listeners: native ones, plugins, and relays to sinks.

use serde::de::DeserializeOwned;

use super::OutboxBuilder;
use crate::event::{NameError, Route};
use crate::listener::{Context, DispatchResult, Failure, JsonListener, Listener, Registration};
use crate::store::SharedStore;

impl<S: SharedStore, T: Send + Sync + 'static> OutboxBuilder<S, T> {
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
    /// An event whose payload is not JSON of this type is dead at once, and its error names the field. After an error that the
    /// function returns (any type that can be boxed as an error) the event is tried again as the retry policy says; with a
    /// [`Failure`] the function decides that itself. For a listener with a deadline or other settings of its own, see
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

    /// Sets the sinks: relays send to them, and plugins may publish to those that they were granted.
    #[cfg(feature = "sinks")]
    pub fn sinks(mut self, sinks: crate::sink::Sinks) -> Self {
        self.wanted.sinks = sinks;
        self
    }

    /// Sends the events of a route to a sink, unless the route has a listener or a plugin. Each half of the route may be `*`, any
    /// name: `("Order", "*")`. Where several relays cover a route, the most exact one counts. See
    /// [`RelayConfig`](crate::RelayConfig) for an example.
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

    /// Loads plugins from a directory, and loads them again when their files change.
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

    /// As [`plugins`](Self::plugins), with all settings.
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
}
