//! Which partitions this host holds, and until when it knows that.
//!
//! A partition has one owner, so what its owner reads of it needs no claim on each row. This module knows which partitions those are,
//! under which epoch each is held, and how many events of each are in flight. A partition with events in flight is not given back. This
//! module does not know what an event is.

mod careful;
mod hold;
mod lease;
mod session;
mod share;
mod slots;

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use self::careful::{Careful, CarefulRead, Reached};
pub(crate) use self::hold::Hold;
use self::lease::Lease;
pub(crate) use self::lease::own_lease_end;
pub(crate) use self::session::{GONE_AFTER, SessionProof};
pub(crate) use self::share::Share;
use self::slots::Slots;
use crate::event::OwnerId;
use crate::store::{HeldPartition, PARTITIONS, Store, StoreError};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// After this many leases without a free connection of its pool, a host counts the wait as a failure: the database may refuse its
/// connections.
pub(crate) const LEASES_WITHOUT_CONNECTION: u32 = 2;
/// How often the lease may be doubted.
const DOUBTS: Duration = Duration::from_secs(1);

/// How long a partition that is leaving may keep its other events waiting for those in flight. A call may take hours.
const EMPTIES_WITHIN: Duration = Duration::from_secs(10);

/// The partitions that this host works on, taken and given back as hosts come and go.
#[derive(Debug)]
pub(crate) struct Partitions {
    share: Share,
    /// Whether a call must have ended before another host may begin one.
    keeps_order: bool,
    /// How many events are delivered carefully after a host went without giving its partitions back. Events that wait for a call slot are
    /// not counted.
    careful_for: usize,
    slots: Slots,
    lease: Lease,
    session: SessionProof,
    /// Whether this host stops.
    closed: AtomicBool,
    /// Whether this host takes nothing for now, since others can deliver what it cannot.
    is_aside: AtomicBool,
    /// Whether this host lets its lease end.
    lets_lease_end: AtomicBool,
    /// Whether this host let its lease end since it stands aside, and can still deliver nothing. Its claims end with the lease, and are
    /// not renewed later.
    lets_claims_end: AtomicBool,
    /// Whether the response to the last renewal was lost: partitions may have been taken without this host knowing it.
    is_unsure: AtomicBool,
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

#[derive(Debug, Default)]
struct State {
    /// The partitions that events are taken of.
    open: Vec<u16>,
    /// The partitions, open or leaving, that an owner left without giving them back. One that is leaving may be opened again.
    careful: Careful,
    /// Closed partitions that still have events in flight. Each is given back when the last of its events has ended.
    leaving: Vec<u16>,
    /// While some are to be given back: since when each has not become empty that was chosen before.
    in_hand_since: HashMap<u16, Instant>,
    /// Those that are being given back, with their epochs, until the database has said that they are: it may hear of it late, so
    /// nothing is taken of them meanwhile.
    given_back: Vec<(u16, u32)>,
    /// Whether no event is in flight that this host took before it owned these partitions.
    is_front_free: bool,
    /// Whether it was said that another host holds all partitions.
    stands_by: bool,
    /// When the lease was doubted last.
    doubted_at: Option<Instant>,
}

impl Partitions {
    /// `keeps_order`: whether a call must have ended before another host may begin one. `careful_for`: how many events a host may
    /// have in flight when it goes, without those that wait for a call slot.
    pub(crate) fn new(share: Share, keeps_order: bool, careful_for: usize) -> Self {
        Self {
            share,
            keeps_order,
            careful_for,
            slots: Slots::new(),
            lease: Lease::new(),
            session: SessionProof::new(),
            closed: AtomicBool::new(false),
            is_aside: AtomicBool::new(false),
            lets_lease_end: AtomicBool::new(false),
            lets_claims_end: AtomicBool::new(false),
            is_unsure: AtomicBool::new(false),
            state: Mutex::default(),
            opened: Notify::new(),
            beat_requested: Notify::new(),
        }
    }

    /// The partitions that events may be taken of.
    pub(crate) fn open(&self) -> Open {
        let state = self.lock();
        Open { all: state.open.clone(), careful: state.careful.among(&state.open) }
    }

    /// Whether all partitions are open.
    pub(crate) fn is_whole(&self) -> bool {
        self.lock().open.len() == usize::from(PARTITIONS)
    }

    /// Whether any are open.
    pub(crate) fn is_reading(&self) -> bool {
        !self.lock().open.is_empty()
    }

