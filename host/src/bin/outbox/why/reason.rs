//! Why an event is where it is, and what happens next. Pure: rows in, sentences out, so that every state is a plain test.

use outbox::Route;
use outbox::store::Record;
use outbox::time::Timestamp;

use super::state::{Known, State, pauses, state_of};
use crate::output::{argument, count, relative_to as at, shown, span};
use crate::pauses::{pause_in_full, resume_command};
use crate::sinks::passed_over;

/// Why it is where it is, in one sentence or two, and what can be done.
#[derive(Debug)]
pub(super) struct Reason {
    pub(super) state: State,
    pub(super) next: String,
    /// Commands, each with what it does.
    pub(super) commands: Vec<(String, &'static str)>,
}

/// Why the event is where it is, and what happens next.
pub(super) fn reason(known: &Known) -> Reason {
    let Known { record, waiting, queue, .. } = known;
    let state = state_of(known, record);
    let mut next = sentence(known, record, state);
    let mut commands = Vec::new();
    let mut blocking = (state == State::DeadBlocking).then_some(record);
    match state {
        State::DeadBlocking => next.push_str(&match waiting {
            0 => format!(" Later events of {} wait until it is replayed, skipped or discarded.", aggregate(record)),
            waiting => {
                let (events, wait) = (count(*waiting, "later event"), if *waiting == 1 { "waits" } else { "wait" });
                format!(" {events} of {} {wait} until it is replayed, skipped or discarded.", aggregate(record))
            }
        }),
        State::Behind => match queue.last() {
            None => next.push_str(" That event is gone, so a host lets this one go on at its next look."),
            Some(head) => {
                let of_head = state_of(known, head);
                let said = sentence(known, head, of_head);
                let place =
                    if queue.len() == 1 { "That one".to_owned() } else { format!("The first of the queue, {}", name(head)) };
                next.push_str(&format!(" {place} is {}: {said}", head.status));
                blocking = (of_head == State::DeadBlocking).then_some(head);
                if blocking.is_none() && matches!(of_head, State::Dead | State::Done) {
                    next.push_str(" Nobody has to wait for it, so a host lets this one go on at its next look.");
                }
                commands.push((
                    format!("outbox event why {}", argument(head.event_id.as_str())),
                    "explain the event that it waits for",
                ));
            }
        },
        State::Paused => commands.extend(pauses(known, record).into_iter().map(|paused| {
            let meaning = if paused.route.is_pattern() { "resume all routes of this pattern" } else { "resume its route" };
            (resume_command(&paused.route), meaning)
        })),
        State::Parked => commands.push(("outbox plugin list".to_owned(), "see which plugins answer which routes")),
        State::Stranded => commands.push(("outbox doctor".to_owned(), "look at the database")),
        _ => {}
    }
    if let Some(dead) = blocking {
        let id = argument(dead.event_id.as_str());
        commands.push((format!("outbox dead replay {id}"), "deliver it again; later events wait until it is delivered"));
        commands.push((format!("outbox dead skip {id}"), "stop it from blocking later events; it stays dead"));
        commands.push((format!("outbox dead discard {id}"), "delete it permanently; later events continue"));
    } else if state == State::Dead {
        let id = argument(record.event_id.as_str());
        if is_unroutable(record) {
            commands.push(("outbox plugin list".to_owned(), "see which routes are answered"));
        }
        commands.push((format!("outbox dead replay {id}"), "deliver it again"));
        commands.push((format!("outbox dead discard {id}"), "delete it permanently"));
    }
    Reason { state, next, commands }
}

/// What holds of one event alone, its queue aside.
fn sentence(known: &Known, record: &Record, state: State) -> String {
    let now = known.now;
    let (failed, before) = (failures(record), failed_before(record));
    match state {
        State::Done => format!("It was delivered {}{failed}.", when(record.done_at, now)),
        State::Dead | State::DeadBlocking => {
            let said = format!("It was given up {}{failed}: {}.", when(record.done_at, now), error(record));
            if !is_unroutable(record) {
                return said;
            }
            let route = route_name(record);
            format!(
                "{said} A replay helps only when a listener for {route} is there; an event that was written under a wrong name has to be written again."
            )
        }
        State::Claimed => {
            let end = record.lease_end.unwrap_or(now);
            let holder = holder(known, record);
            format!(
                "{before}{holder} has it until {end} ({}) and may renew its claim; after that, any host may take the event.",
                at(end, now)
            )
        }
        State::LeaseOver => {
            let holder = holder(known, record);
            format!(
                "{holder} claimed it and reported no outcome before its lease ended {}. {}",
                when(record.lease_end, now),
                next_host(known)
            )
        }
        State::Due => format!("{before}It has been due {}. {}", since(record, now), next_host(known)),
        State::Delayed => {
            let ready = record.available_at.max(record.due_at.unwrap_or(record.available_at));
            format!("Its writer asked for delivery no earlier than {ready}: it is due {}. {}", at(ready, now), then(known))
        }
        State::Retrying => format!("{before}It is due {}. {}", at(record.due_at.unwrap_or(now), now), then(known)),
        State::Deferred => {
            let due = record.due_at.unwrap_or(now);
            let asked = if record.deferrals > 0 {
                format!("Its listener asked for later ({})", times(record.deferrals))
            } else {
                "It was given back, uncounted, because its listener was paused after too many failures, or because what the listener needs \
                 (room, memory, its sink, emit.per_second) was used up or away".to_owned()
            };
            format!("{before}{asked}: it is due {}. {}", at(due, now), then(known))
        }
        State::Parked => {
            let why = record.parked.as_deref().unwrap_or_default();
            let relay = passed_by_relays(known, record).map_or_else(String::new, |why| format!(" Note that {why}."));
            format!(
                "It is parked: {}. It continues by itself when a host has a listener for {}.{relay}",
                shown(why),
                route_name(record)
            )
        }
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
             Set due_at to the present time by SQL, and find out who emptied it."
                .to_owned()
        }
    }
}

