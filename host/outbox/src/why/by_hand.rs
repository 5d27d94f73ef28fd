//! Manual changes that affect one event: of the event alone, of its route, or of many events by a filter.
//!
//! A change of many events leaves one audit record for each batch; here they are one [`Change`].

use serde_json::Value;

use super::changes::{Change, is_batch, selector};
use crate::deceptive::shown;
use crate::event::{Route, Status};
use crate::store::{AuditFilter, AuditRecord, Record, Store, StoreError};
use crate::time::Timestamp;
use crate::units::count;

/// How many changes are shown.
const CHANGES: usize = 50;
/// How many audit records are read at once.
const PAGE: u32 = 500;
/// How many pages of them are read: the batches of a replay of two million events.
const PAGES: usize = 40;

/// The manual changes that may have affected one event.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ByHand {
    /// The changes, the latest first.
    pub changes: Vec<Change>,
    /// Whether there are earlier changes.
    pub has_earlier: bool,
}

impl ByHand {
    /// Reads as many audit records as are needed for what is shown. `now` is the time of the database.
    pub(super) async fn read(store: &dyn Store, record: &Record, now: Timestamp) -> Result<Self, StoreError> {
        let written = written_at(record, now);
        let mut filter = AuditFilter { touching: Some(record.event_id), since: written, ..AuditFilter::default() };
        let mut by_hand = Self::default();
        for _ in 0..PAGES {
            let page = store.list_audit(&filter, PAGE).await?;
            let is_last = page.len() < PAGE as usize;
            filter.before = page.last().map(|last| last.id);
            page.into_iter().filter(|entry| touches(record, written, entry)).for_each(|entry| by_hand.add(entry));
            if by_hand.changes.len() > CHANGES {
                break;
            }
            if is_last {
                return Ok(by_hand);
            }
        }
        by_hand.changes.truncate(CHANGES);
        by_hand.has_earlier = true;
        Ok(by_hand)
    }

    /// Adds an audit record that is older than those before it.
    fn add(&mut self, record: AuditRecord) {
        // The batches of one replay or purge are recognised even if other changes came between them. The same replay with a
        // given time that is run again later is another change. Other changes are one change only if nothing came between.
        let is_batch = is_batch(&record);
        let reach = if is_batch { self.changes.len() } else { 1 };
        let same = |known: &&mut Change| if is_batch { known.has_part(&record) } else { known.is_repeated_by(&record) };
        match self.changes.iter_mut().rev().take(reach).find(same) {
            Some(known) => known.add(record),
            None => self.changes.push(Change::of(record)),
        }
    }
}

/// When the event was written, by the database's clock. `None` if its writer's clock was ahead: then the time in the row is after one that
/// the database has set, and changes before it may have affected the event.
fn written_at(record: &Record, now: Timestamp) -> Option<Timestamp> {
    let known = record.done_at.map_or(now, |ended| ended.min(now));
    Some(record.created_at).filter(|written| *written <= known)
}

/// Whether a change was made to this event, to its route, or to many events that may have included this one. `written` is the result of
/// [`written_at`].
fn touches(record: &Record, written: Option<Timestamp>, done: &AuditRecord) -> bool {
    let field = |name: &str| done.selector.get(name).and_then(Value::as_str);
    if let Some(id) = field("event_id") {
        return id == record.event_id.as_str();
    }
    let fits = |name: &str, own: Option<&str>| field(name).is_none_or(|wanted| own == Some(wanted));
    match done.action.as_str() {
        "pause" | "resume" => {
            let (changed, own) = (changed_route(done), Route::new(record.aggregate_type.as_str(), record.event_type.as_str()));
            changed.zip(own.ok()).is_some_and(|(changed, own)| changed.covers(&own))
        }
        // The audit log does not say which events a filter matched.
        "replay" => {
            record.replays > 0
                && !came_too_late(record, done)
                && !was_excluded(record, written, done)
                && fits("event_type", Some(&record.event_type))
                && fits("aggregate_type", Some(&record.aggregate_type))
                && fits("aggregate_id", record.aggregate_id.as_deref())
                && fits("tenant_id", record.tenant_id.as_deref())
        }
        "retry_now" => record.attempts > 0 && !came_too_late(record, done),
        _ => false,
    }
}

