//! Turns rows that were read into deliveries in the cold queue. A row that its partition does not secure is claimed first.

mod accept;
mod busy;
mod claim;
mod judge;
mod leaving;
mod place;
mod refused;
mod room;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub(super) use self::accept::{Accepted, Claims, bytes_of};
pub(crate) use self::busy::Busy;
pub(super) use self::claim::Holds;
pub(crate) use self::room::Headroom;
use crate::event::OwnerId;
use crate::listener::Listeners;
use crate::metrics::Metrics;
use crate::order::Order;
use crate::partition::Partitions;
use crate::queue::{BatchNumbers, Dropped, InFlight, Queue};
use crate::refusals::Refusals;
use crate::settlement::SettlementRules;
use crate::settler::BufferedHandle;
use crate::store::Store;
use crate::wake::Wake;

/// Turns rows into deliveries, with the parts of the host that this needs.
pub(crate) struct Intake {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) settler: BufferedHandle,
    pub(crate) wake: Arc<Wake>,
    pub(crate) batch_numbers: Arc<BatchNumbers>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) owner: OwnerId,
    pub(crate) lease: Duration,
    pub(crate) rules: SettlementRules,
    /// `None` in modes without order.
    pub(crate) order: Option<Arc<Order>>,
    /// The partitions whose events this host takes.
    pub(crate) partitions: Arc<Partitions>,
    /// The listeners whose events a read leaves out. Empty in the ordered modes.
    pub(crate) busy: Busy,
    /// For order by aggregate.
    pub(crate) headroom: Headroom,
    /// By `seq`, the rows that the database does not let this host claim.
    pub(crate) refused: Refusals<u64>,
}

impl Intake {
    /// Whether no event is in flight here that was taken before this host owned the one queue. An event that another host may still handle
    /// is first in the queue once its lease ends: no read passes it.
    pub(crate) fn is_front_ours(&self) -> bool {
        if !self.partitions.is_front_free() {
            if !self.partitions.is_whole() || !self.in_flight.is_empty() {
                return false;
            }
            self.partitions.mark_front_free();
        }
        true
    }

    /// Whether all events are in one queue.
    pub(super) fn is_one_queue(&self) -> bool {
        self.order.as_ref().is_some_and(|order| order.is_one_for_all())
    }

    /// The `seq` of events that no read needs to return. In the ordered modes, a read returns events that this host dropped without an
    /// outcome, to learn which events they wait for.
    pub(super) fn not_to_read(&self) -> Vec<u64> {
        let mut known = if self.order.is_some() { self.in_flight.in_hand() } else { self.in_flight.known() };
        if !self.is_one_queue() {
            // In one queue, a read would skip these rows, and later events would be delivered before them.
            known.extend(self.refused.resting(Instant::now()));
        }
        known
    }

    /// Forgets the events that this host dropped without an outcome and whose partitions another host holds now: that host reads them under
    /// another epoch. The other events are claimed when a read returns them. No read returns events that ended elsewhere, for example by an
    /// operator.
    pub(super) fn forget_lost(&self) {
        let is_lost = |one: &&Dropped| self.partitions.is_held(one.partition.0, one.partition.1) == Some(false);
        self.in_flight.dropped().iter().filter(is_lost).for_each(|one| self.in_flight.forget(one));
    }
}
