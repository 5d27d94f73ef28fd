//! The state of an event and what happens next, in words. Pure: rows in, sentences out.

use super::Facts;
use super::parked::{listener_advice, parked};
use super::pauses::pause_in_full;
use super::reason::{hosts, is_unroutable};
use super::state::{State, pauses, state_of, stuck};
use crate::deceptive::shown;
use crate::store::{Record, StuckReason};
use crate::time::Timestamp;
use crate::units::{count, relative_to as at, span};

/// The reason for the state and what happens next, in one sentence or a few, safe for a terminal.
pub(super) fn sentence(known: &Facts, state: State) -> String {
    let Facts { record, waiting, queue, .. } = known;
    let mut next = of_one(known, record, state);
    match state {
        State::DeadBlocking => next.push_str(&match waiting {
            0 => format!(" Later events of {} wait until it is replayed, skipped or discarded.", aggregate(record)),
            waiting => {
                let (events, wait) = (count(*waiting, "later event"), if *waiting == 1 { "waits" } else { "wait" });
                format!(" {events} of {} {wait} until it is replayed, skipped or discarded.", aggregate(record))
            }
        }),
        State::Behind => match queue.last() {
            None => next.push_str(" That event no longer exists, so a host will release this one within seconds."),
            Some(head) => {
                let of_head = state_of(known, head);
                let said = of_one(known, head, of_head);
                let place =
                    if queue.len() == 1 { "That one".to_owned() } else { format!("The first of the queue, {}", name(head)) };
                next.push_str(&format!(" {place} is {}: {}", head.status, after_colon(said)));
                if matches!(of_head, State::Dead | State::Done) {
                    next.push_str(" That event blocks nothing, so a host will release this one within seconds.");
                }
            }
        },
        _ => {}
    }
    next
}

/// A sentence as it follows a colon. The name of a host stays as it is.
fn after_colon(mut sentence: String) -> String {
    if ["It ", "Its ", "The ", "No "].iter().any(|start| sentence.starts_with(start)) {
        sentence[..1].make_ascii_lowercase();
    }
    sentence
}

/// The sentence for one event, without its queue.
fn of_one(known: &Facts, record: &Record, state: State) -> String {
    let now = known.now;
    let before = failed_before(record);
    match state {
        State::Done => format!("It was delivered {}{}.", when(record.done_at, now), failures(record)),
        State::Dead | State::DeadBlocking => dead(record, now),
        State::Claimed => before + &claimed(known, record),
        State::LeaseOver => {
            let (holder, end) = (holder(known, record), when(record.lease_end, now));
            format!("{holder} claimed it and reported no outcome before its lease ended {end}. {}", next_host(known, true))
        }
        State::Stuck => before + &stuck_at(known, record),
        State::Due => {
            let waited = given_back(record, known.now).map_or_else(String::new, |why| format!("{why}. "));
            let advice = listener_advice(known, record);
            format!("{before}{waited}It has been due {}. {}{advice}", since(record, now), next_host(known, false))
        }
        State::Delayed => {
            let ready = record.available_at.max(record.due_at.unwrap_or(record.available_at));
            format!("Its writer asked for delivery no earlier than {ready}: it is due {}. {}", at(ready, now), then(known))
        }
        State::Retrying => {
            let waits = given_back(record, known.now).map_or_else(String::new, |why| format!("{why}. "));
            let advice = listener_advice(known, record);
            format!("{before}{waits}It is due {}. {}{advice}", at(record.due_at.unwrap_or(now), now), then(known))
        }
        State::Deferred => before + &deferred(known, record) + &listener_advice(known, record),
        State::Parked => parked(known, record),
        State::Paused => paused(known, record),
        State::Behind => {
            let first = known.queue.first().map_or_else(|| format!("seq {}", record.behind.unwrap_or(0)), name);
            format!("It waits behind an earlier event of {}, {first}.", aggregate(record))
        }
        State::Expired => {
            let end = record.expires_at.unwrap_or(now);
            format!("It expired at {end} ({}); the next host that takes it marks it DEAD.", at(end, now))
        }
        State::Stranded => {
            "It is not finished, and its due_at is empty although it waits for nothing: no host will ever take it. \
             Set due_at to the current time by SQL, and find out what emptied it."
                .to_owned()
        }
    }
}

