//! What an outbox is made of, and whether it can be.

use std::sync::Arc;
use std::time::Duration;

use super::Mode;
use crate::dispatcher::{DispatcherConfig, Interceptor, RecordedCosts, Unroutable};
use crate::event::NameError;
use crate::listener::{BreakerConfig, Owner, Registration, RetryPolicy, RouteConflict};
use crate::metrics::{MetricsConfig, Sampled};
use crate::node::SinkReport;
use crate::order::{Order, OrderConfig};
use crate::partition::{Partitions, Share};
use crate::poller::PollerConfig;
use crate::purge::{OnDone, PurgeConfig};
use crate::settlement::SettlementRules;
use crate::store::StoreError;
use crate::telemetry::Spans;
use crate::writer::WriterHook;

/// Why an outbox did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Values that make no sense, all of them.
    #[error("the configuration has {} faults: {}", .0.len(), .0.join("; "))]
    Config(Vec<String>),
    /// A listener was given a name that is none.
    #[error("a listener's route is wrong")]
    Route(#[source] NameError),
    /// Two listeners for one route.
    #[error(transparent)]
    Conflict(#[from] RouteConflict),
    /// The database is not as it must be.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The plugins directory cannot be used.
    #[cfg(feature = "wasm")]
    #[error(transparent)]
    Plugins(#[from] crate::wasm::LoadError),
}

/// What was asked for.
pub(super) struct Wanted<S> {
    pub(super) store: S,
    pub(super) mode: Mode,
    pub(super) dispatcher: DispatcherConfig,
    pub(super) poller: PollerConfig,
    /// `None` for what the mode asks for.
    pub(super) purge: Option<PurgeConfig>,
    pub(super) order: OrderConfig,
    pub(super) metrics: MetricsConfig,
    pub(super) retry: Arc<dyn RetryPolicy>,
    pub(super) breaker: BreakerConfig,
    pub(super) listeners: Result<Vec<Registration>, NameError>,
    pub(super) interceptors: Vec<Arc<dyn Interceptor>>,
    pub(super) hooks: Vec<Arc<dyn WriterHook>>,
    pub(super) migrate: bool,
    pub(super) label: String,
    pub(super) spans: Spans,
    #[cfg(feature = "otel")]
    pub(super) telemetry: Option<crate::telemetry::Telemetry>,
    #[cfg(feature = "sinks")]
    pub(super) sinks: crate::sink::Sinks,
    #[cfg(feature = "sinks")]
    pub(super) relays: Result<Vec<(crate::Route, crate::RelayConfig)>, NameError>,
    #[cfg(feature = "wasm")]
    pub(super) plugins: Option<crate::wasm::PluginsConfig>,
}

/// What is left to start an outbox with once all of it has been found good.
pub(super) struct Checked {
    pub(super) purge: PurgeConfig,
    pub(super) native: Vec<Registration>,
    pub(super) relays: Vec<(Owner, Registration)>,
}

impl<S> Wanted<S> {
    /// Whether this outbox delivers events, and does not only write them.
    pub(super) fn delivers(&self) -> bool {
        self.mode != Mode::WriterOnly
    }

    /// The label under which this host is listed: its name and the number of its process.
    pub(super) fn host_label(&self) -> String {
        format!("{} {}", self.label, std::process::id())
    }

    /// Finds all faults, before anything is started.
    pub(super) fn check(&mut self) -> Result<Checked, StartError> {
        if self.mode == Mode::Ordered {
            self.dispatcher.workers = 1;
            self.dispatcher.max_attempts = 1;
        }
        let default_purge = || PurgeConfig { enabled: self.delivers(), ..PurgeConfig::default() };
        let purge = self.purge.clone().unwrap_or_else(default_purge);
        let mut faults = self.dispatcher.faults("dispatcher");
        faults.extend(self.poller.faults("poller"));
        faults.extend(self.breaker.faults("breaker"));
        for Registration { route, breaker, .. } in self.listeners.iter().flatten() {
            faults.extend(breaker.iter().flat_map(|breaker| breaker.faults(&format!("the breaker of {route}: breaker"))));
        }
        faults.extend(purge.faults("purge"));
        faults.extend(self.metrics.faults("metrics"));
        faults.extend(self.mode.purge_fault(&purge, "purge"));
        let relays = self.check_relays(&mut faults)?;
        if !faults.is_empty() {
            return Err(StartError::Config(faults));
        }
        let native = std::mem::replace(&mut self.listeners, Ok(Vec::new())).map_err(StartError::Route)?;
        Ok(Checked { purge, native, relays })
    }

    #[cfg(feature = "sinks")]
    fn check_relays(&mut self, faults: &mut Vec<String>) -> Result<Vec<(Owner, Registration)>, StartError> {
        let relays = std::mem::replace(&mut self.relays, Ok(Vec::new())).map_err(StartError::Route)?;
        Ok(crate::relay::registrations(&relays, &self.sinks, self.dispatcher.lease, self.dispatcher.workers).unwrap_or_else(
            |found| {
                faults.extend(found);
                Vec::new()
            },
        ))
    }

    #[cfg(not(feature = "sinks"))]
    fn check_relays(&mut self, _: &mut Vec<String>) -> Result<Vec<(Owner, Registration)>, StartError> {
        Ok(Vec::new())
    }

    /// Reports the state of each sink, with the routes of these relays. Keeps no connection open.
    #[cfg(feature = "sinks")]
    pub(super) fn sink_report(&self, relays: &[(Owner, Registration)]) -> SinkReport {
        let mut routes: std::collections::BTreeMap<Arc<str>, Vec<crate::Route>> = std::collections::BTreeMap::new();
        for (owner, registration) in relays {
            if let Owner::Sink(name) = owner {
                routes.entry(name.clone()).or_default().push(registration.route.clone());
            }
        }
        routes.values_mut().for_each(|routes| routes.sort());
        let monitor = self.sinks.monitor();
        Arc::new(move || {
            let mut sinks = monitor.list();
            for sink in &mut sinks {
                sink.routes = routes.get(sink.name.as_str()).cloned().unwrap_or_default();
            }
            sinks
        })
    }

    /// Reports no sinks.
    #[cfg(not(feature = "sinks"))]
    pub(super) fn sink_report(&self, _: &[(Owner, Registration)]) -> SinkReport {
        Arc::new(Vec::new)
    }

    /// What the configuration says of settlements.
    pub(super) fn rules(&self, purge: &PurgeConfig) -> SettlementRules {
        SettlementRules {
            erase_done: purge.on_done == OnDone::Delete,
            dead_blocks: self.mode == Mode::OrderedByAggregate && self.order.dead_blocks(),
            all_costs: self.dispatcher.record == RecordedCosts::All,
            park_unroutable: self.dispatcher.unroutable == Unroutable::Park,
            unroutable_grace: match self.dispatcher.unroutable {
                // In one queue of all events, no other would be delivered meanwhile.
                Unroutable::Dead if self.mode != Mode::Ordered => self.dispatcher.unroutable_grace,
                Unroutable::Dead | Unroutable::Park => Duration::ZERO,
            },
            max_deferrals: self.dispatcher.max_deferrals,
            max_starts: self.dispatcher.max_starts,
        }
    }

    /// What the table was last seen to hold; `None` where nobody looks. Who only writes may lack the right to read.
    pub(super) fn sampled(&self) -> Option<Arc<Sampled>> {
        let interval = self.metrics.interval;
        (self.delivers() && !interval.is_zero()).then(|| Arc::new(Sampled::every(interval)))
    }

    /// What keeps order, where that is asked for.
    pub(super) fn order(&self) -> Option<Arc<Order>> {
        match self.mode {
            Mode::Ordered => Some(Arc::new(Order::one_for_all())),
            Mode::OrderedByAggregate => Some(Arc::new(Order::new(self.order, self.dispatcher.key_queue_limits()))),
            Mode::SingleNode | Mode::MultiNode | Mode::WriterOnly => None,
        }
    }

    /// The partitions that this outbox is to hold; none yet.
    pub(super) fn partitions(&self) -> Partitions {
        let share = match self.mode {
            Mode::SingleNode | Mode::Ordered => Share::Whole,
            Mode::MultiNode | Mode::OrderedByAggregate | Mode::WriterOnly => Share::Even,
        };
        let keeps_order = matches!(self.mode, Mode::Ordered | Mode::OrderedByAggregate);
        Partitions::new(share, keeps_order, self.dispatcher.reported_room())
    }
}
