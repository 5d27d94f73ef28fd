//! The players: threads, events, and what they tell each other outside of the modules.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use shuttle::sync::{Condvar, Mutex};
use shuttle::thread::{self, JoinHandle};
use tokio::time::Instant;

use crate::event::{Envelope, Event, EventId, Fence, OwnerId};
use crate::partition::{Partitions, Share};
use crate::queue::{Delivery, InFlight, Queue, QueueLimits, Via};
use crate::store::{PARTITIONS, PartitionTable};
use crate::units::ByteSize;

/// Longer than any check lasts.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// Runs this on a thread of its own.
pub(crate) fn begin<F: Future<Output = ()> + Send + 'static>(role: impl FnOnce() -> F + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || shuttle::future::block_on(role()))
}

/// Waits for all of them.
pub(crate) fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
}

/// Lets the others go on.
pub(crate) fn pause() {
    thread::yield_now();
}

/// A queue of three workers for two threads.
pub(crate) fn queue(hot: usize, cold: usize, bytes: usize) -> Arc<Queue> {
    Arc::new(Queue::new(QueueLimits { hot, cold, bytes: ByteSize(bytes as u64) }).for_workers(3))
}

/// The id of an event, which is the same in every run.
pub(crate) fn id(sequence: u64) -> EventId {
    format!("event-{sequence}").parse().expect("good")
}

/// An event of one aggregate, which all have.
pub(crate) fn event(sequence: u64) -> Arc<Event> {
    let envelope = Envelope::new("X").id(id(sequence)).aggregate("Order", "42").json(&1).expect("good");
    Arc::new(Event::of(envelope).sequence(sequence).build())
}

/// How many bytes each of them takes.
pub(crate) fn event_bytes() -> usize {
    event(1).size_bytes()
}

/// An event on its way, under a claim.
pub(crate) fn delivery(in_flight: &Arc<InFlight>, via: Via, sequence: u64) -> Delivery {
    let fence = Some(Fence::new(sequence, 0, 1));
    let mark = in_flight.mark_until(id(sequence), fence, Instant::now() + LEASE).expect("nobody else has it");
    Delivery::new(event(sequence), mark, via, 0)
}

/// Several of them.
pub(crate) fn deliveries(in_flight: &Arc<InFlight>, via: Via, sequences: impl IntoIterator<Item = u64>) -> Vec<Delivery> {
    sequences.into_iter().map(|sequence| delivery(in_flight, via, sequence)).collect()
}

/// A host, and the table of which it keeps partitions.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) table: Arc<PartitionTable>,
    pub(crate) owner: OwnerId,
}

impl Host {
    /// One that holds none yet.
    pub(crate) fn new(name: &str, table: &Arc<PartitionTable>) -> Self {
        let partitions = Arc::new(Partitions::new(Share::Even, false, 1));
        Self { partitions, table: table.clone(), owner: OwnerId::known(name) }
    }

    /// The only one, which holds all.
    pub(crate) fn of_all() -> Self {
        let host = Self::new("only", &Arc::default());
        host.beat(1);
        host
    }

    /// One beat, with this many hosts alive.
    pub(crate) fn beat(&self, live: u32) {
        let beat = self.partitions.begin_beat();
        let kept = self.partitions.keep(&*self.table, &self.owner, live);
        shuttle::future::block_on(kept).expect("the table answers");
        self.partitions.renew(&beat, LEASE);
    }

    /// Stops it, and looks whether it holds anything for want of an end.
    pub(crate) fn assert_rid_of_all(&self) {
        self.partitions.close();
        self.beat(1);
        let kept: Vec<u16> = (0..PARTITIONS).filter(|number| self.table.has(&self.owner, *number)).collect();
        assert!(kept.is_empty(), "nothing of {kept:?} is in hand any more, and they are not given back");
    }
}

/// What became of events, and who waits for that.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    seen: Mutex<Vec<u64>>,
    changed: Condvar,
}

impl Tally {
    /// Notes an event.
    pub(crate) fn add(&self, sequence: u64) {
        self.seen.lock().expect("no panic").push(sequence);
        self.changed.notify_all();
    }

    /// Waits until this many were noted. If there never are, the check has nobody left who can go on.
    pub(crate) fn wait_for(&self, count: usize) {
        let seen = self.seen.lock().expect("no panic");
        drop(self.changed.wait_while(seen, |seen| seen.len() < count).expect("no panic"));
    }

    /// What was noted, in order.
    pub(crate) fn seen(&self) -> Vec<u64> {
        self.seen.lock().expect("no panic").clone()
    }

    /// Whether each of these was noted once, and nothing else was.
    pub(crate) fn assert_each_once(&self, sequences: impl IntoIterator<Item = u64>) {
        let mut seen = self.seen();
        seen.sort_unstable();
        assert_eq!(seen, sequences.into_iter().collect::<Vec<_>>(), "each event once");
    }
}

/// Waits for a future, or until it is cut off: `None`.
pub(crate) async fn unless<T>(cut_off: impl Future<Output = ()>, future: impl Future<Output = T>) -> Option<T> {
    let (mut cut_off, mut future) = (pin!(cut_off), pin!(future));
    poll_fn(|context| {
        if cut_off.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(context).map(Some)
    })
    .await
}