    /// Whether this host holds any, open or leaving.
    pub(crate) fn holds_any(&self) -> bool {
        let state = self.lock();
        !(state.open.is_empty() && state.leaving.is_empty())
    }

    /// Whether some are to be given back as soon as nothing of them is in hand.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.lock().leaving.is_empty()
    }

    /// Notes how a careful read ended. Once the last owner cannot have had more events in flight, the partitions are read as usual.
    pub(crate) fn note_careful_read(&self, read: &Careful, ended: CarefulRead) {
        self.lock().careful.note(read, ended);
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

    /// Whether partitions may be taken: this host neither stops nor stands aside.
    pub(crate) fn takes_any(&self) -> bool {
        !self.is_closed() && !self.is_aside.load(Ordering::SeqCst)
    }

    /// Whether this host stands aside.
    fn stands_aside(&self) -> bool {
        !self.is_closed() && self.is_aside.load(Ordering::SeqCst)
    }

    /// Says whether this host takes nothing for now. What it holds is given back with the next beat, but for partitions that do not
    /// become empty: this host keeps reading those, unless it `lets_lease_end`. Then other hosts take over.
    /// `is_stalled`: whether this host can deliver nothing now.
    pub(crate) fn set_aside(&self, is_aside: bool, lets_lease_end: bool, is_stalled: bool) {
        self.is_aside.store(is_aside, Ordering::SeqCst);
        self.lets_lease_end.store(lets_lease_end, Ordering::SeqCst);
        let claims_end = lets_lease_end || (is_aside && is_stalled && self.lets_claims_end());
        self.lets_claims_end.store(claims_end, Ordering::SeqCst);
    }

    /// Whether this host lets its lease end now. False for a while at the beginning of each rest, so that heartbeats find out whether its
    /// partitions have a new owner.
    pub(crate) fn lets_lease_end(&self) -> bool {
        self.lets_lease_end.load(Ordering::SeqCst)
    }

    /// Whether this host lets its claims end: from the end of its lease until it takes partitions again, or can read and store
    /// again. A renewal in between would delay other hosts by another lease.
    pub(crate) fn lets_claims_end(&self) -> bool {
        self.lets_claims_end.load(Ordering::SeqCst)
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

    /// Whether no event is in flight that this host took before it owned these partitions.
    pub(crate) fn is_front_free(&self) -> bool {
        self.lock().is_front_free
    }

    /// Notes that no such event is in flight.
    pub(crate) fn mark_front_free(&self) {
        self.lock().is_front_free = true;
    }

    /// To be called before a heartbeat is sent.
    pub(crate) fn begin_beat(&self) -> Beat {
        Beat { began: Instant::now(), sessions: self.session.count() }
    }

    /// Renews this host's lease. To be called after [`keep`](Self::keep), which must have been called after the heartbeat: while this
    /// host was not alive, another may have taken its partitions.
    pub(crate) fn renew(&self, beat: &Beat, length: Duration) {
        self.lease.renew(beat.began, length);
        self.session.confirm(beat.sessions);
    }

    /// When the lease ends, by this process's own clock.
    pub(crate) fn lease_end(&self) -> Instant {
        self.lease.end()
    }

    /// Whether a partition is held under this epoch, as far as this process knows: `None` while its lease has ended by its own
    /// clock.
    pub(crate) fn is_held(&self, number: u16, epoch: u32) -> Option<bool> {
        // In this order: a beat notes which partitions are lost before it renews the lease.
        let lease_end = self.lease_end();
        if self.slots.epoch(number) != epoch {
            return Some(false);
        }
        (lease_end > Instant::now()).then_some(true)
    }

    /// The proof that this host is there.
    pub(crate) fn session(&self) -> &SessionProof {
        &self.session
    }

    /// Notes that the lock of this host's session was held at this time, or that there is no session.
    pub(crate) fn set_session(&self, proven_at: Option<Instant>) {
        if self.session.set(proven_at) {
            self.request_beat();
        }
    }

    /// When calls of events that were read must have ended. Without order, a call may last until the lease ends: the same event may
    /// be with a listener of another host by then.
    fn calls_end(&self) -> Instant {
        let lease_end = self.lease_end();
        let session_end = self.keeps_order.then(|| self.session.calls_end()).flatten();
        session_end.map_or(lease_end, |end| end.min(lease_end))
    }

    /// Takes or gives back as many partitions as the number of live hosts asks for. Returns whether the poller is to look: partitions
    /// are open that were not before, or some are to be given back.
    pub(crate) async fn keep(&self, store: &dyn Store, owner: &OwnerId, live: u32) -> Result<bool, StoreError> {
        let was_unsure = self.is_unsure.swap(true, Ordering::SeqCst);
        let share = if self.takes_any() { self.share } else { Share::None };
        let (mut held, share) = share.keep(store, owner, live).await?;
        self.is_unsure.store(false, Ordering::SeqCst);
        for held in held.iter_mut().filter(|_| was_unsure) {
            held.abandoned |= self.slots.epoch(held.number) != held.epoch;
        }
        let (mut open, stuck) = self.stuck_first(held);
        // A host that stands aside keeps reading those, since no other host can. In one order of all events nothing may overtake another.
        let least = if self.share == Share::Even && self.stands_aside() { stuck } else { 0 };
        let mut leaving = open.split_off(open.len().min(usize::from(share).max(least)));
        open.sort_unstable_by_key(|held| held.number);
        let given_back = self.lock().given_back.clone();
        leaving.extend(open.extract_if(.., |held| given_back.contains(&(held.number, held.epoch))));
        let (are_new, to_give_back) = self.update(&open, &leaving);
        if self.share == Share::Whole && self.takes_any() {
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
            released.iter().for_each(|held| self.slots.forget_epoch(held.number));
        }
        let said = |number| released.iter().any(|held| held.number == number);
        self.lock().given_back.retain(|(number, _)| !said(*number));
        Ok(are_new || self.is_leaving())
    }

    /// Puts partitions first that do not become empty, the longest so first: they are kept as long as others can go instead, since no
    /// host reads a partition that is leaving. Returns how many these are, too.
    fn stuck_first(&self, held: Vec<HeldPartition>) -> (Vec<HeldPartition>, usize) {
        let (now, state) = (Instant::now(), self.lock());
        let does_not_empty = |held: &HeldPartition| {
            let since = state.in_hand_since.get(&held.number);
            since.is_some_and(|since| now.saturating_duration_since(*since) >= EMPTIES_WITHIN)
        };
        let (mut stuck, others): (Vec<_>, Vec<_>) = held.into_iter().partition(does_not_empty);
        stuck.sort_by_key(|held| state.in_hand_since.get(&held.number).copied());
        let count = stuck.len();
        stuck.extend(others);
        (stuck, count)
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
        for (number, (epoch, is_open)) in (0..).zip(epochs) {
            let was = self.slots.set(number, epoch, is_open);
            are_new |= is_open && was != (epoch, true);
        }
        state.is_front_free &= !are_new;
        state.open = open.iter().map(|held| held.number).collect();
        state.careful.retain(|number, epoch| epochs[usize::from(number)].0 == epoch);
        state.careful.add_abandoned(open.iter().chain(leaving), self.careful_for);
        let (to_give_back, in_hand): (Vec<u16>, Vec<u16>) =
            leaving.iter().map(|held| held.number).partition(|number| self.slots.is_empty(*number));
        let now = Instant::now();
        // A host that stands aside keeps reading those that do not become empty.
        let must_leave = !leaving.is_empty() || self.stands_aside();
        state.in_hand_since.retain(|number, _| must_leave && !self.slots.is_empty(*number));
        for number in &in_hand {
            state.in_hand_since.entry(*number).or_insert(now);
        }
        state.leaving = in_hand;
        (are_new, to_give_back)
    }

    /// Signs this host off, after `close`, and frees its partitions. Partitions with events in flight become free when other hosts notice
    /// that this host is gone.
    pub(crate) async fn leave(&self, store: &dyn Store, owner: &OwnerId) -> Result<(), StoreError> {
        self.slots.close();
        let empty: Vec<u16> = (0..PARTITIONS).filter(|number| self.slots.is_empty(*number)).collect();
        if empty.len() == usize::from(PARTITIONS) {
            return store.leave(owner).await;
        }
        let held = |number| HeldPartition { number, epoch: self.slots.epoch(number), abandoned: false };
        store.release_partitions(owner, &empty.into_iter().map(held).collect::<Vec<_>>()).await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Partitions {
    /// All of them, held under this epoch for an hour.
    pub(crate) fn all_held(epoch: u32) -> std::sync::Arc<Self> {
        let partitions = Self::new(Share::Whole, false, 0);
        for number in 0..PARTITIONS {
            partitions.slots.set(number, epoch, true);
        }
        partitions.lease.renew(Instant::now(), Duration::from_secs(3_600));
        std::sync::Arc::new(partitions)
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests;
