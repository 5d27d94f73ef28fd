//! Which partitions this host holds, and until when it knows that.
//!
//! A partition has one owner, so what its owner reads of it needs no claim on each row. This module knows which partitions those are,
//! under which epoch each is held, and how many events of each are in flight. A partition with events in flight is not given back. The
//! module does not know what an event is.

mod careful;
mod hold;
mod session;
mod share;

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use careful::Careful;
pub(crate) use hold::Hold;
pub(crate) use session::GONE_AFTER;
pub(crate) use share::Share;

use crate::event::OwnerId;
use crate::store::{HeldPartition, PARTITIONS, Position, Store, StoreError};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// By this host's clock its lease ends earlier than by the database's, by one part in this many: clocks run at different speeds.
const LEASE_MARGIN_DIVISOR: u32 = 30;

/// How often the lease may be doubted.
const DOUBTS: Duration = Duration::from_secs(1);

/// The partitions that this host works on, taken and given back as hosts come and go.
#[derive(Debug)]
pub(crate) struct Partitions {
    share: Share,
    /// Whether a call must have ended before another host may begin one.
    keeps_order: bool,
    /// How many events are delivered carefully after a host went without giving its partitions back.
    careful_for: usize,
    slots: Box<[Slot]>,
    began: Instant,
    /// When this host's lease ends, in microseconds since `began`.
    lease_end: AtomicU64,
    /// Whether this host stops.
    closed: AtomicBool,
    /// Whether the response to the last renewal was lost: partitions may have been taken without this host knowing it.
    is_unsure: AtomicBool,
    /// When this host's session was last proven, in microseconds since `began`; 0 when it has none.
    session: AtomicU64,
    /// When the last confirmed session was last proven, in the same way.
    last_proof: AtomicU64,
    /// How many sessions this host has had.
    sessions: AtomicU32,
    /// The last session during which this host asked the table what it holds. Without a session, other hosts may have taken all of it.
    confirmed: AtomicU32,
    /// Whether other hosts may rely on this host's session.
    is_told_of_session: AtomicBool,
    /// Notified when it is known for the first time whether there is a session.
    session_known: Notify,
    state: Mutex<State>,
    opened: Notify,
    beat_requested: Notify,
}

/// A heartbeat that is about to be sent.
#[derive(Debug)]
pub(crate) struct Beat {
    /// By the database's clock, the lease that it begins ends a lease after this time or later.
    began: Instant,
    /// How many sessions this host had had.
    sessions: u32,
}

/// The partitions that events may be taken of.
#[derive(Debug)]
pub(crate) struct Open {
    /// All of them, in order.
    pub(crate) all: Vec<u16>,
    /// The partitions of which each event is claimed before it is delivered, since their last owner went without giving them back.
    pub(crate) careful: Careful,
}

/// One partition.
#[derive(Debug, Default)]
struct Slot {
    /// The epoch under which it is held; 0 when it is not.
    epoch: AtomicU32,
    /// Whether events are read of it.
    open: AtomicBool,
    /// How many events that were read of it are in this process's hands.
    in_hand: AtomicU32,
}

#[derive(Debug, Default)]
struct State {
    /// The partitions that events are taken of.
    open: Vec<u16>,
    /// Of these, those that an owner left without giving them back.
    careful: Careful,
    /// Closed partitions that still have events in flight. Each is given back when the last of its events has ended.
    leaving: Vec<u16>,
    /// Those that are being given back, with their epochs, until the database has said that they are: it may hear of it late, so
    /// nothing is taken of them meanwhile.
    given_back: Vec<(u16, u32)>,
    /// Whether nobody else has events in hand any more that were claimed before these partitions were ours.
    settled: bool,
    /// Whether it was said that another host holds all partitions.
    stands_by: bool,
    /// When the lease was doubted last.
    doubted_at: Option<Instant>,
}

