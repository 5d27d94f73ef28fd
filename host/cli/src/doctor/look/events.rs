//! Events: those that wait, failed, are dead, or should have been purged.

use std::collections::BTreeMap;

use outbox::listener::{Cause, error_kind, is_unroutable};
use outbox::node::names_sink;
use outbox::purge::Overdue;
use outbox::store::{Finding, NodeRecord, PurgeRow, Record, RouteRecord, Severity, Stats, WaitReason};
use outbox::time::Timestamp;
use outbox::why::{Change, OldestWait, Scope, wait_severity, waits_without_down_sinks};

use super::{LISTED, after_change};
use crate::config::Flags;
use crate::output::{argument, count, relative_to, short, span, visible};

/// How the unfinished events stand, on the whole.
pub(in crate::doctor) fn events(stats: &Stats, oldest: OldestWait, flags: &Flags) -> Vec<Finding> {
    let mut findings = Vec::new();
    if stats.blocked > 0 {
        let what = format!("{} behind an earlier one of their aggregate", count(stats.blocked, "event"));
        let fix = format!("{}\nthen {}", flags.command("outbox route blocked"), flags.command("outbox event why ID"));
        findings.push(Finding::problem(Severity::Warning, "blocked", what, fix, stats.blocked));
    } else {
        findings.push(Finding::good("blocked", "no event waits behind another"));
    }
    let waited = |age| format!("the oldest due event has waited for {}", span(age));
    findings.push(match oldest {
        OldestWait::Nothing => Finding::good("pending", "no event is due"),
        OldestWait::NoHost(age) => {
            let what = format!("{}, and no host that delivers is running", waited(age));
            Finding::fault("pending", what, "start one with `outbox run`")
        }
        OldestWait::Short(age) => Finding::good("pending", waited(age)),
        OldestWait::Explained(age) => Finding::good("pending", format!("{}; hosts report why events wait", waited(age))),
        OldestWait::TooSlow(age) => {
            let fix = "find out what holds it: outbox event list --status new --limit 1, then outbox event why ID; more \
                       workers or hosts help when all are busy";
            Finding::warning("pending", format!("a due event has waited for a host for {}", span(age)), fix)
        }
    });
    findings
}

/// Events that wait although their time has come, by the reasons that hosts noted.
pub(in crate::doctor) fn waits(
    waits: &[WaitReason],
    nodes: &[NodeRecord],
    routes: &[RouteRecord],
    changes: &[Change],
    flags: &Flags,
    now: Timestamp,
) -> Vec<Finding> {
    let finding = |wait: &WaitReason| {
        let verb = if wait.events == 1 { "waits" } else { "wait" };
        let (events, route) = (count(wait.events, "event"), format!("{}/{}", wait.aggregate_type, wait.event_type));
        let longest = now.since(wait.since);
        let what = format!(
            "{events} of {} {verb}, the oldest has been due for {}: {}",
            short(&visible(&route), 160),
            span(longest),
            short(&wait.reason, 300)
        );
        let list = format!("outbox event list --status delayed --route {}", argument(&route));
        let remedy = if is_unroutable(&wait.reason) {
            "add a plugin, listener or relay for this route, or correct the name where the events are written: after dispatcher.unroutable_grace \
             they are DEAD"
        } else {
            "remove the cause; the host then delivers them by itself, and counts no failure"
        };
        // The list of sinks names the unavailable receivers.
        let sinks = if names_sink(&wait.reason) { format!("\n{}", flags.command("outbox sinks list")) } else { String::new() };
        let fix = format!("{remedy}\n{}{sinks}", flags.command(&list));
        let scope = Scope::of_events(&wait.aggregate_type, &wait.event_type, &wait.reason, nodes);
        let what = after_change(what, changes, wait.since, &scope);
        Finding::problem(wait_severity(wait.events, longest), "waiting", what, fix, wait.events)
    };
    waits_without_down_sinks(waits, nodes, routes).into_iter().take(LISTED).map(finding).collect()
}

