//! Wires the modules together, starts and stops them.

mod api_handle;
mod background;
mod builder;
mod enqueue;
mod loaded;
mod mode;
mod monitor;
mod parts;
mod running;
mod start;
#[cfg(feature = "wasm")]
mod state;
mod wanted;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;

#[doc(hidden)] // for our own HTTP API
pub use api_handle::ApiHandle;
pub use builder::OutboxBuilder;
pub use mode::Mode;
pub use monitor::Monitor;
pub use wanted::StartError;

use outbox_listener::Health;

use crate::dead::DeadEvents;
use crate::dispatcher::is_inside;
use crate::event::OwnerId;
use crate::listener::Listeners;
use crate::metrics::Metrics;
use crate::purge::PurgeConfig;
use crate::queue::{InFlight, Queue};
use crate::store::{SharedStore, Store, TransactionalStore};
use crate::writer::{HotPath, OutboxTransaction, WriteError, Writer};
use running::{Running, Signals};

/// A running outbox: it writes, delivers, and cleans up until it is shut down.
///
/// A handle: its clones are the same outbox, and cost nothing. [`shutdown`](Self::shutdown) on any of them stops it for all. Where
/// nobody calls that, everything ends when the last clone is dropped, and claims end with their leases. A listener that holds a
/// clone of its own outbox keeps it from ending so: give it the [`writer`](Self::writer), which keeps nothing running.
///
/// ```
/// use std::sync::Arc;
///
/// use outbox::store::sqlite::SqliteOptions;
/// use outbox::{Done, Envelope, Event, Outbox, SqliteStore};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let file = directory.path().join("shop.db");
/// let store = SqliteStore::open_with(SqliteOptions::new(file).create(true)).await?; // or PostgresStore::connect, MySqlStore::connect
/// let outbox = Outbox::single_node(store)
///     .migrate(true)
///     .listener(("Order", "OrderPlaced"), |event: Arc<Event>| async move {
///         println!("{} of {}", event.id(), event.route());
///         Ok(Done)
///     })
///     .start()
///     .await?;
///
/// let mut tx = outbox.begin().await?;
/// tx.write(Envelope::new("OrderPlaced").aggregate("Order", "42").json(&99.5)?).await?;
/// tx.commit().await?;
/// outbox.shutdown().await; // finishes what is queued
/// assert_eq!(outbox.store().stats().await?.done, 1);
/// # Ok(())
/// # }
/// ```
pub struct Outbox<S: SharedStore> {
    inner: Arc<Inner<S>>,
}

impl<S: SharedStore> Clone for Outbox<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

/// What all clones of a handle share.
struct Inner<S: SharedStore> {
    store: Arc<dyn Store>,
    writer: Writer<S>,
    hot: Arc<HotPath>,
    queue: Arc<Queue>,
    in_flight: Arc<InFlight>,
    listeners: Arc<Listeners>,
    metrics: Arc<Metrics>,
    monitor: Monitor,
    owner: OwnerId,
    /// For the HTTP API, which shows it.
    purge: PurgeConfig,
    /// As above.
    lease: Duration,
    workers: usize,
    health: Health,
    signals: Signals,
    /// `None` once a shutdown has taken it.
    running: Mutex<Option<Running>>,
    /// Set when the shutdown has ended.
    ended: OnceCell<()>,
}

impl<S: SharedStore> Outbox<S> {
    /// An outbox in the [`mode`](OutboxBuilder::mode) that is said next, [`single_node`](Self::single_node) unless it is.
    pub fn builder(store: S) -> OutboxBuilder<S> {
        OutboxBuilder::new(store, Mode::default())
    }

    /// An outbox for a database that this process has for itself: hot path and poller.
    pub fn single_node(store: S) -> OutboxBuilder<S> {
        OutboxBuilder::new(store, Mode::SingleNode)
    }

    /// An outbox for a database that several processes share: hot path and poller.
    pub fn multi_node(store: S) -> OutboxBuilder<S> {
        OutboxBuilder::new(store, Mode::MultiNode)
    }

    /// An outbox that delivers in the order of insertion: poller only, one worker, one attempt. Of several hosts one works, and
    /// another takes over when it is gone. See [`Mode::Ordered`] for what holds up all later events.
    pub fn ordered(store: S) -> OutboxBuilder<S> {
        OutboxBuilder::new(store, Mode::Ordered)
    }

    /// An outbox that delivers the events of one aggregate one after the other, in the order of their insertion, over any
    /// number of workers and hosts; events of different aggregates go side by side. Poller only.
    pub fn ordered_by_aggregate(store: S) -> OutboxBuilder<S> {
        OutboxBuilder::new(store, Mode::OrderedByAggregate)
    }

    /// An outbox that only writes: somebody else (another process, change data capture) delivers.
    pub fn writer_only(store: S) -> OutboxBuilder<S> {
        OutboxBuilder::new(store, Mode::WriterOnly)
    }

