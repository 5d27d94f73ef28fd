//! Writes outcomes in batches: one statement for each event is thirty times slower.
//!
//! A batch goes out when it is full, when nobody is with a listener any more, or a moment after its first outcome. The marks
//! of its events are dropped after the commit. An outcome that the database does not store is kept and retried: the listener has done its
//! work, and must not do it twice because of an error of ours.

mod apart;
mod batch_size;
mod buffered;
mod completion;
mod effects;
mod excluded;
mod failures;
mod give_back;
mod handle;
mod obstacle;
mod parts;
mod reverted;
mod slow;
mod trying;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use batch_size::BatchSize;
pub(crate) use buffered::BufferedHandle;
use completion::{Batch, Completion, writes_nothing};
pub(crate) use completion::{Conclusion, IfNotTaken};
pub(crate) use failures::{Died, FailureLog};
pub(crate) use give_back::Unused;
pub(crate) use handle::{SettlerHandle, SettlerInbox, channels};
pub(crate) use obstacle::Places;
use outbox_listener::Health;
use trying::Round;

use crate::metrics::Metrics;
use crate::notifier::Notifier;
use crate::order::Order;
use crate::queue::{AtWork, Mark, Queue, Turn};
use crate::settlement::{SettlementRules, given_back};
use crate::store::{Settled, Settlement, Store};
use crate::wake::Wake;

/// Batches that are on their way to the database at once: while one commit waits for the disk, another is at work.
const AT_ONCE: usize = 2;
/// Bytes of an error that go into the log.
const MAX_ERROR: usize = 500;

/// What the settler needs to know.
pub(crate) struct Settler {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) wake: Arc<Wake>,
    /// For events that another host may have to deliver: parked ones, and those that were claimed.
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) failures: Arc<FailureLog>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) rules: SettlementRules,
    /// `None` where order is not asked for; then no event has a turn.
    pub(crate) order: Option<Arc<Order>>,
    /// How many workers are with a listener right now.
    pub(crate) at_work: Arc<AtWork>,
    /// How many batches the database refuses just now.
    pub(crate) failing: AtomicUsize,
    /// How many outcomes one statement writes.
    pub(crate) batch_size: BatchSize,
    /// Longest that an outcome waits for others to be written with.
    pub(crate) delay: Duration,
    /// How long leases and claims of this host last.
    pub(crate) lease: Duration,
    /// For outcomes that wait apart.
    pub(crate) places: Places,
    /// When a stop must be over, once it has begun: what could not be written by then is given up.
    pub(crate) give_up_at: watch::Receiver<Option<Instant>>,
    pub(crate) gave_up: AtomicBool,
}

impl Settler {
    /// Starts the settler. Once stopped, it takes no more outcomes and ends when everything is written.
    pub(crate) fn start(self, inbox: SettlerInbox, stopped: watch::Receiver<bool>, health: &Health) -> JoinHandle<()> {
        let SettlerInbox { completions, unused, excluded } = inbox;
        let waiting = excluded::wait(excluded, self.queue.clone(), stopped.clone());
        health.spawn("settler", async move {
            let all =
                async { tokio::join!(self.write_all(completions, stopped.clone()), self.give_back(unused, stopped), waiting) };
            // The log of what was left out never ends by itself; the work does, at a stop.
            tokio::select! {
                biased;
                _ = all => {}
                () = self.failures.log_left_out_from_time_to_time() => {}
            }
            self.failures.log_all_left_out();
        })
    }

    async fn write_all(&self, completions: mpsc::Receiver<Completion>, stopped: watch::Receiver<bool>) {
        let completions = Mutex::new(completions);
        // Bounded by the places of what waits apart.
        let (apart, waiting) = mpsc::unbounded_channel();
        let writers = async {
            join_all((0..AT_ONCE).map(|_| self.write_batches(&completions, &apart, stopped.clone()))).await;
            drop(apart);
        };
        tokio::join!(writers, self.write_apart(waiting));
    }

    /// Gathers a batch and writes it, again and again; only one gathers at a time.
    async fn write_batches(
        &self,
        completions: &Mutex<mpsc::Receiver<Completion>>,
        apart: &mpsc::UnboundedSender<Completion>,
        mut stopped: watch::Receiver<bool>,
    ) {
        let mut batch = Batch::with_capacity(self.batch_size.most());
        let mut received = Vec::with_capacity(self.batch_size.most());
        loop {
            let mut completions = completions.lock().await;
            let count = tokio::select! {
                biased;
                count = completions.recv_many(&mut received, self.batch_size.most()) => count,
                // What was sent before the closing is still received.
                _ = stopped.wait_for(|stopped| *stopped), if !completions.is_closed() => { completions.close(); continue }
            };
            if count == 0 {
                return;
            }
            self.fill(&mut completions, &mut received).await;
            drop(completions);
            for one in self.store_all(&mut received, &mut batch, Round::First).await {
                // Fails only when a stop must be over; then the claim ends with its lease.
                let _ = apart.send(one);
            }
        }
    }

