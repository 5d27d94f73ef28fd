//! Events that are dead, wait although their time has come, or are not deleted although they are old.

use std::collections::{BTreeMap, HashSet};

use outbox::purge::Overdue;
use outbox::why::{Scope, wait_severity, waits_without_down_sinks};
use outbox_event::NO_LISTENER;
use outbox_event::time::Timestamp;
use outbox_event::units::{count, number, relative_to, span};
use outbox_listener::is_unroutable;
use outbox_store::WaitReason;

use super::{Finding, ONE_BY_ONE, Severity, utc};
use crate::pages::known::groups::{Group, groups};
use crate::pages::known::snapshot::{SAMPLE, Snapshot};
use crate::pages::link::{encoded, query};
use crate::pages::words::{short, verb, visible};

pub(super) fn dead(snapshot: &Snapshot, now: Timestamp) -> Option<Finding> {
    let dead = snapshot.stats.dead;
    if dead == 0 {
        return None;
    }
    let groups = groups(&snapshot.dead);
    let is_whole = dead <= u64::from(SAMPLE);
    let Some(largest) = of_worst_route(&groups) else {
        let sentence = format!("{} {} dead.", count(dead, "event"), verb(dead, "is", "are"));
        return Some(Finding::new(Severity::Fault, sentence, "dead", "Show dead events").affecting(dead));
    };
    if let Some(finding) = unroutable(snapshot) {
        return Some(finding);
    }
    let route = format!("{}/{}", visible(&largest.aggregate_type), visible(&largest.event_type));
    let is_of = |group: &Group| group.aggregate_type == largest.aggregate_type && group.event_type == largest.event_type;
    // Count, time and error are of the events of this one route.
    let of_route = groups.iter().filter(|group| is_of(group)).map(|group| group.count).sum::<u64>();
    // If there are more dead events than were read, the first is not known.
    let first = groups.iter().filter(|group| is_of(group)).filter_map(|group| group.first).min().filter(|_| is_whole);
    let before = match of_route {
        1 => String::new(),
        all if all == dead => ", the first".to_owned(),
        some => format!(", the first of these {}", number(some)),
    };
    let since = first.map_or_else(String::new, |first| format!("{before} since {}", utc(first, now)));
    let often = if largest.count == of_route { "" } else { ", most often" };
    let sentence = match (dead, is_whole) {
        (1, _) => format!("1 event of {route} has been dead{since}:"),
        (_, false) if of_route * 2 > snapshot.dead.len() as u64 => {
            format!("{} events are dead, the newest mostly of {route}{often}:", number(dead))
        }
        (_, false) => format!("{} events are dead, the newest most often of {route}:", number(dead)),
        (_, true) if of_route == dead => format!("{} events are dead, all of {route}{since}{often}:", number(dead)),
        (_, true) => format!("{} events are dead, {} of them of {route}{since}{often}:", number(dead), number(of_route)),
    };
    let to = if groups.len() == 1 && is_whole {
        format!("dead?{}", query(&[("aggregate_type", &largest.aggregate_type), ("event_type", &largest.event_type)]))
    } else {
        "dead".to_owned()
    };
    let finding = Finding::new(Severity::Fault, sentence, to, "Show dead events").said(largest.error.clone()).affecting(dead);
    Some(match first {
        Some(first) => {
            let scope = Scope::of_events(&largest.aggregate_type, &largest.event_type, &largest.error, &snapshot.nodes);
            finding.began(first, &scope, snapshot)
        }
        None => finding,
    })
}

/// A finding of its own if most dead events have one reason: no listener answers their routes.
fn unroutable(snapshot: &Snapshot) -> Option<Finding> {
    let given_up = snapshot.dead.iter().filter(|record| record.last_error.as_deref().is_some_and(is_unroutable));
    let routes: Vec<_> = given_up.map(|record| (&record.aggregate_type, &record.event_type)).collect();
    let different = routes.iter().collect::<HashSet<_>>().len();
    if different < 2 || routes.len() * 2 <= snapshot.dead.len() {
        return None;
    }
    let is_whole = snapshot.stats.dead <= u64::from(SAMPLE);
    let share = if is_whole { format!("{} of them", number(routes.len() as u64)) } else { "most of the newest".to_owned() };
    let sentence = format!(
        "{} events are dead, {share} because no listener answers their {} routes.",
        number(snapshot.stats.dead),
        number(different as u64)
    );
    let to = format!("dead?{}", query(&[("error", NO_LISTENER)]));
    Some(Finding::new(Severity::Fault, sentence, to, "Show dead events").affecting(snapshot.stats.dead))
}

/// The largest group of the route with the most dead events among these groups.
fn of_worst_route(groups: &[Group]) -> Option<&Group> {
    let mut of_routes: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for group in groups {
        *of_routes.entry((&group.aggregate_type, &group.event_type)).or_default() += group.count;
    }
    let most = of_routes.values().copied().max()?;
    groups.iter().find(|group| of_routes[&(&*group.aggregate_type, &*group.event_type)] == most)
}

/// Events that wait although their time has come, by the reasons that hosts noted.
pub(super) fn waits(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let finding = |wait: &WaitReason| {
        let route = visible(&short(&format!("{}/{}", wait.aggregate_type, wait.event_type), 80));
        let (events, longest) = (count(wait.events, "event"), now.since(wait.since));
        let sentence =
            format!("{events} of {route} {} waiting, the first for {}:", verb(wait.events, "is", "are"), span(longest));
        let of_route =
            query(&[("status", "delayed"), ("aggregate_type", &wait.aggregate_type), ("event_type", &wait.event_type)]);
        let finding = Finding::new(wait_severity(wait.events, longest), sentence, format!("events?{of_route}"), "Show events");
        let scope = Scope::of_events(&wait.aggregate_type, &wait.event_type, &wait.reason, &snapshot.nodes);
        finding.said(wait.reason.clone()).affecting(wait.events).began(wait.since, &scope, snapshot)
    };
    let waits = waits_without_down_sinks(&snapshot.waits, &snapshot.nodes, &snapshot.routes);
    waits.into_iter().take(ONE_BY_ONE).map(finding).collect()
}

/// Finished events that purges have not deleted, although they are old enough.
pub(super) fn overdue(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let finding = |overdue: &Overdue| {
        let row = overdue.oldest;
        let name = row.event_id.map_or_else(|| format!("seq {}", row.seq), |id| visible(id.as_str()));
        let sentence = format!(
            "Purges do not delete old events: the oldest, {name}, finished {}, and {} is shorter. `{}` names the reason.",
            relative_to(row.at, now),
            overdue.setting(),
            overdue.command()
        );
        match row.event_id {
            Some(id) => Finding::new(Severity::Warning, sentence, format!("events/{}", encoded(id.as_str())), "Show event"),
            None => Finding::new(Severity::Warning, sentence, "hosts", "Show hosts"),
        }
    };
    snapshot.overdue.iter().map(finding).collect()
}