    /// Writes events, in a transaction that you own or in one of its own.
    pub fn writer(&self) -> &Writer<S> {
        &self.inner.writer
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// Dead events.
    #[must_use]
    pub fn dead(&self) -> DeadEvents {
        DeadEvents::new(self.inner.store.clone())
    }

    /// Which listener answers which route.
    pub fn listeners(&self) -> &Arc<Listeners> {
        &self.inner.listeners
    }

    /// What was counted since the start.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.inner.metrics
    }

    /// How many events are queued: hot, cold.
    #[must_use]
    pub fn queue_depth(&self) -> (usize, usize) {
        self.inner.queue.depth()
    }

    /// How many events are in this process's hands.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.inner.in_flight.len()
    }

    /// How many events are with their listeners at once, at most; 0 in a mode that delivers nothing.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.inner.workers
    }

    /// Whether the caller is a listener or an interceptor of this outbox, so that it must not wait for all of them.
    pub(crate) fn is_called_by_listener(&self) -> bool {
        is_inside(&self.inner.queue)
    }

    /// Which events are in this process's hands.
    pub(crate) fn hands(&self) -> &InFlight {
        &self.inner.in_flight
    }

    /// Lets the poller look at the table now.
    pub(crate) fn look(&self) {
        self.inner.hot.wake.now();
    }

    /// Who this process is in `locked_by`.
    pub fn owner(&self) -> &OwnerId {
        &self.inner.owner
    }

    /// The plugins, when a directory was given; `None` once the outbox is shut down.
    #[cfg(feature = "wasm")]
    #[must_use]
    pub fn plugins(&self) -> Option<Arc<crate::wasm::Plugins>> {
        self.inner
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .and_then(|running| running.loaded.plugins.clone())
    }

    /// Waits until a part that must run has broken by a panic of ours, and tells which; for ever when none does. Events are
    /// safe in the table; shut down and start again.
    pub async fn broken(&self) -> &'static str {
        self.inner.health.broken().await
    }

    /// Stops everything: nothing more is purged or claimed, what is queued is finished within the drain timeout, and claims on
    /// what is left are given back, uncounted. Returns when all that has ended, at the latest 9 s after the drain timeout: what a
    /// database that does not answer has not done by then waits for its lease. A second call waits for the first.
    ///
    /// A listener or an interceptor may stop its own outbox: the future returns at once then, and the stop goes on by itself,
    /// since it waits for all listeners. A listener that waits for the end in any other way, as through a task that it has
    /// spawned, is cut off after the drain timeout, and its event is delivered again.
    ///
    /// Nothing happens before the future is awaited. Dropped after that, the shutdown goes on by itself.
    pub fn shutdown(&self) -> impl Future<Output = ()> + Send + 'static + use<S> {
        let (inner, queue) = (self.inner.clone(), self.inner.queue.clone());
        async move {
            // In a task of its own: half a stop would leave claims behind.
            let stopping = tokio::spawn(async move {
                inner.ended.get_or_init(|| inner.stop()).await;
            });
            if is_inside(&queue) {
                return;
            }
            if let Err(join) = stopping.await
                && join.is_panic()
            {
                std::panic::resume_unwind(join.into_panic());
            }
        }
    }
}

impl<S: TransactionalStore + Clone> Outbox<S> {
    /// Begins a transaction that knows the outbox.
    ///
    /// # Errors
    /// The database's own.
    pub async fn begin(&self) -> Result<OutboxTransaction<S>, WriteError> {
        self.inner.writer.begin().await
    }

    /// Makes a transaction of the driver's know the outbox. See [`Writer::adopt`].
    ///
    /// ```
    /// use outbox::sqlx::{self, Sqlite, SqlitePool, Transaction};
    /// use outbox::{Envelope, Outbox, SqliteStore};
    ///
    /// async fn insert_order(tx: &mut Transaction<'_, Sqlite>) -> Result<(), sqlx::Error> {
    ///     sqlx::query("INSERT INTO orders VALUES (42, 99.5)").execute(&mut **tx).await.map(drop)
    /// }
    ///
    /// async fn place_order(outbox: &Outbox<SqliteStore>, pool: &SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
    ///     let mut tx = outbox.adopt(pool.begin().await?);
    ///     insert_order(tx.inner_mut()).await?; // what takes the driver's transaction
    ///     tx.write(Envelope::new("OrderPlaced").aggregate("Order", "42").json(&99.5)?).await?;
    ///     tx.commit().await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn adopt(&self, transaction: S::Transaction) -> OutboxTransaction<S> {
        self.inner.writer.adopt(transaction)
    }
}

impl<S: SharedStore> Inner<S> {
    /// Takes what runs, so that it is stopped once.
    async fn stop(&self) {
        self.hot.stopped.store(true, Ordering::Release);
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running {
            running.stop(&self.signals).await;
        }
        self.queue.close();
    }
}

impl<S: SharedStore> Drop for Inner<S> {
    fn drop(&mut self) {
        self.hot.stopped.store(true, Ordering::Release);
        self.signals.stopped.send_replace(true);
        self.signals.left.send_replace(true);
        self.queue.close();
    }
}

impl<S: SharedStore> std::fmt::Debug for Outbox<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("owner", &self.inner.owner).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests;
