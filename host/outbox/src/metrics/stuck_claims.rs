//! Due events that the database does not let this host claim, or whose payloads it cannot return.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::event::EventId;
use crate::store::{StuckEvent, StuckEvents, StuckReason};
use crate::time::{Timestamp, system_clock};

/// An event is reported once its claims have been refused for so long: some are refused for a moment.
const LASTING: Duration = Duration::from_secs(5);
/// How long after its rest an event is still reported. If it was not tried again by then, its row was deleted, or another host has it.
const TRIED_WITHIN: Duration = Duration::from_secs(15);

/// The events by `seq`.
#[derive(Debug, Default)]
pub(crate) struct StuckClaims(Mutex<BTreeMap<u64, StuckClaim>>);

#[derive(Debug)]
struct StuckClaim {
    event: StuckEvent,
    /// When the event is forgotten, unless its claim is refused again.
    until: Instant,
}

impl StuckClaims {
    /// Notes that the claim of an event was refused, and when it is tried again. `None` as the ID of an event keeps the known one.
    pub(crate) fn refused(&self, seq: u64, event_id: Option<EventId>, error: String, retry_at: Instant) {
        let mut claims = self.lock();
        let known = claims.remove(&seq).map(|claim| claim.event);
        let since = known.as_ref().map_or_else(|| system_clock().now(), |known| known.since);
        let event_id = event_id.or(known.and_then(|known| known.event_id));
        let event = StuckEvent { seq, event_id, error, since };
        claims.insert(seq, StuckClaim { event, until: retry_at + TRIED_WITHIN });
    }

    /// Notes that the database has accepted the claims of these events.
    pub(crate) fn accepted(&self, sequences: impl Iterator<Item = u64>) {
        let mut claims = self.lock();
        if !claims.is_empty() {
            for seq in sequences {
                claims.remove(&seq);
            }
        }
    }

    /// The events whose claims have been refused for some seconds; `None` if there is no such event.
    pub(crate) fn stuck(&self, now: Instant) -> Option<StuckEvents> {
        self.stuck_at(now, system_clock().now())
    }

    fn stuck_at(&self, now: Instant, time: Timestamp) -> Option<StuckEvents> {
        let mut claims = self.lock();
        claims.retain(|_, claim| now < claim.until);
        let lasting = |event: &&StuckEvent| time.since(event.since) >= LASTING;
        let mut events: Vec<StuckEvent> = claims.values().map(|claim| &claim.event).filter(lasting).cloned().collect();
        events.sort_by_key(|one| (one.since, one.seq));
        (!events.is_empty()).then(|| StuckEvents::new(StuckReason::ClaimRefused, events.len(), events))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, StuckClaim>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_is_refused_for_long_is_reported_until_it_is_accepted_or_not_tried_again() {
        let (claims, now) = (StuckClaims::default(), Instant::now());
        let id: EventId = "order-7".parse().expect("a good id");
        claims.refused(7, Some(id), "damaged".to_owned(), now);
        let since = system_clock().now();
        let later = since.plus(LASTING);
        assert_eq!(claims.stuck_at(now, since), None, "it may be for a moment");
        claims.refused(7, None, "damaged".to_owned(), now + LASTING);

        let stuck = claims.stuck_at(now, later).expect("it lasts");
        assert_eq!((stuck.count, stuck.first[0].event_id), (1, Some(id)), "its ID and its begin are kept");
        claims.accepted([7].into_iter());
        assert_eq!(claims.stuck_at(now, later), None);

        claims.refused(8, None, "damaged".to_owned(), now);
        assert_eq!(claims.stuck_at(now + TRIED_WITHIN, later), None, "it was not tried again");
    }
}
