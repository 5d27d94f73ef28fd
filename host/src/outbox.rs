//! Wires the rooms together, starts and stops them.

mod builder;
mod enqueue;
#[cfg(feature = "http")]
mod inside;
mod mode;
mod parts;
#[cfg(feature = "wasm")]
mod state;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use builder::{OutboxBuilder, StartError};
#[cfg(feature = "http")]
pub(crate) use inside::Inside;
pub use mode::Mode;

use crate::dead::DeadEvents;
use crate::dispatcher::Dispatcher;
use crate::event::OwnerId;
use crate::health::Health;
use crate::listener::Listeners;
use crate::metrics::Metrics;
use crate::purge::Purge;
use crate::queue::{InFlight, Queue};
use crate::store::{SharedStore, Store, TransactionalStore};
use crate::writer::{HotPath, OutboxTransaction, WriteError, Writer};

/// A running outbox: it writes, delivers, and cleans up until it is shut down. Source: specification 20.
pub struct Outbox<S: SharedStore> {
    store: Arc<dyn Store>,
    writer: Writer<S>,
    hot: Arc<HotPath>,
    queue: Arc<Queue>,
    in_flight: Arc<InFlight>,
    listeners: Arc<Listeners>,
    metrics: Arc<Metrics>,
    owner: OwnerId,
    /// What was asked for, for whoever tells of it.
    #[cfg(feature = "http")]
    mode: Mode,
    #[cfg(feature = "http")]
    purge: crate::purge::PurgeConfig,
    running: Running,
}

/// What runs, each part `None` in a mode without it.
struct Running {
    #[cfg(feature = "wasm")]
    plugins: Option<crate::wasm::Plugins>,
    dispatcher: Option<Dispatcher>,
    poller: Option<JoinHandle<()>>,
    learner: Option<JoinHandle<()>>,
    purge: Option<(Arc<Purge>, JoinHandle<()>)>,
    routes: Option<JoinHandle<()>>,
    heartbeat: Option<JoinHandle<()>>,
    notifiers: Vec<JoinHandle<()>>,
    stopped: watch::Sender<bool>,
    /// Set last: as long as this process holds events, it is a node.
    left: watch::Sender<bool>,
    health: Health,
}

impl<S: SharedStore> Outbox<S> {
    /// An outbox for a database that this process has for itself: hot path and poller.
    pub fn single_node(store: S) -> OutboxBuilder<S> {
        OutboxBuilder::new(store, Mode::SingleNode)
    }

    /// An outbox for a database that several processes share: hot path and poller.
    pub fn multi_node(store: S) -> OutboxBuilder<S> {
        OutboxBuilder::new(store, Mode::MultiNode)
    }

    /// An outbox that delivers in the order of insertion: poller only, one worker, one attempt. Of several nodes one works, and
    /// another takes over when it is gone. See [`Mode::Ordered`] for what holds up all later events.
    pub fn ordered(store: S) -> OutboxBuilder<S> {
        OutboxBuilder::new(store, Mode::Ordered)
    }

    /// An outbox that delivers the events of one aggregate one after the other, in the order of their insertion, over any
    /// number of workers and nodes; events of different aggregates go side by side. Poller only.
    pub fn ordered_by_aggregate(store: S) -> OutboxBuilder<S> {
        OutboxBuilder::new(store, Mode::OrderedByAggregate)
    }

    /// An outbox that only writes: somebody else (another process, change data capture) delivers.
    pub fn writer_only(store: S) -> OutboxBuilder<S> {
        OutboxBuilder::new(store, Mode::WriterOnly)
    }

    /// Writes events, in a transaction that you own or in one of its own.
    pub fn writer(&self) -> &Writer<S> {
        &self.writer
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Dead events.
    #[must_use]
    pub fn dead(&self) -> DeadEvents {
        DeadEvents::new(self.store.clone())
    }

    /// Which listener answers which route.
    pub fn listeners(&self) -> &Arc<Listeners> {
        &self.listeners
    }

    /// What was counted since the start.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// How many events are queued: hot, cold.
    #[must_use]
    pub fn queue_depth(&self) -> (usize, usize) {
        self.queue.depth()
    }

    /// How many events are in this process's hands.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// How many events are with their listeners at once, at most; 0 in a mode that delivers nothing.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.running.dispatcher.as_ref().map_or(0, Dispatcher::workers)
    }

    /// Who this process is in `locked_by`.
    pub fn owner(&self) -> &OwnerId {
        &self.owner
    }

    /// The plugins, when a directory was given.
    #[cfg(feature = "wasm")]
    pub fn plugins(&self) -> Option<&crate::wasm::Plugins> {
        self.running.plugins.as_ref()
    }

    /// Waits until a part that must run has broken by a panic of ours, and tells which; for ever when none does. Events are
    /// safe in the table; shut down and start again.
    pub async fn broken(&self) -> &'static str {
        self.running.health.broken().await
    }

    /// Stops everything in order: purge, poller, dispatcher. What is queued is finished within the drain timeout; claims on
    /// what is left are given back, uncounted.
    pub async fn shutdown(mut self) {
        self.hot.stopped.store(true, Ordering::Release);
        if let Some((purge, _)) = &self.running.purge {
            purge.close();
        }
        self.running.stopped.send_replace(true);
        if let Some(dispatcher) = &self.running.dispatcher {
            dispatcher.stopping();
        }
        if let Some((_, task)) = self.running.purge.take() {
            ended("purge", task).await;
        }
        if let Some(task) = self.running.poller.take() {
            ended("poller", task).await;
        }
        if let Some(task) = self.running.learner.take() {
            ended("learner", task).await;
        }
        if let Some(dispatcher) = self.running.dispatcher.take() {
            dispatcher.stop().await;
        }
        if let Some(task) = self.running.routes.take() {
            ended("route keeper", task).await;
        }
        for task in std::mem::take(&mut self.running.notifiers) {
            ended("notifier", task).await;
        }
        self.running.left.send_replace(true);
        if let Some(task) = self.running.heartbeat.take() {
            ended("heartbeat", task).await;
        }
        #[cfg(feature = "wasm")]
        if let Some(plugins) = self.running.plugins.take() {
            plugins.stop().await;
        }
    }
}

impl<S: TransactionalStore + Clone> Outbox<S> {
    /// Begins a transaction that knows the outbox.
    ///
    /// # Errors
    /// The database's own.
    pub async fn begin(&self) -> Result<OutboxTransaction<S>, WriteError> {
        OutboxTransaction::begin(self.writer.clone()).await
    }
}

/// Dropped without a shutdown, everything still ends; claims end with their leases.
impl<S: SharedStore> Drop for Outbox<S> {
    fn drop(&mut self) {
        self.hot.stopped.store(true, Ordering::Release);
        self.running.stopped.send_replace(true);
        self.running.left.send_replace(true);
        self.queue.close();
    }
}

impl<S: SharedStore> std::fmt::Debug for Outbox<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("owner", &self.owner).finish_non_exhaustive()
    }
}

async fn ended(what: &str, task: JoinHandle<()>) {
    if let Err(error) = task.await {
        tracing::error!(%error, "the {what} did not end well");
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests;
