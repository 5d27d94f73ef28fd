//! Starts an outbox.

use std::sync::{Arc, Mutex};

use outbox_listener::Health;
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;

use super::background::Background;
use super::loaded::Loaded;
use super::parts::Parts;
use super::running::Signals;
use super::wanted::{Checked, StartError, Wanted};
use super::{Inner, Outbox};
use crate::dispatcher::Dispatcher;
use crate::listener::{Listeners, Owner};
use crate::node::SinkReport;
use crate::purge::PurgeConfig;
use crate::routes;
use crate::settler::channels;
use crate::store::{Audit, Ownership, SharedStore, Store};
use crate::writer::Writer;

/// What is there when nothing can fail any more.
struct Ready {
    store: Arc<dyn Store>,
    parts: Parts,
    listeners: Arc<Listeners>,
    loaded: Loaded,
    health: Health,
    purge: PurgeConfig,
    sinks: SinkReport,
}

impl<S: SharedStore> Wanted<S> {
    /// Checks everything, then starts everything.
    pub(super) async fn start(mut self) -> Result<Outbox<S>, StartError> {
        let Checked { purge, native, relays } = self.check()?;
        let began = Instant::now();
        let store = self.store.shared();
        let index = self.mode.index();
        if self.migrate {
            let applied = store.migrate_up().await?;
            let added = match index {
                Some(index) => store.add_index(index).await?,
                None => false,
            };
            if let Err(error) = store.note_migration(&Audit::by(self.host_label()), &applied, index.filter(|_| added)).await {
                tracing::warn!(error = %crate::chain(&error), "migration not recorded in the audit log");
            }
        }
        store.check_schema().await?;
        if let Some(index) = index {
            store.check_index(index).await?;
        }
        let schema = began.elapsed();
        let parts = Parts::new(&self.dispatcher, &self.metrics, &self.label);
        let listeners = Arc::new(
            Listeners::with_breaker(self.breaker).counting_in(parts.metrics.calls.clone(), parts.metrics.routes.clone()),
        );
        listeners.replace(Owner::Native, native)?;
        let sinks = self.sink_report(&relays);
        listeners.set_relays(relays)?;
        if self.delivers() {
            routes::learn(&*store, &listeners).await?;
        }
        let health = Health::default();
        let routes = began.elapsed();
        let loaded = Loaded::start(&mut self, &store, &listeners, &health).await?;
        let plugins = began.elapsed();
        // Last of what can fail: from here on everything runs or nothing does. Before anybody learns that this host is there
        // and writes events for it: a host without these listeners must know that somebody has them.
        if self.delivers()
            && let Err(error) = routes::note(&*store, &listeners, loaded.loading()).await
        {
            loaded.end().await;
            return Err(error.into());
        }
        // Where the time of a slow start has gone.
        tracing::debug!(
            schema_ms = schema.as_millis(),
            routes_ms = (routes - schema + (began.elapsed() - plugins)).as_millis(),
            plugins_ms = (plugins - routes).as_millis(),
            "the outbox starts"
        );
        Ok(self.run(Ready { store, parts, listeners, loaded, health, purge, sinks }))
    }

    /// Starts all that runs.
    fn run(self, ready: Ready) -> Outbox<S> {
        let Ready { store, parts, listeners, loaded, health, purge, sinks } = ready;
        let (stopped, stop) = watch::channel(false);
        let (left, leave) = watch::channel(false);
        // Channels first, tasks last: nothing is filled in after it was made.
        let (settler, inbox) = self.delivers().then(|| channels(parts.queue.clone(), parts.metrics.clone())).unzip();
        let hot = parts.hot_path(self.mode.is_hot(), settler.clone());
        let order = self.order();
        let partitions = Arc::new(self.partitions());
        let background = Background {
            wanted: &self,
            purge: &purge,
            store: &store,
            parts: &parts,
            listeners: &listeners,
            health: &health,
            rules: self.rules(&purge),
            order,
            partitions,
            schema: Arc::default(),
            sampled: self.sampled(),
            sinks,
            stop,
        };
        let monitor = background.monitor(&loaded);
        #[cfg(feature = "otel")]
        if let Some(telemetry) = &self.telemetry {
            telemetry.watch(monitor.clone());
        }
        let running = background.start(settler.zip(inbox), loaded, leave);
        let lease = self.dispatcher.lease;
        let ownership = Ownership { owner: parts.owner.clone(), lease };
        let inner = Inner {
            store,
            writer: Writer::new(self.store, ownership, self.hooks, hot.clone(), self.spans),
            hot,
            queue: parts.queue,
            in_flight: parts.in_flight,
            listeners,
            metrics: parts.metrics,
            monitor,
            owner: parts.owner,
            purge,
            lease,
            workers: running.dispatcher.as_ref().map_or(0, Dispatcher::workers),
            health,
            signals: Signals { stopped, left },
            running: Mutex::new(Some(running)),
            ended: OnceCell::new(),
        };
        Outbox { inner: Arc::new(inner) }
    }
}