fn dead(record: &Record, now: Timestamp) -> String {
    // A failure that is not counted is the listener's answer `dead`.
    let by = if record.failures() > record.attempts { " by its listener" } else { "" };
    let said = format!("It was given up{by} {}{}: {}.", when(record.done_at, now), failures(record), error(record));
    if !is_unroutable(record) {
        return said;
    }
    let route = route_name(record);
    format!(
        "{said} A replay helps only when a listener for {route} is there; an event that was written under a wrong name has to be written again."
    )
}

fn claimed(known: &Facts, record: &Record) -> String {
    let (name, end) = (holder(known, record), record.lease_end.unwrap_or(known.now));
    let left = at(end, known.now);
    if ended_session(known, record) {
        return format!("{name} claimed it until {end} ({left}); after that, the host that has its partition takes the event.");
    }
    format!(
        "{name} has it until {end} ({left}) and may renew its claim; after that, the host that has its partition takes the event."
    )
}

fn deferred(known: &Facts, record: &Record) -> String {
    let why = match (given_back(record, known.now), record.deferrals) {
        (Some(why), _) => why,
        (None, 0) => "It was given back without counting a failure, and its host noted no reason".to_owned(),
        (None, deferrals) => format!("Its listener asked for later ({})", times(deferrals)),
    };
    format!("{why}. It is due {}. {}", at(record.due_at.unwrap_or(known.now), known.now), then(known))
}

/// The reason that a host noted when it gave the event back, as the begin of a sentence.
fn given_back(record: &Record, now: Timestamp) -> Option<String> {
    let reason = record.wait_reason.as_deref()?;
    let for_so_long = record.wait_since.map_or_else(String::new, |since| format!(" for {}", span(now.since(since))));
    Some(format!("It has waited{for_so_long}, and no failure is counted, because {}", shown(reason.trim_end_matches('.'))))
}

fn stuck_at(known: &Facts, record: &Record) -> String {
    let Some((node, reason, event)) = stuck(known, record) else { return String::new() };
    let (host, error) = (shown(&node.label), shown(&event.error));
    let since = format!("since {} ({})", event.since, at(event.since, known.now));
    match reason {
        StuckReason::OutcomeLocked => format!(
            "Its listener has answered, but the outcome waits {since}: {error}. The host {host} stores it when that transaction ends, and \
             does not call the listener again while it keeps the event. End that transaction if it was forgotten."
        ),
        StuckReason::OutcomeSlow => format!(
            "Its listener has answered, but the outcome waits {since}: {error}. The host {host} stores outcomes in smaller parts until it \
             finds the slow one, and does not call the listener again while it keeps the event. Find out what slows the database down, for \
             example a trigger of the table."
        ),
        StuckReason::ClaimRefused => format!(
            "It is due and is not delivered, because the database does not let the host {host} claim it, or cannot return its payload, \
             {since}: {error}. The host retries, at the latest after a minute, and delivers other events. Look for damage of the table, and \
             for a trigger, a constraint or a row-level policy; restore the row, or delete it."
        ),
        _ => format!(
            "Its listener has answered, but the database has refused to store the outcome {since}: {error}. The host {host} retries \
             about once a minute, and does not call the listener again while it runs. Look for a trigger, rule, constraint or row-level policy \
             of the table that prevents the change, and at the rights of the host."
        ),
    }
}

/// The host that holds the event, by its label.
fn holder(known: &Facts, record: &Record) -> String {
    let owner = record.locked_by.as_deref().unwrap_or_default();
    match known.nodes.iter().find(|node| node.owner == owner) {
        Some(node) if node.alive => format!("The host {} (alive)", shown(&node.label)),
        Some(node) if node.alive_until > known.now => {
            format!("The host {} (gone: its session has ended)", shown(&node.label))
        }
        Some(node) => format!("The host {} (gone for {})", shown(&node.label), span(known.now.since(node.alive_until))),
        None => format!("The host {} (not in the table of hosts)", shown(owner)),
    }
}

