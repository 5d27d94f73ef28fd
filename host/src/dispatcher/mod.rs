//! Workers: each takes an event from the queue, brings it to its listener, and hands what came of it to the settler.
//!
//! No worker waits for the database, but for an event that is delivered alone: its start is counted in the table first. None
//! holds a connection or a lock of the database while a listener runs.

mod alone;
mod attempt;
mod config;
mod inside;
mod interceptor;
mod lease;
mod overdue;
mod presence;
mod settle;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub use config::{DispatcherConfig, RecordedCosts, Unroutable};
pub(crate) use inside::is_inside;
pub use interceptor::{Interceptor, after, before};
pub(crate) use overdue::Visits;
pub use settle::{Policy, settle};

use crate::health::Health;
use crate::listener::{Listeners, RetryPolicy};
use crate::metrics::Metrics;
use crate::notifier::Notifier;
use crate::order::Order;
use crate::queue::{AtWork, InFlight, Queue};
use crate::settler::{Keeps, Settler, SettlerHandle};
use crate::store::{Settlement, Store};
use crate::telemetry::Spans;
use crate::wake::Wake;

/// How long a stop has after its drain timeout to write the last outcomes.
const LAST_OUTCOMES: Duration = Duration::from_secs(5);
/// How often it is looked whether events lie there beside workers that sleep.
const WAKE: Duration = Duration::from_millis(100);
const A_DAY: Duration = Duration::from_secs(24 * 3600);

/// What workers share.
pub(crate) struct Shared {
    pub(crate) queue: Arc<Queue>,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) interceptors: Vec<Arc<dyn Interceptor>>,
    pub(crate) retry: Arc<dyn RetryPolicy>,
    pub(crate) config: DispatcherConfig,
    pub(crate) metrics: Arc<Metrics>,
    /// How many workers are with a listener right now.
    pub(crate) at_work: Arc<AtWork>,
    /// For events that are delivered alone: their starts are counted in the table.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keeps: Keeps,
    /// `None` where order is not asked for.
    pub(crate) order: Option<Arc<Order>>,
    pub(crate) visits: Arc<Visits>,
    /// Makes a span of each delivery, where somebody traces.
    pub(crate) spans: Spans,
}

/// The running workers, their settler and their lease keeper.
#[doc(hidden)] // an `Outbox` starts and stops it; nobody else can
pub struct Dispatcher {
    shared: Arc<Shared>,
    in_flight: Arc<InFlight>,
    settler: SettlerHandle,
    workers: JoinSet<()>,
    settling: JoinHandle<()>,
    lease_keeper: JoinHandle<()>,
    signals: Signals,
}

/// What ends the parts of a dispatcher, in the order of a stop.
#[derive(Default)]
struct Signals {
    /// When the whole stop must be over; the settler gives up what it could not write by then.
    give_up_at: watch::Sender<Option<Instant>>,
    /// Cuts listeners off.
    cut_off: watch::Sender<bool>,
    /// Ends the settler and the lease keeper.
    stopped: watch::Sender<bool>,
}

impl Dispatcher {
    /// Starts everything.
    pub(crate) fn start(
        shared: Shared,
        in_flight: Arc<InFlight>,
        wake: Arc<Wake>,
        notifier: Arc<Notifier>,
        health: &Health,
    ) -> Self {
        let shared = Arc::new(shared);
        let signals = Signals::default();
        let stop = signals.stopped.subscribe();
        let config = &shared.config;
        let settler = Settler {
            store: shared.store.clone(),
            wake,
            notifier,
            metrics: shared.metrics.clone(),
            queue: shared.queue.clone(),
            at_work: shared.at_work.clone(),
            keeps: shared.keeps,
            order: shared.order.clone(),
            failing: AtomicUsize::new(0),
            batch_size: config.settle_batch,
            delay: config.settle_delay,
            // By then somebody else holds the events, or will.
            patience: config.lease.saturating_mul(10),
            give_up_at: signals.give_up_at.subscribe(),
            gave_up: AtomicBool::new(false),
        };
        let (settler, settling) = settler.start(stop.clone(), health);
        let mut workers = JoinSet::new();
        for worker in 0..shared.config.workers {
            let work = worker::work(worker, shared.clone(), settler.clone(), signals.cut_off.subscribe());
            workers.spawn(health.clone().watched("worker", work));
        }
        // A worker that blocks its thread wakes nobody, though the runtime may have others: then this does.
        let (queue, mut over) = (shared.queue.clone(), signals.stopped.subscribe());
        health.spawn("waker", async move {
            while tokio::time::timeout(WAKE, over.wait_for(|over| *over)).await.is_err() {
                queue.wake_next();
            }
        });
        let (store, metrics) = (shared.store.clone(), shared.metrics.clone());
        let keeper = lease::keep(store, in_flight.clone(), shared.visits.clone(), shared.config.lease, metrics, stop);
        let lease_keeper = tokio::spawn(health.clone().watched("lease keeper", keeper));
        Self { shared, in_flight, settler, workers, settling, lease_keeper, signals }
    }

    /// Where outcomes go.
    pub(crate) fn settler(&self) -> &SettlerHandle {
        &self.settler
    }

    /// How many workers were started.
    pub(crate) fn workers(&self) -> usize {
        self.shared.config.workers
    }

    /// Says that a stop begins. From here on it has the drain timeout and a little more, whatever the database does.
    pub(crate) fn stopping(&self) {
        let patience = self.shared.config.drain_timeout.min(A_DAY) + LAST_OUTCOMES;
        self.signals.give_up_at.send_if_modified(|at| at.is_none() && at.replace(Instant::now() + patience).is_none());
    }

    /// Lets the workers finish what is queued, at most `drain_timeout`; what is left then is given back, not counted. The
    /// outcomes of calls that have ended come first.
    pub async fn stop(mut self) {
        self.stopping();
        self.shared.queue.close();
        let drain_timeout = self.shared.config.drain_timeout;
        let drained = tokio::time::timeout(drain_timeout, all_ended(&mut self.workers)).await.is_ok();
        if !drained {
            let (hot, cold) = self.shared.queue.depth();
            tracing::warn!(
                queued = hot + cold,
                in_flight = self.in_flight.len(),
                "the drain timeout is over; events that are not finished are given back"
            );
            self.signals.cut_off.send_replace(true);
        }
        self.give_back_queued().await;
        if !drained {
            let until = self.signals.give_up_at.borrow().expect("the stop has begun");
            if tokio::time::timeout_at(until.into(), all_ended(&mut self.workers)).await.is_err() {
                tracing::error!(
                    workers = self.workers.len(),
                    "listeners block their threads and cannot be cut off; their events are delivered again when their leases end"
                );
            }
            // A worker may have let an event wait for its listener meanwhile.
            self.give_back_queued().await;
        }
        let Self { settling, lease_keeper, signals, .. } = self;
        signals.stopped.send_replace(true);
        if let Err(error) = settling.await.and(lease_keeper.await) {
            tracing::error!(%error, "the settler did not end well; what it held is delivered again after its lease");
        }
    }

    /// Gives back what is queued or waits for its turn.
    async fn give_back_queued(&self) {
        let mut left = self.shared.queue.drain();
        // The queue is closed: what ends now lets nobody start any more.
        left.extend(self.shared.order.iter().flat_map(|order| order.key_queues().drain()));
        for delivery in left {
            self.settler.send(delivery, Settlement::Released { after: Duration::ZERO }).await;
        }
    }
}

async fn all_ended(workers: &mut JoinSet<()>) {
    while workers.join_next().await.is_some() {}
}