    /// Stores outcomes, and what follows from them for the key queues of their events. Returns those that cannot be stored now.
    async fn store_all(&self, completions: &mut Vec<Completion>, batch: &mut Batch, round: Round) -> Vec<Completion> {
        let mut apart = Vec::new();
        while !completions.is_empty() {
            let with_effects: Vec<Completion> = completions.extract_if(.., |one| one.effects.is_some()).collect();
            let unwritten: Vec<Completion> = completions.extract_if(.., |one| one.writes_nothing()).collect();
            if !unwritten.is_empty() {
                batch.extend(unwritten.into_iter());
                self.conclude(batch, Some(0), completions);
            }
            if !completions.is_empty() {
                batch.extend(completions.drain(..));
                self.write(batch, round, completions, &mut apart).await;
            }
            // The others first: these may take their time.
            self.store_effects(with_effects, round, completions, &mut apart).await;
        }
        apart
    }

    fn log_dead(&self, batch: &Batch) {
        for (settled, held) in batch.settled.iter().zip(&batch.held) {
            if let (Settlement::Dead { error, .. }, Some(event)) = (&settled.settlement, &held.event) {
                self.failures.log_dead_event(event, error, Died::Settled);
            }
        }
    }

    /// What follows from a batch that was stored, with this many outcomes fenced off, or given up (`None`).
    fn conclude(&self, batch: &mut Batch, stored: Option<u64>, follows: &mut Vec<Completion>) {
        if stored.is_some() {
            self.note_aside(batch);
            self.log_dead(batch);
        }
        let soonest = soonest(&batch.settled);
        // Events behind one that was settled without a call are in nobody's hands: no turn that ends tells the poller of them.
        let makes_way = self.order.is_some()
            && batch.settled.iter().zip(&batch.held).any(|(settled, held)| held.mark.is_none() && is_dead(settled));
        let parks = batch.settled.iter().any(|one| matches!(one.settlement, Settlement::Parked { .. }));
        // What was claimed by its insert is read by the owner of its partition when it is due again, which may be another host.
        let for_others = soonest.is_some() && batch.held.iter().any(|held| !held.mark.as_ref().is_some_and(Mark::is_read));
        for (settled, held) in batch.settled.drain(..).zip(batch.held.drain(..)) {
            if let Some(turn) = held.turn {
                // Which outcome was fenced off is not told: then none of the batch counts as known.
                let known = (stored == Some(0)).then_some(&settled.settlement);
                self.end_turn(*turn, known, follows);
            }
            if let Some(mark) = held.mark.filter(|_| stored.is_some()) {
                if writes_nothing(&settled.settlement, &mark) {
                    mark.unchanged();
                } else if stored == Some(0) {
                    // A finished event needs a replay to be unfinished again, which adds one more.
                    mark.stored(settled.fence.claim_seq() + u64::from(is_final(&settled.settlement)));
                } else {
                    mark.settled();
                }
            }
        }
        // After the marks were let go: a poller that comes at once for an event still in this host's hands puts it off.
        if stored.is_some() {
            if let Some(after) = soonest {
                self.wake.within(after);
            }
            if makes_way {
                self.wake.now();
            }
            if parks || for_others {
                self.notifier.notify();
            }
        }
    }

    fn note_aside(&self, batch: &Batch) {
        let Some(order) = &self.order else { return };
        for (settled, held) in batch.settled.iter().zip(&batch.held) {
            if let Settlement::Behind { sequence } = settled.settlement {
                order.set_aside(held.event.as_deref(), sequence);
                self.wake.now();
            }
        }
    }

    /// Lets the next event of the key queue start, or sets aside all that wait.
    fn end_turn(&self, turn: Turn, settlement: Option<&Settlement>, batch: &mut Vec<Completion>) {
        let Some(order) = &self.order else { return };
        let next = order.end(turn, settlement);
        if next.opens {
            self.wake.now();
        }
        batch.extend(next.aside.into_iter().filter_map(|(waiting, settlement)| Completion::of(waiting, settlement)));
        if let Some(refused) = next.start.and_then(|next| self.queue.push_counted(next)) {
            batch.extend(Completion::of(refused, given_back()));
        }
    }

    /// Waits a moment for more, unless the batch is full or nobody is at work on more.
    async fn fill(&self, completions: &mut mpsc::Receiver<Completion>, batch: &mut Vec<Completion>) {
        let until = Instant::now() + self.delay;
        let most = self.batch_size.most();
        while batch.len() < most {
            let nobody_at_work = self.at_work.is_empty() && self.queue.depth() == (0, 0);
            if nobody_at_work && completions.is_empty() {
                return;
            }
            match tokio::time::timeout_at(until, completions.recv_many(batch, most - batch.len())).await {
                Ok(received) if received > 0 => {}
                _ => return,
            }
        }
    }

    /// Whether a stop must be over by now.
    fn must_give_up(&self) -> bool {
        self.give_up_at.borrow().is_some_and(|at| at <= Instant::now())
    }
}

/// Says that outcomes were dropped.
fn fenced_off(fenced: u64) {
    if fenced > 0 {
        tracing::warn!(fenced, "outcomes were dropped: their events are finished, deleted, or held by another host");
    }
}

/// Whether an event with this settlement is finished.
fn is_final(settlement: &Settlement) -> bool {
    matches!(settlement, Settlement::Done | Settlement::Erased | Settlement::Dead { .. })
}

fn is_dead(settled: &Settled) -> bool {
    matches!(settled.settlement, Settlement::Dead { .. })
}

/// In how long the first of these is due again; `None` when none is. The poller need not sleep longer.
fn soonest(settled: &[Settled]) -> Option<Duration> {
    let afters = settled.iter().filter_map(|settled| match &settled.settlement {
        Settlement::Deferred { after } | Settlement::Retry { after, .. } | Settlement::Released { after, .. } => Some(*after),
        _ => None,
    });
    afters.min()
}
