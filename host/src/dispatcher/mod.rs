//! Workers: each takes an event from the queue, brings it to its listener, and hands what came of it to the settler.
//!
//! No worker ever waits for the database, and none holds a connection or a lock while a listener runs.

mod attempt;
mod config;
mod interceptor;
mod lease;
mod settle;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::task::JoinSet;

pub use config::{DispatcherConfig, Unroutable};
pub use interceptor::Interceptor;
pub use settle::{Policy, settle};

use crate::bell::Bell;
use crate::health::Health;
use crate::listener::{Listeners, Outcome, RetryPolicy};
use crate::metrics::Metrics;
use crate::order::Order;
use crate::queue::{AtWork, Delivery, InFlight, Path, Queue};
use crate::settler::{Keeps, Settler, SettlerHandle};
use crate::store::{Settlement, Store};
use crate::wake::Wake;

/// How long an event steps back that must be delivered alone, when a listener that blocks its thread keeps it from that.
const NOT_ALONE: Duration = Duration::from_secs(30);

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
    /// `None` where order by aggregate is not asked for.
    pub(crate) order: Option<Arc<Order>>,
}

/// The running workers, their settler and their lease keeper.
pub struct Dispatcher {
    shared: Arc<Shared>,
    in_flight: Arc<InFlight>,
    settler: SettlerHandle,
    workers: JoinSet<()>,
    settling: tokio::task::JoinHandle<()>,
    lease_keeper: tokio::task::JoinHandle<()>,
    stopped: tokio::sync::watch::Sender<bool>,
}

impl Dispatcher {
    /// Starts everything.
    pub(crate) fn start(shared: Shared, in_flight: Arc<InFlight>, wake: Arc<Wake>, bell: Arc<Bell>, health: &Health) -> Self {
        let shared = Arc::new(shared);
        let (stopped, stop) = tokio::sync::watch::channel(false);
        let config = &shared.config;
        let settler = Settler {
            store: shared.store.clone(),
            wake,
            bell,
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
            patience_at_stop: config.drain_timeout,
        };
        let (settler, settling) = settler.start(stop.clone(), health);
        let mut workers = JoinSet::new();
        for worker in 0..shared.config.workers {
            workers.spawn(health.clone().watched("worker", work(worker, shared.clone(), settler.clone())));
        }
        let keeper = lease::keep(shared.store.clone(), in_flight.clone(), shared.config.lease, shared.metrics.clone(), stop);
        let lease_keeper = tokio::spawn(health.clone().watched("lease keeper", keeper));
        Self { shared, in_flight, settler, workers, settling, lease_keeper, stopped }
    }

    /// Where outcomes go.
    pub(crate) fn settler(&self) -> &SettlerHandle {
        &self.settler
    }

    /// Lets the workers finish what is queued, at most `drain_timeout`; what is left then is given back, not counted.
    pub async fn stop(mut self) {
        self.shared.queue.close();
        let drained =
            tokio::time::timeout(self.shared.config.drain_timeout, async { while self.workers.join_next().await.is_some() {} })
                .await;
        let mut left = self.shared.queue.drain();
        // Closed before: what ends now lets nobody start any more.
        left.extend(self.shared.order.iter().flat_map(|order| order.lines().drain()));
        if drained.is_err() {
            tracing::warn!(
                queued = left.len(),
                in_flight = self.in_flight.len(),
                "the drain timeout is over; events that are not finished are given back"
            );
            // Cutting the listeners off lets their marks go; what is marked still has its outcome on the way.
            let mut held = self.in_flight.held();
            self.workers.shutdown().await;
            let settling: HashSet<_> = self.in_flight.held().into_iter().collect();
            held.retain(|claim| !settling.contains(claim));
            self.settler.give_back(held).await;
        }
        for delivery in left.drain(..) {
            self.settler.send(delivery, Settlement::Released { after: Duration::ZERO }).await;
        }
        let Self { settling, lease_keeper, stopped, .. } = self;
        stopped.send_replace(true);
        if let Err(error) = settling.await.and(lease_keeper.await) {
            tracing::error!(%error, "the settler did not end well; what it held is delivered again after its lease");
        }
    }
}

async fn work(worker: usize, shared: Arc<Shared>, settler: SettlerHandle) {
    while let Some(delivery) = shared.queue.take().await {
        let deadline = shared.config.deadline;
        let at_work = if delivery.alone {
            shared.at_work.enter_alone(deadline, deadline * 2).await
        } else {
            Some(shared.at_work.enter().await)
        };
        let settlement = match &at_work {
            Some(_) => visit(&shared, worker, &delivery).await,
            None => Some(Settlement::Released { after: NOT_ALONE }),
        };
        // Before the sending: the settler stores at once when nobody is with a listener any more.
        drop(at_work);
        if let Some(settlement) = settlement {
            settler.send(delivery, settlement).await;
        }
        // A worker whose listeners never wait would keep its thread from everybody else.
        tokio::task::coop::consume_budget().await;
    }
}

/// One delivery's visit to its listener; `None` when the claim was lost on the way, and nothing may be written.
async fn visit(shared: &Shared, worker: usize, delivery: &Delivery) -> Option<Settlement> {
    if let Some(reason) = shared.listeners.paused(delivery.event.route()) {
        return Some(Settlement::Parked { reason });
    }
    let found = shared.listeners.find(delivery.event.route());
    let mut awaited = None;
    let outcome = match &found {
        Some(found) => attempt::attempt(shared, worker, delivery, found).await?,
        None => {
            awaited = shared.listeners.awaited(delivery.event.route());
            unroutable(shared, delivery, awaited.as_deref())
        }
    };
    let registration = found.as_ref().map(|found| &found.registration);
    let policy = Policy {
        retry: registration.and_then(|own| own.retry.as_deref()).unwrap_or(&*shared.retry),
        max_attempts: match (&shared.order, registration.and_then(|own| own.max_attempts)) {
            // Where all events stand in one line each has one attempt, whatever its listener allows.
            (Some(order), _) if order.is_one_for_all() => 1,
            (_, own) => own.unwrap_or(shared.config.max_attempts),
        },
        max_deferrals: shared.config.max_deferrals,
        park_unroutable: shared.config.unroutable == Unroutable::Park || awaited.is_some(),
    };
    Some(settle(outcome, delivery.attempts(), delivery.deferrals, &policy))
}

/// What becomes of an event that nobody answers here; `awaited` is why it waits for a listener.
fn unroutable(shared: &Shared, delivery: &Delivery, awaited: Option<&str>) -> Outcome {
    let reason = shared.listeners.unroutable(delivery.event.route());
    match awaited {
        Some(why) => Outcome::Unroutable(format!("{reason}; it waits for one: {why}")),
        // The poller asks the table for routes before it hands on an event that would be given up. This one came straight from
        // its commit, so nobody has asked.
        None if delivery.path == Path::Hot && delivery.fence().is_some() => Outcome::Busy { after: Duration::ZERO },
        None => Outcome::Unroutable(reason),
    }
}