/// Whether the event had finished before the change: a replay clears the time at which an event finished.
fn came_too_late(record: &Record, done: &AuditRecord) -> bool {
    record.done_at.is_some_and(|ended| done.at > ended)
}

/// Whether the replay certainly left the event out: the event was written after the replay's time limit, or had another error.
fn was_excluded(record: &Record, written: Option<Timestamp>, done: &AuditRecord) -> bool {
    let field = |name: &str| done.selector.get(name).and_then(Value::as_str);
    let dead_before = field("dead_before").and_then(|time| time.parse::<Timestamp>().ok());
    // A replay keeps the error until the next failure. After several replays it may be the error of another one.
    let is_kept = record.replays == 1 && record.attempts == 0 && record.status != Status::Dead;
    let had = record.last_error.as_deref().filter(|_| is_kept).map(str::to_lowercase);
    dead_before.zip(written).is_some_and(|(time, written)| written > time)
        || field("error").zip(had).is_some_and(|(wanted, had)| !had.contains(&wanted.to_lowercase()))
}

/// The route or pattern that was paused or resumed.
fn changed_route(done: &AuditRecord) -> Option<Route> {
    let field = |name: &str| done.selector.get(name).and_then(Value::as_str);
    Route::new(field("aggregate_type")?, field("event_type")?).ok()
}

