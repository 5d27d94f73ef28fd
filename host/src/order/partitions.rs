//! Which partitions this node works on.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::event::{EventId, Fence, OwnerId};
use crate::queue::InFlight;
use crate::store::{PARTITIONS, Store, StoreError};
use crate::wake::Wake;

/// The partitions that this node works on: its share of all of them, taken and given back as nodes come and go.
#[derive(Debug)]
pub(crate) struct Partitions {
    /// How many there are: all, or the single one that serves as the lock of the mode `ordered`.
    of: u16,
    state: Mutex<State>,
    opened: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Those that events are claimed of.
    open: Vec<u16>,
    /// Those that are given back as soon as what was claimed of them is settled.
    leaving: Vec<u16>,
    /// Whether nobody else has events in hand any more that were claimed before these partitions were ours.
    settled: bool,
    /// What was in this process's hands when the leaving began.
    unsettled: HashSet<(EventId, Fence)>,
}

impl Partitions {
    /// Partitions for order by aggregate.
    pub(crate) fn of_aggregates() -> Self {
        Self { of: PARTITIONS, state: Mutex::default(), opened: Notify::new() }
    }

    /// The one partition that only one node at a time can hold.
    pub(crate) fn single() -> Self {
        Self { of: 1, state: Mutex::default(), opened: Notify::new() }
    }

    /// The partitions that events may be claimed of.
    pub(crate) fn open(&self) -> Vec<u16> {
        self.lock().open.clone()
    }

    /// Waits until partitions are opened that were not ours before. For one at a time.
    pub(crate) async fn opened(&self) {
        self.opened.notified().await;
    }

    /// Whether nobody else has events in hand any more that were claimed before these partitions were ours.
    pub(crate) fn is_settled(&self) -> bool {
        self.lock().settled
    }

    /// Notes that it is so.
    pub(crate) fn settled(&self) {
        self.lock().settled = true;
    }

    /// Renews the partitions, takes or gives back what the number of live nodes asks for, and wakes the poller when there are
    /// others than before.
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
        let held = store.keep_partitions(owner, lease, share, self.of).await?;
        let held: Vec<u16> = held.iter().map(|partition| partition.number).collect();
        let before: HashSet<u16> = self.lock().open.iter().copied().collect();
        let (open, leaving) = held.split_at(held.len().min(usize::from(share)));
        let given_back = self.update(open, leaving, in_flight);
        if open.iter().any(|partition| !before.contains(partition)) {
            tracing::debug!(partitions = open.len(), nodes = live, "this host works on other partitions than before");
            self.opened.notify_one();
            wake.now();
        }
        if !given_back.is_empty() {
            store.release_partitions(owner, &given_back).await?;
        }
        Ok(())
    }

    /// Notes what is held now. Returns the partitions that can be given back: nothing of them is in our hands any more.
    fn update(&self, open: &[u16], leaving: &[u16], in_flight: &InFlight) -> Vec<u16> {
        let mut state = self.lock();
        state.settled &= open.iter().all(|partition| state.open.contains(partition));
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
