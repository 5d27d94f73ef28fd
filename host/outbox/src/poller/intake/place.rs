//! Queues events. In the ordered modes each event gets its place in its key queue.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Intake;
use super::judge::is_delivered_alone;
use crate::event::Event;
use crate::poller::STOPPED_FRONT_REST;
use crate::queue::{Delivery, KeyAdmission, Mark, Via};
use crate::settlement::{given_back, given_back_for};
use crate::store::Claimed;

/// An event that was taken from the table, and the `seq` of the last event that it waits for.
pub(super) struct Taken {
    pub(super) delivery: Delivery,
    pub(super) behind: Option<u64>,
}

/// The values of a row that its delivery needs beside the event.
#[derive(Clone, Copy)]
pub(super) struct RowState {
    /// The `seq` of the last event that it waits for.
    pub(super) behind: Option<u64>,
    deferrals: u32,
    expires_in: Option<Duration>,
    /// Whether no other listener may run during its call.
    alone: bool,
}

impl RowState {
    pub(super) fn of(claimed: &Claimed) -> Self {
        let Claimed { behind, deferrals, expires_in, .. } = *claimed;
        Self { behind, deferrals, expires_in, alone: is_delivered_alone(claimed) }
    }
}

/// The result of placing events.
pub(super) struct Placed {
    /// The events that may start.
    pub(super) start: Vec<Delivery>,
    /// How many others wait, in key queues or blocked in the table.
    pub(super) others: usize,
}

impl Intake {
    /// The delivery of an event that was taken from the table, in this batch. The time until it expires counts from `answered_at`.
    pub(super) fn taken(&self, event: Event, mark: Mark, row: RowState, batch: u64, answered_at: Instant) -> Taken {
        let RowState { behind, deferrals, expires_in, alone } = row;
        let counted_bytes = Some(self.queue.count_bytes(event.size_bytes()));
        let delivery = Delivery::new(Arc::new(event), mark, Via::Cold, batch).expiring(answered_at, expires_in);
        Taken { delivery: Delivery { deferrals, alone, counted_bytes, ..delivery }, behind }
    }

    /// Decides for each event whether it starts, waits in its key queue, or is blocked in the table. `taken` must be in the order of `seq`.
    pub(super) async fn place_all(&self, taken: Vec<Taken>) -> Placed {
        let Some(order) = &self.order else {
            return Placed { start: taken.into_iter().map(|taken| taken.delivery).collect(), others: 0 };
        };
        let mut placed = Placed { start: Vec::with_capacity(taken.len()), others: 0 };
        let mut elsewhere = Vec::new();
        for Taken { delivery, behind } in taken {
            match order.place(delivery, behind) {
                KeyAdmission::Start(delivery) => placed.start.push(delivery),
                KeyAdmission::Waits => placed.others += 1,
                KeyAdmission::Behind(delivery, last) => {
                    // In one queue of all events, the event only keeps its place. A claimed event is delayed: given back at once, it would
                    // be read and claimed again and again, until the outcome of the event before it is stored. After a stop another host
                    // takes it.
                    let is_one_queue = order.is_one_for_all();
                    let must_rest = is_one_queue && !delivery.mark.is_read() && !self.queue.is_closed();
                    let settlement =
                        if must_rest { given_back_for(STOPPED_FRONT_REST) } else { order.behind(&delivery.event, last) };
                    placed.others += usize::from(!is_one_queue);
                    self.settler.send(delivery, settlement);
                }
                KeyAdmission::Elsewhere(delivery, nearest) => elsewhere.push((delivery, nearest)),
            }
        }
        placed.others += elsewhere.len();
        self.set_aside(elsewhere).await;
        placed
    }

    /// Blocks events in the table, each behind the head of its queue: when the head is resolved, all of them are unblocked.
    async fn set_aside(&self, elsewhere: Vec<(Delivery, u64)>) {
        let Some(order) = &self.order else { return };
        if elsewhere.is_empty() {
            return;
        }
        let events: Vec<u64> = elsewhere.iter().map(|(delivery, _)| delivery.event.sequence()).collect();
        // If the query fails, each event waits behind the one before it: slower, but correct.
        let heads = self.store.heads(&events, order.waits_for()).await.inspect_err(|error| self.metrics.db_error(error));
        let heads: HashMap<u64, u64> = heads.unwrap_or_default().into_iter().collect();
        for (delivery, nearest) in elsewhere {
            let head = heads.get(&delivery.event.sequence()).copied().unwrap_or(nearest);
            let settlement = order.behind(&delivery.event, head);
            self.settler.send(delivery, settlement);
        }
    }

    /// Puts deliveries into the cold queue. Gives them back to the table if the queue was closed in the meantime.
    pub(super) fn queue_all(&self, deliveries: Vec<Delivery>) {
        let count = deliveries.len();
        let refused = self.queue.push(Via::Cold, deliveries);
        self.metrics.cold_enqueued.add(u64::try_from(count - refused.len()).unwrap_or(0));
        for delivery in refused {
            self.settler.send(delivery, given_back());
        }
    }
}
