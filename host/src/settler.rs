//! Writes outcomes in batches: one statement for each event is thirty times slower.
//!
//! A batch goes out when it is full, when nobody is with a listener any more, or a moment after its first outcome. The marks
//! of its events are let go after the commit. When the database fails, the outcome is kept and tried again: the listener has
//! done its work, and must not do it twice for our own error.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinHandle;

use crate::event::{Event, EventId, Fence};
use crate::health::Health;
use crate::metrics::Metrics;
use crate::order::Order;
use crate::queue::{Delivery, Mark, Queue, Turn};
use crate::store::{Settled, Settlement, Store};
use crate::wake::Wake;

/// Outcomes that may wait for the database; workers wait beyond that.
const WAITING: usize = 2_048;
/// Batches that are on their way to the database at once: while one commit waits for the disk, another is at work.
const AT_ONCE: usize = 2;
/// The rest after the first failure of the database; doubled up to a second.
const FIRST_REST: Duration = Duration::from_millis(20);

/// An outcome on its way to the store.
#[derive(Debug)]
struct Outgoing {
    settled: Settled,
    /// Keeps the event marked until its outcome is stored; `None` for a claim whose delivery is gone already.
    mark: Option<Mark>,
    /// For the log.
    event: Option<Arc<Event>>,
    /// Ends when the outcome is stored.
    turn: Option<Box<Turn>>,
}

/// Where outcomes are sent.
#[derive(Clone, Debug)]
pub struct SettlerHandle {
    outgoing: mpsc::Sender<Outgoing>,
    metrics: Arc<Metrics>,
    keeps: Keeps,
}

/// What stays of finished events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keeps {
    /// The row of a DONE event is deleted.
    pub(crate) erase_done: bool,
    /// A DEAD event blocks the later ones of its aggregate.
    pub(crate) dead_blocks: bool,
}

impl Keeps {
    fn apply(self, settlement: Settlement) -> Settlement {
        match settlement {
            Settlement::Done if self.erase_done => Settlement::Erased,
            Settlement::Dead { error, counted, .. } => Settlement::Dead { error, counted, blocks: self.dead_blocks },
            other => other,
        }
    }
}

impl SettlerHandle {
    /// Hands over what became of a delivery; waits while too many others wait for the database.
    pub async fn send(&self, delivery: Delivery, settlement: Settlement) {
        let settlement = self.keeps.apply(settlement);
        count(&self.metrics, &settlement);
        if let Some(outgoing) = Outgoing::of(delivery, settlement) {
            // Fails only when the settler is gone; then the claim ends with its lease.
            let _ = self.outgoing.send(outgoing).await;
        }
    }

    /// Hands over claims whose events were never started, without waiting; those that find no room end with their lease.
    pub fn try_give_back(&self, fences: impl IntoIterator<Item = Fence>) {
        for fence in fences {
            self.metrics.dispatch_released.increment();
            let _ = self.outgoing.try_send(Outgoing::released(fence));
        }
    }

    /// Hands over claims whose listeners were cut off by a stop; nothing is counted.
    pub(crate) async fn give_back(&self, claims: Vec<(EventId, Fence)>) {
        for (_, fence) in claims {
            self.metrics.dispatch_released.increment();
            let _ = self.outgoing.send(Outgoing::released(fence)).await;
        }
    }

    /// Hands over what became of a claim that never became a delivery.
    pub async fn send_claim(&self, fence: Fence, settlement: Settlement) {
        let settlement = self.keeps.apply(settlement);
        count(&self.metrics, &settlement);
        let outgoing = Outgoing { settled: Settled { fence, settlement }, mark: None, event: None, turn: None };
        let _ = self.outgoing.send(outgoing).await;
    }
}

impl Outgoing {
    /// `None` for an event that was never stored: there is nothing to write.
    fn of(delivery: Delivery, settlement: Settlement) -> Option<Self> {
        let Delivery { event, mark, turn, .. } = delivery;
        let Some(fence) = mark.fence() else {
            if !matches!(settlement, Settlement::Done | Settlement::Erased) {
                tracing::error!(event.id = %event.id(), route = %event.route(), ?settlement, "an event that was excluded from the store was not delivered, and is lost");
            }
            return None;
        };
        let event = matches!(settlement, Settlement::Dead { .. }).then_some(event);
        Some(Self { settled: Settled { fence, settlement }, mark: Some(mark), event, turn })
    }

