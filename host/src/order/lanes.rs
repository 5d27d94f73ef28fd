//! Which lanes this node works on.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Order;
use crate::event::{EventId, Fence, OwnerId};
use crate::queue::InFlight;
use crate::store::{LANES, Store, StoreError};
use crate::wake::Wake;

/// The lanes that this node works on: its share of all of them, taken and given back as nodes come and go.
#[derive(Debug)]
pub(crate) struct Lanes {
    /// How many there are: all, or the single one that serves as the lock of the mode `ordered`.
    of: u16,
    order: Option<Arc<Order>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Those that events are claimed of.
    open: Vec<u16>,
    /// Those that are given back as soon as what was claimed of them is settled.
    leaving: Vec<u16>,
    /// Whether nobody else has events in hand any more that were claimed before these lanes were ours.
    settled: bool,
    /// When the table was last asked for all events of our lanes that others wait behind.
    learned_at: Option<Instant>,
    /// What was in this process's hands when the leaving began.
    unsettled: HashSet<(EventId, Fence)>,
}

impl Lanes {
    /// Lanes for order by aggregate.
    pub(crate) fn of_aggregates(order: Arc<Order>) -> Self {
        Self { of: LANES, order: Some(order), state: Mutex::default() }
    }

    /// The one lane that only one node at a time can hold.
    pub(crate) fn single() -> Self {
        Self { of: 1, order: None, state: Mutex::default() }
    }

    /// The lanes that events may be claimed of.
    pub(crate) fn open(&self) -> Vec<u16> {
        self.lock().open.clone()
    }

    /// Whether nobody else has events in hand any more that were claimed before these lanes were ours.
    pub(crate) fn is_settled(&self) -> bool {
        self.lock().settled
    }

    /// Notes that it is so.
    pub(crate) fn settled(&self) {
        self.lock().settled = true;
    }

    /// Renews the lanes, takes or gives back what the number of live nodes asks for, and wakes the poller when there are others
    /// than before.
    pub(crate) async fn keep(
        &self,
        store: &dyn Store,
        owner: &OwnerId,
        lease: Duration,
        live: u32,
        in_flight: &InFlight,
        wake: &Wake,
    ) -> Result<(), StoreError> {
        let share = self.of.div_ceil(u16::try_from(live.max(1)).unwrap_or(u16::MAX));
        let held = store.keep_lanes(owner, lease, share, self.of).await?;
        let before: HashSet<u16> = self.lock().open.iter().copied().collect();
        let (open, leaving) = held.split_at(held.len().min(usize::from(share)));
        let new: Vec<u16> = open.iter().filter(|lane| !before.contains(lane)).copied().collect();
        if let Some(order) = &self.order {
            self.learn(order, store, open, &new, lease).await?;
        }
        let given_back = self.update(open, leaving, in_flight);
        if !given_back.is_empty() {
            store.release_lanes(owner, &given_back).await?;
        }
        if !new.is_empty() {
            tracing::debug!(lanes = open.len(), nodes = live, "this node works on other lanes than before");
            wake.now();
        }
        Ok(())
    }

    /// The last owner of a lane knew who waits behind whom: we learn it from the table. Now and then for all lanes, since a host
    /// may still set events aside that it claimed before it lost their lane, and die before it lets them go.
    async fn learn(
        &self,
        order: &Order,
        store: &dyn Store,
        open: &[u16],
        new: &[u16],
        every: Duration,
    ) -> Result<(), StoreError> {
        let all = self.lock().learned_at.is_none_or(|at| at.elapsed() >= every);
        let lanes = if all { open } else { new };
        if !lanes.is_empty() {
            order.learn(store.blockers(lanes).await?);
        }
        if all {
            self.lock().learned_at = Some(Instant::now());
        }
        Ok(())
    }

    /// Notes what is held now. Returns the lanes that can be given back: nothing of them is in our hands any more.
    fn update(&self, open: &[u16], leaving: &[u16], in_flight: &InFlight) -> Vec<u16> {
        let mut state = self.lock();
        state.settled &= open.iter().all(|lane| state.open.contains(lane));
        state.open = open.to_vec();
        if leaving != state.leaving {
            state.leaving = leaving.to_vec();
            state.unsettled = in_flight.held().into_iter().collect();
        } else if !leaving.is_empty() {
            let held: HashSet<_> = in_flight.held().into_iter().collect();
            state.unsettled.retain(|claim| held.contains(claim));
        }
        if state.unsettled.is_empty() { std::mem::take(&mut state.leaving) } else { Vec::new() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