impl Partitions {
    /// `keeps_order`: whether a call must have ended before another host may begin one. `careful_for`: how many events a host may
    /// have in hand when it goes.
    pub(crate) fn new(share: Share, keeps_order: bool, careful_for: usize) -> Self {
        Self {
            share,
            keeps_order,
            careful_for,
            slots: (0..PARTITIONS).map(|_| Slot::default()).collect(),
            began: Instant::now(),
            lease_end: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            is_unsure: AtomicBool::new(false),
            session: AtomicU64::new(0),
            last_proof: AtomicU64::new(0),
            sessions: AtomicU32::new(0),
            confirmed: AtomicU32::new(0),
            is_told_of_session: AtomicBool::new(false),
            session_known: Notify::new(),
            state: Mutex::default(),
            opened: Notify::new(),
            beat_requested: Notify::new(),
        }
    }

    /// The partitions that events may be taken of.
    pub(crate) fn open(&self) -> Open {
        let state = self.lock();
        Open { all: state.open.clone(), careful: state.careful.clone() }
    }

    /// Whether all partitions are open.
    pub(crate) fn is_whole(&self) -> bool {
        self.lock().open.len() == usize::from(PARTITIONS)
    }

    /// Whether some are to be given back as soon as nothing of them is in hand.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.lock().leaving.is_empty()
    }

    /// Notes how a careful read ended: this many events were claimed, and `reached` is the last event if there may be more. Once
    /// the last owner cannot have had more in flight, the partitions are read as usual.
    pub(crate) fn note_careful_read(&self, read: &Careful, claimed: usize, reached: Option<Position>) {
        self.lock().careful.note(read, claimed, reached);
    }

    /// Whether this host is about to stop.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// From now on nothing is taken any more: this host stops, and gives back what it holds as it becomes free.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.request_beat();
    }

    /// Waits until partitions are opened that were not ours before. For one at a time.
    pub(crate) async fn wait_until_opened(&self) {
        self.opened.notified().await;
    }

    /// Says that the lease may have ended by the database's clock: something is due, and nothing can be read. Taken seriously
    /// once in a while: what is due may wait for something else.
    pub(crate) fn doubt(&self) {
        let now = Instant::now();
        let last = self.lock().doubted_at.replace(now);
        if last.is_none_or(|last| now.saturating_duration_since(last) >= DOUBTS) {
            self.request_beat();
        } else {
            self.lock().doubted_at = last;
        }
    }

    /// Asks for a beat at once: there may be partitions to take.
    pub(crate) fn request_beat(&self) {
        self.beat_requested.notify_one();
    }

    /// Waits until a beat is asked for.
    pub(crate) async fn beat_requested(&self) {
        self.beat_requested.notified().await;
    }

    /// Whether nobody else has events in hand any more that were claimed before these partitions were ours.
    pub(crate) fn is_settled(&self) -> bool {
        self.lock().settled
    }

    /// Notes that nobody else has such events any more.
    pub(crate) fn mark_settled(&self) {
        self.lock().settled = true;
    }

    /// To be called before a heartbeat is sent.
    pub(crate) fn begin_beat(&self) -> Beat {
        Beat { began: Instant::now(), sessions: self.sessions.load(Ordering::SeqCst) }
    }

    /// Renews this host's lease. To be called after [`keep`](Self::keep), which must have been called after the heartbeat: while this
    /// host was not alive, another may have taken its partitions.
    pub(crate) fn renew(&self, beat: &Beat, lease: Duration) {
        let lease_end = (beat.began + lease.saturating_sub(lease / LEASE_MARGIN_DIVISOR)).saturating_duration_since(self.began);
        self.lease_end.store(u64::try_from(lease_end.as_micros()).unwrap_or(u64::MAX), Ordering::SeqCst);
        self.confirm(beat.sessions);
    }

    /// Takes or gives back as many partitions as the number of live hosts asks for. Returns whether the poller is to look: partitions
    /// are open that were not before, or some are to be given back.
    pub(crate) async fn keep(&self, store: &dyn Store, owner: &OwnerId, live: u32) -> Result<bool, StoreError> {
        let was_unsure = self.is_unsure.swap(true, Ordering::SeqCst);
        let share = if self.closed.load(Ordering::SeqCst) { Share::None } else { self.share };
        let (mut held, share) = share.keep(store, owner, live).await?;
        self.is_unsure.store(false, Ordering::SeqCst);
        for held in held.iter_mut().filter(|_| was_unsure) {
            held.abandoned |= self.slots[usize::from(held.number)].epoch.load(Ordering::SeqCst) != held.epoch;
        }
        let mut open = held;
        let mut leaving = open.split_off(open.len().min(usize::from(share)));
        let given_back = self.lock().given_back.clone();
        leaving.extend(open.extract_if(.., |held| given_back.contains(&(held.number, held.epoch))));
        let (are_new, to_give_back) = self.update(&open, &leaving);
        if self.share == Share::Whole && !self.closed.load(Ordering::SeqCst) {
            self.log_standby(share);
        }
        if are_new {
            tracing::debug!(partitions = open.len(), nodes = live, "this host works on other partitions than before");
            self.opened.notify_one();
        }
        let is_empty = |held: &HeldPartition| to_give_back.contains(&held.number);
        let of_before = |held: &HeldPartition| given_back.contains(&(held.number, held.epoch));
        self.lock().given_back =
            leaving.iter().filter(|held| is_empty(held) || of_before(held)).map(|held| (held.number, held.epoch)).collect();
        let released: Vec<HeldPartition> = leaving.into_iter().filter(is_empty).collect();
        if !released.is_empty() {
            store.release_partitions(owner, &released).await?;
            self.forget_epochs(&released);
        }
        let said = |number| released.iter().any(|held| held.number == number);
        self.lock().given_back.retain(|(number, _)| !said(*number));
        Ok(are_new || self.is_leaving())
    }

    /// Logs once that another host holds what only one can hold.
    fn log_standby(&self, share: u16) {
        if !std::mem::replace(&mut self.lock().stands_by, share == 0) && share == 0 {
            tracing::info!("another host has this table for itself; this one takes over when it is gone");
        }
    }

    /// Stores which partitions are open or leaving. Returns whether any were opened, and the leaving ones without events in flight.
    fn update(&self, open: &[HeldPartition], leaving: &[HeldPartition]) -> (bool, Vec<u16>) {
        let mut state = self.lock();
        let mut epochs = [(0, false); PARTITIONS as usize];
        let each = open.iter().map(|held| (held, true)).chain(leaving.iter().map(|held| (held, false)));
        for (held, is_open) in each {
            epochs[usize::from(held.number)] = (held.epoch, is_open);
        }
        let mut are_new = false;
        for (slot, (epoch, is_open)) in self.slots.iter().zip(epochs) {
            let was = (slot.epoch.swap(epoch, Ordering::SeqCst), slot.open.swap(is_open, Ordering::SeqCst));
            are_new |= is_open && was != (epoch, true);
        }
        state.settled &= !are_new;
        state.open = open.iter().map(|held| held.number).collect();
        state.careful.retain(|number, epoch| epochs[usize::from(number)] == (epoch, true));
        state.careful.add_abandoned(open, self.careful_for);
        let (to_give_back, in_hand) = leaving.iter().map(|held| held.number).partition(|number| self.is_empty(*number));
        state.leaving = in_hand;
        (are_new, to_give_back)
    }

    /// Forgets the epochs of partitions that were given back. Call this only after the database has freed them: otherwise events that were
    /// dropped without an outcome would be read again under the same epoch, unnoticed.
    fn forget_epochs(&self, given_back: &[HeldPartition]) {
        for held in given_back {
            self.slots[usize::from(held.number)].epoch.store(0, Ordering::SeqCst);
        }
    }

    /// Whether no event of this partition is in flight here.
    fn is_empty(&self, number: u16) -> bool {
        self.slots[usize::from(number)].in_hand.load(Ordering::SeqCst) == 0
    }

    /// Signs this host off, after `close`, and frees its partitions. Partitions with events in flight become free when other hosts notice
    /// that this host is gone.
    pub(crate) async fn leave(&self, store: &dyn Store, owner: &OwnerId) -> Result<(), StoreError> {
        for slot in &self.slots {
            slot.open.store(false, Ordering::SeqCst);
        }
        let empty: Vec<u16> = (0..PARTITIONS).filter(|number| self.is_empty(*number)).collect();
        if empty.len() == usize::from(PARTITIONS) {
            return store.leave(owner).await;
        }
        let epoch = |number: u16| self.slots[usize::from(number)].epoch.load(Ordering::SeqCst);
        let held = |number| HeldPartition { number, epoch: epoch(number), abandoned: false };
        store.release_partitions(owner, &empty.into_iter().map(held).collect::<Vec<_>>()).await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests;