    fn released(fence: Fence) -> Self {
        let settlement = Settlement::Released { after: Duration::ZERO };
        Self { settled: Settled { fence, settlement }, mark: None, event: None, turn: None }
    }
}

fn count(metrics: &Metrics, settlement: &Settlement) {
    match settlement {
        Settlement::Done | Settlement::Erased => metrics.dispatch_success.increment(),
        Settlement::Deferred { .. } => metrics.dispatch_deferred.increment(),
        Settlement::Retry { .. } => metrics.dispatch_failure.increment(),
        Settlement::Dead { .. } => metrics.dispatch_dead.increment(),
        Settlement::Parked { .. } => metrics.dispatch_parked.increment(),
        Settlement::Released { .. } | Settlement::Behind { .. } => metrics.dispatch_released.increment(),
    }
}

/// What the settler needs to know.
pub(crate) struct Settler {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) keeps: Keeps,
    /// `None` where order by aggregate is not asked for; then no event has a turn.
    pub(crate) order: Option<Arc<Order>>,
    /// How many workers are with a listener right now.
    pub(crate) at_work: Arc<AtomicUsize>,
    /// How many batches the database refuses just now.
    pub(crate) failing: AtomicUsize,
    /// Most outcomes written by one statement.
    pub(crate) batch_size: usize,
    /// Longest that an outcome waits for others to be written with.
    pub(crate) delay: Duration,
    /// How long outcomes are tried again while the database fails, and how long once the host is to stop.
    pub(crate) patience: Duration,
    pub(crate) patience_at_stop: Duration,
}

impl Settler {
    /// Starts the settler. Once stopped, it takes no more outcomes and ends when everything is written.
    pub(crate) fn start(self, stopped: watch::Receiver<bool>, health: &Health) -> (SettlerHandle, JoinHandle<()>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        let handle = SettlerHandle { outgoing: sender, metrics: self.metrics.clone(), keeps: self.keeps };
        (handle, tokio::spawn(health.clone().watched("settler", self.run(receiver, stopped))))
    }

    async fn run(self, outgoing: mpsc::Receiver<Outgoing>, stopped: watch::Receiver<bool>) {
        let outgoing = Mutex::new(outgoing);
        join_all((0..AT_ONCE).map(|_| self.write_batches(&outgoing, stopped.clone()))).await;
    }

    /// Gathers a batch and writes it, again and again; only one gathers at a time.
    async fn write_batches(&self, outgoing: &Mutex<mpsc::Receiver<Outgoing>>, mut stopped: watch::Receiver<bool>) {
        let mut batch = Vec::with_capacity(self.batch_size);
        let mut settled = Vec::with_capacity(self.batch_size);
        loop {
            let mut outgoing = outgoing.lock().await;
            let received = tokio::select! {
                biased;
                received = outgoing.recv_many(&mut batch, self.batch_size) => received,
                // What was sent before the closing is still received.
                _ = stopped.wait_for(|stopped| *stopped), if !outgoing.is_closed() => { outgoing.close(); continue }
            };
            if received == 0 {
                return;
            }
            self.fill(&mut outgoing, &mut batch).await;
            drop(outgoing);
            while !batch.is_empty() {
                self.store_batch(&mut batch, &mut settled, &stopped).await;
            }
        }
    }

    /// Stores a batch; what follows from it for the lines of its events is the next one.
    async fn store_batch(&self, batch: &mut Vec<Outgoing>, settled: &mut Vec<Settled>, stopped: &watch::Receiver<bool>) {
        let mut marks = Vec::with_capacity(batch.len());
        let mut dead = Vec::new();
        let mut turns = Vec::new();
        for Outgoing { settled: one, mark, event, turn } in batch.drain(..) {
            dead.extend(event.map(|event| (event, one.settlement.clone())));
            marks.extend(mark);
            turns.extend(turn.map(|turn| (turn, settled.len())));
            settled.push(one);
        }
        let stored = self.write(settled, stopped).await;
        if stored.is_some() {
            self.note_aside(settled);
            log_dead(&dead);
            wake_for(&self.wake, settled);
        }
        for (turn, index) in turns {
            // Which outcome was fenced off is not told: then none of the batch counts as known.
            let known = (stored == Some(0)).then(|| &settled[index].settlement);
            self.end_turn(*turn, known, batch);
        }
        drop(marks);
        settled.clear();
    }

