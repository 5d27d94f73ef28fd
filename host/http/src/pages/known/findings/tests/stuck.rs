//! Events that are stuck.

use outbox_store::{StuckEvent, StuckEvents, StuckReason};

use super::*;

#[test]
fn refused_outcomes_are_told_with_what_the_database_says() {
    let one = |seq: u64| StuckEvent { seq, event_id: None, error: "the order is archived".to_owned(), since: now() };
    let host = |name: &str, count: usize| {
        let stuck = vec![StuckEvents::new(StuckReason::OutcomeRefused, count, [one(1)])];
        changed!(NodeRecord { stuck, ..node(name, now()) })
    };

    let all = said(Snapshot { nodes: vec![host("web-1", 1)], ..snapshot() });
    assert_eq!(all, ["The database refuses to store the outcome of 1 event; the host retries it: the order is archived"]);
    let all = said(Snapshot { nodes: vec![host("web-1", 30), host("web-2", 1)], ..snapshot() });
    assert!(all[0].starts_with("The database refuses to store the outcomes of 31 events; the hosts retry them:"), "{all:?}");
}

#[test]
fn an_outcome_that_waits_for_a_lock_is_told_and_the_hosts_are_not_behind() {
    let since = now().minus(Duration::from_secs(240));
    let one = StuckEvent { seq: 1, event_id: None, error: "the row is locked by another transaction".to_owned(), since };
    let stuck = vec![StuckEvents::new(StuckReason::OutcomeLocked, 1, [one])];
    let stats = changed!(Stats { new: 1, oldest_pending_seconds: waiting_for_host(243.0), ..Stats::default() });
    let nodes = vec![changed!(NodeRecord { stuck, ..node("web-1", now()) })];
    assert_eq!(
        said(Snapshot { nodes, stats, ..snapshot() }),
        ["The outcome of 1 event waits for a lock of another transaction, for 4 min: the row is locked by another transaction"]
    );
}

#[test]
fn a_slow_outcome_is_reported_and_the_hosts_are_not_behind() {
    let since = now().minus(Duration::from_secs(240));
    let one = StuckEvent { seq: 1, event_id: None, error: "the database has not stored it".to_owned(), since };
    let stuck = vec![StuckEvents::new(StuckReason::OutcomeSlow, 500, [one])];
    let stats = changed!(Stats { new: 500, oldest_pending_seconds: waiting_for_host(243.0), ..Stats::default() });
    let nodes = vec![changed!(NodeRecord { stuck, ..node("web-1", now()) })];
    assert_eq!(
        said(Snapshot { nodes, stats, ..snapshot() }),
        ["The outcomes of 500 events wait for a slow statement of the host, for 4 min: the database has not stored it"]
    );
}

#[test]
fn an_event_whose_payload_cannot_be_returned_is_told_with_the_error() {
    let since = now().minus(Duration::from_secs(240));
    let one = StuckEvent { seq: 1, event_id: None, error: "unexpected chunk number 100".to_owned(), since };
    let stuck = vec![StuckEvents::new(StuckReason::ClaimRefused, 1, [one])];
    let nodes = vec![changed!(NodeRecord { stuck, ..node("web-1", now()) })];
    assert_eq!(
        said(Snapshot { nodes, ..snapshot() }),
        ["The database does not let the hosts claim 1 event, or cannot return the payload: not delivered, for 4 min: \
          unexpected chunk number 100"]
    );
}
