//! Events that are excluded from the store: between two attempts they wait in memory, and nowhere else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::event::Event;
use crate::queue::{Delivery, Queue, Reserved};
use crate::store::Settlement;

/// How soon an event is tried again whose route is paused or has no listener just now: nobody unparks what is in no table.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// As good as for ever, and can be added to any time.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3_600);

/// An event that waits for its next attempt.
#[derive(Debug)]
pub(super) struct Resting {
    delivery: Delivery,
    after: Duration,
    /// Its place in the hot queue. It bounds how many events may wait here.
    room: Reserved,
}

impl Resting {
    /// `None` when there is no further attempt.
    pub(super) fn of(delivery: Delivery, settlement: Settlement, queue: &Arc<Queue>) -> Option<Self> {
        let event = delivery.event.clone();
        let has_waited = matches!(settlement, Settlement::Released { .. });
        let (after, attempts, deferrals) = match settlement {
            Settlement::Done | Settlement::Erased => return None,
            Settlement::Dead { error, .. } => {
                tracing::error!(
                    event.id = %event.id(), route = %event.route(), attempt = event.attempt(), error,
                    "an event is given up; it was excluded from the store, so it is lost"
                );
                return None;
            }
            Settlement::Retry { after, error } => {
                tracing::warn!(
                    event.id = %event.id(), route = %event.route(), attempt = event.attempt(), error,
                    "an event that is excluded from the store failed; it is tried again from memory"
                );
                (after, 1, 0)
            }
            Settlement::Deferred { after } => (after, 0, 1),
            Settlement::Released { after, .. } => (after, 0, 0),
            Settlement::Parked { .. } | Settlement::Behind { .. } => (LOOK_AGAIN, 0, 0),
        };
        let waited = if has_waited { event.waited().saturating_add(after) } else { Duration::ZERO };
        let next = Event::of(event.envelope().clone()).attempt(event.attempt().saturating_add(attempts)).waited(waited).build();
        let deferrals = delivery.deferrals.saturating_add(deferrals);
        let room = queue.reserve_again(next.size_bytes());
        Some(Self { delivery: Delivery { event: Arc::new(next), deferrals, ..delivery }, after, room })
    }

    /// Says that there is no further attempt, because the host stops.
    pub(super) fn lost(self) {
        lost(&self.delivery);
    }
}

fn lost(delivery: &Delivery) {
    let event = &delivery.event;
    tracing::error!(
        event.id = %event.id(), route = %event.route(), attempt = event.attempt(),
        "the host stops before an event was delivered that is excluded from the store; it is lost"
    );
}

/// Lets events wait, and brings them back into the hot queue, until the host is stopped.
pub(super) async fn wait(
    mut excluded: mpsc::UnboundedReceiver<Resting>,
    queue: Arc<Queue>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut resting: BTreeMap<(Instant, u64), Resting> = BTreeMap::new();
    let mut number = 0;
    loop {
        let next = resting.first_key_value().map(|((at, _), _)| *at);
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => break,
            Some(waiting) = excluded.recv() => {
                number += 1;
                // One that comes again at once has not ended what it does.
                if !waiting.after.is_zero() {
                    waiting.delivery.mark.rest();
                }
                resting.insert((Instant::now() + waiting.after.min(LONGEST), number), waiting);
            }
            () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                let Some((_, waiting)) = resting.pop_first() else { continue };
                waiting.delivery.mark.end_rest();
                for late in queue.push_reserved(waiting.room, vec![waiting.delivery]) {
                    lost(&late);
                }
            }
        }
    }
    // Closed before the last are taken out: whoever sends another is told that it was not.
    excluded.close();
    while let Ok(waiting) = excluded.try_recv() {
        waiting.lost();
    }
    resting.into_values().for_each(Resting::lost);
}