    fn note_aside(&self, settled: &[Settled]) {
        let Some(order) = &self.order else { return };
        for one in settled {
            if let Settlement::Behind { sequence } = one.settlement {
                order.set_aside(sequence);
                self.wake.now();
            }
        }
    }

    /// Lets the next of the line start, or sets all who wait aside.
    fn end_turn(&self, turn: Turn, settlement: Option<&Settlement>, batch: &mut Vec<Outgoing>) {
        let Some(order) = &self.order else { return };
        let next = order.end(turn, settlement);
        if next.opens {
            self.wake.now();
        }
        batch.extend(next.aside.into_iter().filter_map(|(waiting, settlement)| Outgoing::of(waiting, settlement)));
        if let Some(refused) = next.start.and_then(|next| self.queue.push_claimed(next)) {
            batch.extend(Outgoing::of(refused, Settlement::Released { after: Duration::ZERO }));
        }
    }

    /// Waits a moment for more, unless the batch is full or nobody is at work on more.
    async fn fill(&self, outgoing: &mut mpsc::Receiver<Outgoing>, batch: &mut Vec<Outgoing>) {
        let until = tokio::time::Instant::now() + self.delay;
        while batch.len() < self.batch_size {
            let nobody_at_work = self.at_work.load(Ordering::Relaxed) == 0 && self.queue.depth() == (0, 0);
            if nobody_at_work && outgoing.is_empty() {
                return;
            }
            match tokio::time::timeout_at(until, outgoing.recv_many(batch, self.batch_size - batch.len())).await {
                Ok(received) if received > 0 => {}
                _ => return,
            }
        }
    }

    /// Writes until it is written, or until patience ends and somebody else delivers: `None` when it was given up, else how many
    /// outcomes were fenced off.
    async fn write(&self, settled: &[Settled], stopped: &watch::Receiver<bool>) -> Option<u64> {
        let started = Instant::now();
        let mut rest = FIRST_REST;
        let mut failed = false;
        loop {
            match self.store.settle(settled).await {
                Ok(fenced) => {
                    if fenced > 0 {
                        self.metrics.fenced_outcomes.add(fenced);
                        tracing::warn!(
                            fenced,
                            "outcomes were dropped: their events are finished, or held by somebody else by now"
                        );
                    }
                    if failed && self.failing.fetch_sub(1, Ordering::Relaxed) == 1 {
                        tracing::info!(events = settled.len(), "outcomes are stored again");
                    }
                    return Some(fenced);
                }
                Err(error) => {
                    self.metrics.db_errors.increment();
                    // Said once, by the first batch that fails and the last that gets through.
                    if !std::mem::replace(&mut failed, true) && self.failing.fetch_add(1, Ordering::Relaxed) == 0 {
                        tracing::error!(events = settled.len(), error = %crate::chain(&error), "outcomes could not be stored; trying again");
                    }
                }
            }
            let patience = if *stopped.borrow() { self.patience_at_stop } else { self.patience };
            if started.elapsed() > patience {
                self.failing.fetch_sub(1, Ordering::Relaxed);
                tracing::error!(
                    events = settled.len(),
                    "outcomes could not be stored in time; their events are delivered again"
                );
                return None;
            }
            tokio::time::sleep(rest).await;
            rest = (rest * 2).min(Duration::from_secs(1));
        }
    }
}

fn log_dead(dead: &[(Arc<Event>, Settlement)]) {
    for (event, settlement) in dead {
        if let Settlement::Dead { error, .. } = settlement {
            let error: String = error.chars().take(500).collect();
            tracing::error!(event.id = %event.id(), route = %event.route(), attempt = event.attempt(), error, "an event is dead");
        }
    }
}

/// The poller need not sleep longer than until the first of these is due again.
fn wake_for(wake: &Wake, settled: &[Settled]) {
    let soonest = settled.iter().filter_map(|settled| match &settled.settlement {
        Settlement::Deferred { after } | Settlement::Retry { after, .. } | Settlement::Released { after } => Some(*after),
        _ => None,
    });
    if let Some(after) = soonest.min() {
        wake.within(after);
    }
}