/// Who holds it, as people know that host.
fn holder(known: &Known, record: &Record) -> String {
    let owner = record.locked_by.as_deref().unwrap_or_default();
    match known.nodes.iter().find(|node| node.owner == owner) {
        Some(node) if node.alive => format!("The host {} (alive)", shown(&node.label)),
        Some(node) => format!("The host {} (gone since {})", shown(&node.label), at(node.alive_until, known.now)),
        None => format!("The host {} (unknown in the table of hosts)", shown(owner)),
    }
}

/// Who takes what is due.
fn next_host(known: &Known) -> String {
    match known.nodes.iter().filter(|node| node.alive).count() {
        0 => format!("The next host takes it, {NOBODY}."),
        _ if is_in_partitions(known) => "The host that works on its partition takes it when it has room.".to_owned(),
        1 => "The one live host takes it when it has room.".to_owned(),
        live => format!("Any of the {live} live hosts takes it when it has room."),
    }
}

/// Who takes what will be due.
fn then(known: &Known) -> String {
    if !known.nodes.iter().any(|node| node.alive) {
        format!("Then any host takes it, {NOBODY}.")
    } else if is_in_partitions(known) {
        "Then the host that works on its partition takes it.".to_owned()
    } else {
        "Then any host takes it.".to_owned()
    }
}

const NOBODY: &str = "but no host is running: start one with `outbox run`";

/// Whether live hosts share the aggregates among them.
fn is_in_partitions(known: &Known) -> bool {
    known.nodes.iter().any(|node| node.alive && node.mode == "ordered_by_aggregate")
}

/// Which pauses hold its route, and what ends them.
fn paused(known: &Known, record: &Record) -> String {
    let (route, pauses) = (route_name(record), pauses(known, record));
    let mut said = String::new();
    for paused in &pauses {
        let pause = pause_in_full(paused, known.now);
        let pattern = shown(&paused.route.to_string()).into_owned();
        said.push_str(&match (paused.route.is_pattern(), said.is_empty()) {
            (false, _) => format!("Its route {route} is paused {pause}. "),
            (true, true) => format!("Its route {route} is held by the pattern {pattern}, which is paused {pause}. "),
            (true, false) => format!("The pattern {pattern}, which covers it, is paused, too, {pause}. "),
        });
    }
    match pauses.as_slice() {
        [alone] if alone.route.is_pattern() => {
            said + &format!("It goes on when {} is resumed.", shown(&alone.route.to_string()))
        }
        [_] => said + "It goes on when the route is resumed.",
        _ => said + "It goes on when all of them are resumed.",
    }
}

/// Why no relay of this configuration takes it; `None` where none covers it, or one does.
fn passed_by_relays(known: &Known, record: &Record) -> Option<String> {
    let route = Route::new(record.aggregate_type.as_str(), record.event_type.as_str()).ok()?;
    let had_listener = known.routes.iter().any(|known| known.route == route && known.first_seen_at.is_some());
    if had_listener { passed_over(&route, &known.relays) } else { None }
}

/// Since when it could have been taken.
fn since(record: &Record, now: Timestamp) -> String {
    record.due_at.map_or_else(String::new, |due| format!("for {}", span(now.since(due))))
}

fn failures(record: &Record) -> String {
    if record.attempts == 0 { String::new() } else { format!(", after {}", count(record.attempts.into(), "failed attempt")) }
}

/// What went wrong so far, as a sentence in front of another.
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
    let (first, _) = parts(record.last_error.as_deref().unwrap_or("no reason was kept"));
    shown(first.trim_end_matches('.')).into_owned()
}

/// Whether it was given up because no listener was there for its route.
fn is_unroutable(record: &Record) -> bool {
    record.last_error.as_deref().is_some_and(|error| error.starts_with("no listener answers "))
}

/// What went wrong, and where and what else, which the host adds after a semicolon. The second is empty where there is none.
pub(super) fn parts(error: &str) -> (&str, &str) {
    error.split_once("; ").unwrap_or((error, ""))
}

fn when(time: Option<Timestamp>, now: Timestamp) -> String {
    time.map_or_else(|| "at a time that was not kept".to_owned(), |time| format!("at {time} ({})", at(time, now)))
}

/// How an event of a queue is called.
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