/// Whether the session of the host that holds the event has ended before its lease.
fn ended_session(known: &Facts, record: &Record) -> bool {
    let mut nodes = known.nodes.iter().filter(|node| Some(&node.owner) == record.locked_by.as_ref());
    nodes.any(|node| !node.alive && node.alive_until > known.now)
}

/// Which host takes a due event. A host may have the event in hand already: reading a partition writes nothing. An event that
/// was claimed before is claimed again.
fn next_host(known: &Facts, was_claimed: bool) -> String {
    let takes = if was_claimed { "takes it when it has room" } else { "has it in hand, or takes it when it has room" };
    match hosts(known) {
        0 => format!("The next host takes it, {NOBODY}."),
        1 => format!("The one live host {takes}."),
        live => format!("Of the {live} live hosts, the one that holds its partition {takes}."),
    }
}

/// Which host takes an event that will be due.
fn then(known: &Facts) -> String {
    match hosts(known) {
        0 => format!("Then the next host takes it, {NOBODY}."),
        1 => "Then the one live host takes it.".to_owned(),
        _ => "Then the host that holds its partition takes it.".to_owned(),
    }
}

const NOBODY: &str = "but no host is running: start one with `outbox run`";

/// The pauses that hold its route, and how to end them.
fn paused(known: &Facts, record: &Record) -> String {
    let (route, pauses) = (route_name(record), pauses(known, record));
    let mut said = String::new();
    for paused in &pauses {
        let pause = pause_in_full(paused, known.now);
        let pattern = shown(&paused.route.to_string()).into_owned();
        said.push_str(&match (paused.route.is_pattern(), said.is_empty()) {
            (false, _) => format!("Its route {route} is paused {pause}. "),
            (true, true) => format!("Its route {route} is held by the pattern {pattern}, which is paused {pause}. "),
            (true, false) => format!("The pattern {pattern}, which covers it too, is also paused {pause}. "),
        });
    }
    match pauses.as_slice() {
        [alone] if alone.route.is_pattern() => {
            said + &format!("It is delivered once {} is resumed.", shown(&alone.route.to_string()))
        }
        [_] => said + "It is delivered once the route is resumed.",
        _ => said + "It is delivered once all of them are resumed.",
    }
}

/// How long it has been due. An event is not due before it was written, unless its writer's clock is ahead.
fn since(record: &Record, now: Timestamp) -> String {
    let written = Some(record.created_at).filter(|written| *written <= now);
    record.due_at.map_or_else(String::new, |due| format!("for {}", span(now.since(written.map_or(due, |at| due.max(at))))))
}

fn failures(record: &Record) -> String {
    match record.failures() {
        0 => String::new(),
        failures => format!(", after {}", count(failures.into(), "failed attempt")),
    }
}

/// The failures so far, as a sentence before another.
fn failed_before(record: &Record) -> String {
    match record.attempts {
        0 => String::new(),
        attempts => format!("It failed {}, last with: {}. ", times(attempts), error(record)),
    }
}

fn times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

fn error(record: &Record) -> String {
    let (first, _) = parts(record.last_error.as_deref().unwrap_or("no error was recorded"));
    shown(first.trim_end_matches('.')).into_owned()
}

/// An error, and the details that the host adds to it after a semicolon; empty if there are none.
#[must_use]
pub fn parts(error: &str) -> (&str, &str) {
    error.split_once("; ").unwrap_or((error, ""))
}

fn when(time: Option<Timestamp>, now: Timestamp) -> String {
    time.map_or_else(|| "at an unknown time".to_owned(), |time| format!("at {time} ({})", at(time, now)))
}

/// The name of an event of a queue.
fn name(record: &Record) -> String {
    format!("{} (seq {}, {})", record.event_id, record.seq, shown(&record.event_type))
}

fn aggregate(record: &Record) -> String {
    shown(&format!("{}/{}", record.aggregate_type, record.aggregate_id.as_deref().unwrap_or("-"))).into_owned()
}

fn route_name(record: &Record) -> String {
    shown(&format!("{}/{}", record.aggregate_type, record.event_type)).into_owned()
}

#[cfg(test)]
mod tests;
