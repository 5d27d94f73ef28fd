//! Workers: each takes an event from the queue, calls its listener, and hands the outcome to the settler.
//!
//! Workers wait for the database only if the settler's backlog, or its memory for effects, is full, or if an event is delivered alone. No
//! worker holds a connection or a lock of the database while a listener runs.

mod alone;
mod attempt;
mod claim_keeper;
mod config;
mod inside;
mod interceptor;
mod overdue;
mod presence;
mod runtime_lag;
mod shared;
mod stop;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

pub use config::{DispatcherConfig, RecordedCosts, Unroutable};
pub(crate) use inside::is_inside;
pub use interceptor::{Interceptor, after, before};
pub(crate) use overdue::Visits;
pub(crate) use shared::Shared;
pub(crate) use stop::StopTimes;

use outbox_listener::Health;

use crate::notifier::Notifier;
use crate::queue::InFlight;
use crate::recurring::{Outage, Recurring};
use crate::refusals::Refusals;
use crate::settler::{BatchSize, Places, Settler, SettlerHandle, SettlerInbox};
use crate::wake::Wake;
use claim_keeper::ClaimKeeper;
use runtime_lag::RuntimeLag;

/// How often sleeping workers are woken if events are queued.
const WAKE_WORKERS_EVERY: Duration = Duration::from_millis(100);

/// The running workers, their settler and their claim keeper.
pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
    in_flight: Arc<InFlight>,
    settler: SettlerHandle,
    workers: JoinSet<()>,
    settling: JoinHandle<()>,
    claim_keeper: JoinHandle<()>,
    signals: Signals,
}

/// The signals that end the parts of a dispatcher, in the order of a stop.
#[derive(Default)]
struct Signals {
    /// When the whole stop must be over; the settler gives up what it could not write by then.
    give_up_at: watch::Sender<Option<Instant>>,
    /// Cuts listeners off.
    cut_off: watch::Sender<bool>,
    /// Ends the settler and the claim keeper.
    stopped: watch::Sender<bool>,
}

impl Dispatcher {
    /// Starts everything. `settler` is the handle that belongs to `inbox`.
    pub(crate) fn start(
        shared: Shared,
        settler: SettlerHandle,
        inbox: SettlerInbox,
        in_flight: Arc<InFlight>,
        wake: Arc<Wake>,
        notifier: Arc<Notifier>,
        health: &Health,
    ) -> Self {
        let shared = Arc::new(shared);
        let signals = Signals::default();
        let stop = signals.stopped.subscribe();
        let config = &shared.config;
        let settling = Settler {
            store: shared.store.clone(),
            wake,
            notifier,
            metrics: shared.metrics.clone(),
            failures: settler.failures().clone(),
            queue: shared.queue.clone(),
            at_work: shared.at_work.clone(),
            rules: shared.rules,
            order: shared.order.clone(),
            failing: AtomicUsize::new(0),
            batch_size: BatchSize::new(config.settle_batch),
            delay: config.settle_delay,
            lease: config.lease,
            places: Places::default(),
            give_up_at: signals.give_up_at.subscribe(),
            gave_up: AtomicBool::new(false),
        };
        let settling = settling.start(inbox, stop.clone(), health);
        let mut workers = JoinSet::new();
        for worker in 0..shared.config.workers {
            let work = worker::work(worker, shared.clone(), settler.clone(), signals.cut_off.subscribe());
            workers.spawn(health.clone().watched("worker", work));
        }
        // A worker that blocks its thread wakes no other worker, though other threads may be free; this task does.
        let (queue, mut over) = (shared.queue.clone(), signals.stopped.subscribe());
        let lag = Arc::new(RuntimeLag::new(WAKE_WORKERS_EVERY, Instant::now()));
        let ticked = lag.clone();
        health.spawn("waker", async move {
            while tokio::time::timeout(WAKE_WORKERS_EVERY, over.wait_for(|over| *over)).await.is_err() {
                queue.wake_next();
                ticked.tick(Instant::now());
            }
        });
        let claim_keeper = ClaimKeeper {
            store: shared.store.clone(),
            in_flight: in_flight.clone(),
            visits: shared.visits.clone(),
            lag,
            partitions: shared.partitions.clone(),
            lease: shared.config.lease,
            is_ordered: shared.order.is_some(),
            metrics: shared.metrics.clone(),
            refused: Refusals::default(),
            outage: Outage::default(),
        };
        let claim_keeper = health.spawn("claim keeper", claim_keeper.run(stop));
        Self { shared, in_flight, settler, workers, settling, claim_keeper, signals }
    }

    /// How many workers were started.
    pub(crate) fn workers(&self) -> usize {
        self.shared.config.workers
    }
}