/// Failed events that wait for another attempt: how many, and what the newest of them say. An event that fails stands nowhere
/// else before it is dead.
pub(in crate::doctor) fn retries(waiting: u64, newest: &[Record], flags: &Flags) -> Finding {
    if waiting == 0 {
        return Finding::good("retry", "no failed event waits for another attempt");
    }
    let error = most_often(newest.iter().filter_map(|record| record.last_error.as_deref()), error_kind);
    let said = error.map_or_else(String::new, |error| format!("; most often: {}", short(error, 160)));
    let is_breakage = error.and_then(|error| Cause::from_code(error_kind(error))).is_some_and(Cause::is_breakage);
    let breaker = if is_breakage {
        "\nif a listener keeps breaking, its breaker opens for breaker.pause again and again; the log of its host then says \
         `the listener keeps breaking`"
    } else {
        ""
    };
    let wait = if waiting == 1 { "waits" } else { "wait" };
    let what = format!("{} failed and {wait} for another attempt{said}", count(waiting, "event"));
    let then = flags.command("outbox event why ID");
    let fix = format!("{}\nthen {then}{breaker}", flags.command("outbox event list --status retry"));
    Finding::problem(Severity::Warning, "retry", what, fix, waiting)
}

/// Events that were given up: how many, and what the newest of them say. What they say may be over, so that its age is told.
pub(in crate::doctor) fn dead(
    dead: u64,
    newest: &[Record],
    nodes: &[NodeRecord],
    changes: &[Change],
    flags: &Flags,
    now: Timestamp,
) -> Finding {
    if dead == 0 {
        return Finding::good("dead", "no event was given up");
    }
    let error = most_often(newest.iter().filter_map(|record| record.last_error.as_deref()), error_kind);
    let of_kind = |record: &&Record| record.last_error.as_deref().map(error_kind) == error.map(error_kind);
    let died = || newest.iter().filter(of_kind).filter_map(|record| Some((record.done_at?, record)));
    // If there are more dead events than were read, the first is not known.
    let first = died().min_by_key(|(at, _)| *at).filter(|_| dead <= newest.len() as u64);
    let last = died().map(|(at, _)| at).max();
    // Some died after the time was asked for.
    let last = last.map(|last| last.min(now));
    let last = last.map_or_else(String::new, |last| format!("; last {}", relative_to(last, now)));
    let said = error.map_or_else(String::new, |error| format!("; most often: {}{last}", short(error, 160)));
    let before = if error.is_some_and(is_unroutable) {
        "before a replay, add a plugin, listener or relay for their routes, or the events are given up again"
    } else {
        "before a replay, make sure that the cause is gone, or the events are given up again"
    };
    let commands =
        [("list", "shows them"), ("replay ID", "delivers one again, --all delivers all"), ("discard ID", "deletes one")];
    let commands = commands.map(|(words, what)| format!("{}  {what}", flags.command(&format!("outbox dead {words}"))));
    let what = format!("{} given up{said}", count(dead, "event"));
    let what = match first {
        Some((at, record)) => {
            let error = record.last_error.as_deref().unwrap_or_default();
            let scope = Scope::of_events(&record.aggregate_type, &record.event_type, error, nodes);
            after_change(what, changes, at, &scope)
        }
        None => what,
    };
    Finding::problem(Severity::Fault, "dead", what, format!("{before}\n{}", commands.join("\n")), dead)
}

/// The first of the texts whose kind is the most frequent one.
pub(super) fn most_often<'t>(texts: impl Iterator<Item = &'t str>, kind: fn(&str) -> &str) -> Option<&'t str> {
    let mut kinds: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
    for text in texts {
        kinds.entry(kind(text)).or_insert((0, text)).0 += 1;
    }
    kinds.into_values().max_by_key(|(times, _)| *times).map(|(_, text)| text)
}

/// Finished events that purges have not deleted, although they are old enough.
pub(in crate::doctor) fn overdue(overdue: &Overdue, events: u64, flags: &Flags) -> Finding {
    let (is, them) = if events == 1 { ("is", "it") } else { ("are", "them") };
    let PurgeRow { seq, event_id, .. } = overdue.oldest;
    let id = event_id.map_or_else(String::new, |id| format!(", {id}"));
    let what = format!(
        "{} {is} older than {setting} allows, and two purges have not deleted {them}; the oldest: seq {seq}{id}",
        count(events, &format!("{} event", overdue.status)),
        setting = overdue.setting()
    );
    let fix = format!(
        "{}\nnames each event that the database does not delete, with the reason, and deletes the others\n\
         if no host is running, start one with `outbox run`: a host purges by itself",
        flags.command(overdue.command())
    );
    Finding::warning("purge", what, fix)
}