/// A change of this event in words: what was done, by whom and why; safe for a terminal.
pub(super) fn words(event: &Record, change: &Change) -> String {
    let Change { record: done, records, .. } = change;
    let by = format!(" by {}", shown(&done.actor));
    let why = done.reason.as_deref().map_or_else(String::new, |reason| format!(": {}", shown(reason)));
    let word = done.action.replace('_', " ");
    let times = if *records == 1 { String::new() } else { format!(", {},", count(*records, "time")) };
    if done.selector.get("event_id").is_some() {
        return format!("{word}{times}{by}{why}");
    }
    match done.action.as_str() {
        "replay" => {
            let events = count(done.count, "dead event");
            format!("replay of {events} ({}){by}, maybe this one{why}", shown(&selector(&done.selector)))
        }
        "retry_now" => format!("retry of {}{by}, maybe this one{why}", count(done.count, "failed event")),
        _ => {
            let is_own = |route: &Route| {
                route.aggregate_type.as_str() == event.aggregate_type && route.event_type.as_str() == event.event_type
            };
            let which = match changed_route(done) {
                Some(route) if !is_own(&route) => shown(&route.to_string()).into_owned(),
                _ => "its route".to_owned(),
            };
            format!("{word} of {which}{times}{by}{why}")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn record(second: i64, action: &str, selector: Value) -> AuditRecord {
        let record = AuditRecord::new(second.unsigned_abs(), at(second), "anna", action, selector);
        changed!(AuditRecord { count: 100, ..record })
    }

    /// What becomes of audit records that are given oldest first.
    fn folded(records: impl DoubleEndedIterator<Item = AuditRecord>) -> Vec<(String, i64, i64, u64, u64)> {
        let mut by_hand = ByHand::default();
        records.rev().for_each(|record| by_hand.add(record));
        let told = |change: Change| {
            let second = |time: Timestamp| time.as_micros() / 1_000_000;
            (change.record.action, second(change.record.at), second(change.last_at), change.record.count, change.records)
        };
        by_hand.changes.into_iter().rev().map(told).collect()
    }

    #[test]
    fn the_batches_of_one_replay_are_one_action_though_others_came_between() {
        let job = |began: &str| json!({ "event_type": "OrderPlaced", "dead_before": began });
        let pause = json!({ "aggregate_type": "Order", "event_type": "OrderPlaced" });
        let batches = (0..1_000).map(|n| record(n, "replay", job(if n % 2 == 0 { "2026-11-21" } else { "2026-11-22" })));
        let others = [record(2_000, "pause", pause.clone()), record(2_001, "resume", pause)];

        let told = folded(batches.chain(others).collect::<Vec<_>>().into_iter());

        let wanted = [
            ("replay".to_owned(), 0, 998, 50_000, 500),
            ("replay".to_owned(), 1, 999, 50_000, 500),
            ("pause".to_owned(), 2_000, 2_000, 100, 1),
            ("resume".to_owned(), 2_001, 2_001, 100, 1),
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn a_replay_with_the_same_given_time_is_told_again_when_it_is_run_later() {
        let until = || json!({ "dead_before": "2026-11-21" });
        let records = [record(0, "replay", until()), record(30, "replay", until()), record(3_600, "replay", until())];

        let told: Vec<_> = folded(records.into_iter()).into_iter().map(|(_, first, last, ..)| (first, last)).collect();

        assert_eq!(told, [(0, 30), (3_600, 3_600)]);
    }

    #[test]
    fn what_was_done_again_after_something_else_is_told_again() {
        let id = || json!({ "event_id": "one" });
        let records = ["replay", "replay", "skip", "replay"].into_iter().enumerate();
        let records: Vec<_> = records.map(|(second, action)| record(i64::try_from(second).unwrap(), action, id())).collect();

        let told: Vec<_> = folded(records.into_iter()).into_iter().map(|(action, .., records)| (action, records)).collect();

        assert_eq!(told, [("replay".to_owned(), 2), ("skip".to_owned(), 1), ("replay".to_owned(), 1)]);
    }

    /// Whether a change touches an event whose `created_at` is right.
    fn touches(event: &Record, done: &AuditRecord) -> bool {
        super::touches(event, Some(event.created_at), done)
    }

    /// An event that was written at second 100 and replayed once.
    fn replayed() -> Record {
        let envelope = crate::event::Envelope::new("Paid").aggregate("Order", "42").json(&42).expect("valid");
        changed!(Record { replays: 1, ..Record::inserted(1, &envelope, at(100)) })
    }

    #[test]
    fn a_replay_after_the_end_of_an_event_did_not_touch_it() {
        let ended = |status| changed!(Record { status, attempts: 3, done_at: Some(at(200)), ..replayed() });
        for status in [Status::Dead, Status::Done] {
            for action in ["replay", "retry_now"] {
                assert!(touches(&ended(status), &record(150, action, json!({}))), "{status} {action}: it may have been");
                assert!(!touches(&ended(status), &record(201, action, json!({}))), "{status} {action}: it ended before");
            }
        }
        assert!(touches(&replayed(), &record(201, "replay", json!({}))), "it waits");
        let event_id = replayed().event_id;
        let ended = changed!(Record { event_id, ..ended(Status::Dead) });
        assert!(touches(&ended, &record(201, "skip", json!({ "event_id": event_id }))), "to a dead event alone");
    }

    #[test]
    fn an_event_that_is_dated_ahead_may_have_been_touched_before_that_time() {
        let event = replayed();
        assert_eq!(written_at(&event, at(101)), Some(at(100)));
        assert_eq!(written_at(&event, at(99)), None, "the time is still to come");
        let ended = changed!(Record { status: Status::Done, done_at: Some(at(70)), ..replayed() });
        assert_eq!(written_at(&ended, at(200)), None, "it was delivered before that time");

        let until = record(60, "replay", json!({ "dead_before": at(60) }));
        assert!(!touches(&event, &until), "it was not written yet");
        assert!(super::touches(&event, None, &until), "it may have been written by then");
    }

    #[test]
    fn a_replay_that_asked_for_other_events_did_not_touch_it() {
        let until = |second: i64| record(200, "replay", json!({ "dead_before": at(second) }));
        assert!(!touches(&replayed(), &until(99)), "it was not written yet");
        assert!(touches(&replayed(), &until(101)));

        let of = |error: &str| record(200, "replay", json!({ "error": error }));
        let failed =
            |attempts, replays| changed!(Record { attempts, replays, last_error: Some("Timeout".to_owned()), ..replayed() });
        assert!(!touches(&failed(0, 1), &of("no such customer")), "its error is still that of before");
        assert!(touches(&failed(0, 1), &of("timeout")), "not every database knows large letters from small ones");
        assert!(touches(&failed(1, 1), &of("no such customer")), "it failed again since then");
        assert!(touches(&failed(0, 2), &of("no such customer")), "it may have been the replay before");
        let dead = changed!(Record { status: Status::Dead, done_at: Some(at(300)), ..failed(0, 1) });
        assert!(touches(&dead, &of("no such customer")), "its listener gave it up since then");
    }
}
