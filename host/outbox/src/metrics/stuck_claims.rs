//! Due events that the database does not let this host claim, or whose payloads it cannot return.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use crate::event::EventId;
use crate::refusals::KNOWN_FOR;
use crate::store::{StuckEvent, StuckEvents, StuckReason};
use crate::time::{Timestamp, system_clock};

/// An event is reported once its claims have been refused for so long: some are refused for a moment.
const LASTING: Duration = Duration::from_secs(5);
/// How long after its rest the row of an event is read if its claim was not tried: the row may be gone, or this host has no capacity.
const CHECK_AFTER: Duration = Duration::from_secs(15);
/// The most rows that are read at once.
const CHECKED_AT_ONCE: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct StuckClaims {
    /// The events by `seq`.
    claims: Mutex<BTreeMap<u64, StuckClaim>>,
    /// Locked while rows are read.
    checking: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct StuckClaim {
    event: StuckEvent,
    /// The partition of the event and its epoch. `None` if the event was claimed without a read.
    partition: Option<(u16, u32)>,
    /// When its claim may be tried again.
    retry_at: Instant,
    /// When its row is read; `None` if as soon as possible.
    check_at: Option<Instant>,
    is_logged: bool,
}

/// An event whose row must be read: its ID is unknown, or its claim was not tried for long.
#[derive(Debug)]
pub(crate) struct Unchecked {
    pub(crate) seq: u64,
    /// The error of the database.
    pub(crate) error: String,
    /// Whether the event was not returned before.
    pub(crate) is_new: bool,
}

impl StuckClaims {
    /// Notes that the claim of an event was refused, and when it may be tried again. Keeps the first 500 bytes of the error: the error of
    /// a trigger may be as long as a payload.
    pub(crate) fn refused(&self, seq: u64, partition: Option<(u16, u32)>, error: String, retry_at: Instant) {
        let mut claims = self.lock();
        let (since, event_id, is_logged) = match claims.get(&seq) {
            Some(claim) => (claim.event.since, claim.event.event_id, claim.is_logged),
            None => (system_clock().now(), None, false),
        };
        let check_at = event_id.map(|_| retry_at + CHECK_AFTER);
        let event = StuckEvent { seq, event_id, error, since }.bounded();
        claims.insert(seq, StuckClaim { event, partition, retry_at, check_at, is_logged });
    }

    /// Forgets events: their claims were accepted, or they are not due any more.
    pub(crate) fn forget(&self, sequences: impl Iterator<Item = u64>) {
        let mut claims = self.lock();
        if !claims.is_empty() {
            for seq in sequences {
                claims.remove(&seq);
            }
        }
    }

    /// The right to read rows until it is dropped; `None` while another task has it.
    pub(crate) fn turn_to_check(&self) -> Option<OwnedMutexGuard<()>> {
        self.checking.clone().try_lock_owned().ok()
    }

    /// The next events whose rows must be read, at most 16.
    pub(crate) fn to_check(&self, now: Instant) -> Vec<Unchecked> {
        let mut claims = self.lock();
        let due = claims.values_mut().filter(|claim| claim.check_at.is_none_or(|at| at <= now)).take(CHECKED_AT_ONCE);
        let unchecked = |claim: &mut StuckClaim| {
            claim.check_at = Some(now.max(claim.retry_at) + CHECK_AFTER);
            let is_new = !std::mem::replace(&mut claim.is_logged, true);
            Unchecked { seq: claim.event.seq, error: claim.event.error.clone(), is_new }
        };
        due.map(unchecked).collect()
    }

    /// Notes the ID of an event.
    pub(crate) fn name(&self, seq: u64, event_id: EventId) {
        if let Some(claim) = self.lock().get_mut(&seq) {
            claim.event.event_id = Some(event_id);
        }
    }

    /// The events whose claims have been refused for some seconds; `None` if there is no such event. Forgets events of partitions that
    /// this host has lost, and events whose claims were not tried for as long as [`Refusals`](crate::refusals::Refusals) knows them.
    pub(crate) fn stuck(&self, now: Instant, is_lost: impl Fn((u16, u32)) -> bool) -> Option<StuckEvents> {
        self.stuck_at(now, system_clock().now(), is_lost)
    }

    fn stuck_at(&self, now: Instant, time: Timestamp, is_lost: impl Fn((u16, u32)) -> bool) -> Option<StuckEvents> {
        let mut claims = self.lock();
        claims.retain(|_, claim| now < claim.retry_at + KNOWN_FOR && !claim.partition.is_some_and(&is_lost));
        let lasting = |event: &&StuckEvent| time.since(event.since) >= LASTING;
        let mut events: Vec<&StuckEvent> = claims.values().map(|claim| &claim.event).filter(lasting).collect();
        events.sort_unstable_by_key(|one| (one.since, one.seq));
        let first = events.iter().take(StuckEvents::NAMED).copied().cloned();
        (!events.is_empty()).then(|| StuckEvents::new(StuckReason::ClaimRefused, events.len(), first))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, StuckClaim>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: fn((u16, u32)) -> bool = |_| false;

    fn id() -> EventId {
        "order-7".parse().expect("a good id")
    }

    fn refuse(claims: &StuckClaims, retry_at: Instant) {
        claims.refused(7, Some((1, 2)), "damaged".to_owned(), retry_at);
    }

    fn to_check(claims: &StuckClaims, now: Instant) -> Vec<(u64, bool)> {
        claims.to_check(now).into_iter().map(|one| (one.seq, one.is_new)).collect()
    }

    #[test]
    fn a_claim_that_is_refused_for_long_is_reported_until_it_is_accepted() {
        let (claims, now) = (StuckClaims::default(), Instant::now());
        refuse(&claims, now);
        claims.name(7, id());
        let since = system_clock().now();
        let later = since.plus(LASTING);
        assert_eq!(claims.stuck_at(now, since, KEPT), None, "it may be for a moment");
        refuse(&claims, now + LASTING);

        let stuck = claims.stuck_at(now, later, KEPT).expect("it lasts");
        assert_eq!((stuck.count, stuck.first[0].event_id), (1, Some(id())), "its ID and its begin are kept");
        claims.forget([7].into_iter());
        assert_eq!(claims.stuck_at(now, later, KEPT), None);
    }

    #[test]
    fn a_claim_that_is_not_tried_is_reported_for_as_long_as_its_refusal_is_known_and_its_partition_held() {
        let (claims, now, later) = (StuckClaims::default(), Instant::now(), system_clock().now().plus(2 * LASTING));
        refuse(&claims, now);
        let last = now + KNOWN_FOR - Duration::from_secs(1);
        assert!(claims.stuck_at(last, later, KEPT).is_some(), "its listeners may be busy");
        assert_eq!(claims.stuck_at(now + KNOWN_FOR, later, KEPT), None);

        refuse(&claims, now);
        assert_eq!(claims.stuck_at(now, later, |partition| partition == (1, 2)), None, "another host has the partition");
    }

    #[test]
    fn a_long_error_is_shortened_and_the_oldest_events_are_named() {
        let (claims, now, later) = (StuckClaims::default(), Instant::now(), system_clock().now().plus(2 * LASTING));
        for seq in 0..100 {
            claims.refused(seq, None, "x".repeat(1 << 20), now);
        }
        assert!(claims.lock().values().all(|claim| claim.event.error.capacity() < 1_000));

        let stuck = claims.stuck_at(now, later, KEPT).expect("they last");
        assert_eq!((stuck.count, stuck.first.len(), stuck.first[0].seq), (100, StuckEvents::NAMED, 0));
    }

    #[test]
    fn the_row_of_an_event_is_read_until_its_id_is_known_and_again_if_its_claim_is_not_tried() {
        let (claims, now) = (StuckClaims::default(), Instant::now());
        refuse(&claims, now);
        assert_eq!(to_check(&claims, now), [(7, true)]);
        assert!(to_check(&claims, now).is_empty(), "it is read once for each refusal");
        refuse(&claims, now + LASTING);
        assert_eq!(to_check(&claims, now), [(7, false)], "the last read failed");

        claims.name(7, id());
        refuse(&claims, now + LASTING);
        assert!(to_check(&claims, now + LASTING).is_empty());
        assert_eq!(to_check(&claims, now + LASTING + CHECK_AFTER), [(7, false)], "its claim was not tried");
    }

    #[test]
    fn one_task_at_a_time_reads_rows() {
        let claims = StuckClaims::default();
        let turn = claims.turn_to_check();
        assert!(turn.is_some() && claims.turn_to_check().is_none());
        drop(turn);
        assert!(claims.turn_to_check().is_some());
    }
}
