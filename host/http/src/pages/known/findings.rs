//! The findings of the status line: what is wrong, the worst first, each with a link to its cause. Pure: facts in, sentences
//! out.

mod breakers;
mod events;
mod hosts;
mod plugins;
mod routes;
mod sequences;
mod sinks;
mod stuck;

use std::cmp::Reverse;

use outbox::readiness::{Unready, UnreadyCode};
use outbox::why::{Scope, preceding_change};
use outbox_event::text::escape;
use outbox_event::time::Timestamp;
use outbox_event::units::{count, figure, span};
use outbox_store::Severity;

use self::breakers::breakers;
use self::events::{dead, overdue, waits};
use self::hosts::{aside, behind, clocks, gone_hosts, no_host, vanished_hosts, without_lease};
use self::plugins::{Trouble, plugins};
use self::routes::{paused, unanswered};
use self::sequences::sequences;
use self::sinks::sinks_down;
use self::stuck::{locked, refused, slow, unclaimed};
use super::snapshot::{Known, Snapshot};
use crate::pages::link::Link;
use crate::pages::words::{clock, short, verb, visible};

/// More findings of one kind than this are summed up in one: there may be any number of routes and plugins.
const ONE_BY_ONE: usize = 3;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// One sentence, without the error.
    pub(crate) sentence: String,
    /// The error of the listener or the database.
    pub(crate) said: Option<String>,
    /// The last change before it began.
    pub(crate) preceding: Option<String>,
    /// The page that shows its cause.
    pub(crate) link: Link,
    /// How many events it affects; `u64::MAX` for all.
    events: u64,
}

impl Finding {
    fn new(severity: Severity, sentence: impl Into<String>, to: impl Into<String>, word: &'static str) -> Self {
        let link = Link { to: to.into(), word };
        Self { severity, sentence: sentence.into(), said: None, preceding: None, link, events: 0 }
    }

    fn said(self, said: impl Into<String>) -> Self {
        Self { said: Some(short(&visible(&said.into()), 160)), ..self }
    }

    /// Names the change of the scope that preceded its beginning, if there was one.
    fn began(self, at: Timestamp, scope: &Scope, snapshot: &Snapshot) -> Self {
        let preceding = preceding_change(snapshot.changes(), at, scope).map(|change| short(&visible(&change), 160));
        Self { preceding, ..self }
    }

    fn affecting(self, events: u64) -> Self {
        Self { events, ..self }
    }
}

/// Everything that is wrong, the worst first; nothing when all is well. `reasons` say why this host is not ready, and
/// `owner` is its ID.
pub(crate) fn findings(known: &Known, reasons: &[Unready], owner: &str) -> Vec<Finding> {
    let mut all = Vec::new();
    all.extend(database(known));
    all.extend(reasons.iter().filter(|reason| !is_covered(reason, known, owner)).map(unready));
    if let Some(snapshot) = &known.snapshot {
        let now = snapshot.now();
        // Who is alive, and whether events move, cannot be known while the database does not answer.
        let current = known.outage.is_none().then_some(&**snapshot);
        all.extend(current.and_then(no_host));
        all.extend(current.into_iter().flat_map(without_lease));
        all.extend(sequences(snapshot));
        all.extend(current.and_then(refused));
        all.extend(current.and_then(|snapshot| locked(snapshot, now)));
        all.extend(current.and_then(|snapshot| slow(snapshot, now)));
        all.extend(current.and_then(|snapshot| unclaimed(snapshot, now)));
        all.extend(current.into_iter().flat_map(aside));
        all.extend(current.into_iter().flat_map(clocks));
        all.extend(sinks_down(snapshot, now));
        let is_required = |name: &str| reasons.iter().any(|reason| is_failed_plugin(reason, name));
        all.extend(plugins(snapshot, &is_required));
        all.extend(current.into_iter().flat_map(|snapshot| breakers(snapshot, now)));
        all.extend(dead(snapshot, now));
        all.extend(current.and_then(gone_hosts));
        all.extend(current.and_then(|snapshot| vanished_hosts(snapshot, now)));
        all.extend(waits(snapshot, now));
        all.extend(paused(snapshot, now));
        all.extend(unanswered(snapshot, now));
        all.extend(overdue(snapshot, now));
        all.extend(current.and_then(behind));
    }
    // Stable: findings that affect as many events stay in the order above.
    all.sort_by_key(|finding| Reverse((finding.severity, finding.events)));
    // The line about a database that does not answer tells the time itself.
    let old = known.snapshot.as_ref().filter(|_| known.outage.is_none()).and_then(|snapshot| counted(snapshot));
    if let (Some(first), Some(counted)) = (all.first_mut(), old) {
        first.sentence.push_str(&format!(" ({counted})"));
    }
    all
}

/// The status line when there is no finding.
pub(crate) fn calm(snapshot: &Snapshot, rate: Option<f64>) -> String {
    let live = snapshot.nodes.iter().filter(|node| node.alive).count() as u64;
    // "All well" beside no host would contradict itself, also where a host came after the snapshot.
    let mut parts =
        if live == 0 { vec!["No host is alive".to_owned()] } else { vec!["All well".to_owned(), count(live, "host")] };
    parts.extend(rate.map(|rate| format!("{}/s on this host", figure(rate))));
    match snapshot.stats.oldest_pending_seconds.longest() {
        Some((_, oldest)) if snapshot.unfinished() > 0 => parts.push(format!("oldest event waiting {}", span(oldest))),
        _ => parts.push("no events waiting".to_owned()),
    }
    parts.extend(counted(snapshot));
    parts.join(" · ")
}

/// When the events were counted, where that is longer ago than a visitor would think.
fn counted(snapshot: &Snapshot) -> Option<String> {
    snapshot.time_if_old().map(|at| format!("counted at {}", utc(at, snapshot.now())))
}

/// `is` or `are` waiting, with the number in front.
fn waiting(events: u64) -> String {
    format!("{} {} waiting", count(events, "event"), verb(events, "is", "are"))
}

/// As [`clock`], with its zone.
fn utc(time: Timestamp, now: Timestamp) -> String {
    format!("{} UTC", clock(time, now))
}

fn database(known: &Known) -> Option<Finding> {
    let outage = known.outage.as_ref()?;
    let since = utc(outage.since, known.now());
    let sentence = match &known.snapshot {
        Some(_) => format!("The database does not answer; what you see is from {since}."),
        None => format!("The database has not answered since {since}, so there is nothing to show yet."),
    };
    // Whole: what to do stands at its end.
    let said = Some(short(&visible(&outage.why), 600));
    Some(Finding { said, events: u64::MAX, ..Finding::new(Severity::Fault, sentence, "hosts", "Show hosts") })
}

/// Whether another finding covers a reason why this host is not ready, or no person must act on it.
fn is_covered(reason: &Unready, known: &Known, owner: &str) -> bool {
    match reason.code {
        UnreadyCode::Stopping => true,
        UnreadyCode::PollerStuck | UnreadyCode::SettlerStuck | UnreadyCode::HeartbeatStuck => known.outage.is_some(),
        UnreadyCode::Plugin => known.snapshot.as_ref().is_some_and(|snapshot| {
            let own = snapshot.nodes.iter().filter(|node| node.alive && node.owner == owner).flat_map(outbox::node::plugins);
            let mut failed = own.filter(|plugin| Trouble::of(plugin.state) == Some(Trouble::Failed));
            failed.any(|plugin| is_failed_plugin(reason, &plugin.name))
        }),
        _ => false,
    }
}

/// Whether this host is not ready because this required plugin does not serve.
fn is_failed_plugin(reason: &Unready, name: &str) -> bool {
    let start = format!("the required plugin {} does not serve: ", escape(name));
    reason.code == UnreadyCode::Plugin && reason.message.starts_with(&start)
}

/// A reason why this host is not ready: its `/readyz` answers 503.
fn unready(reason: &Unready) -> Finding {
    let sentence = "This host is not ready:";
    let finding = match reason.code {
        UnreadyCode::Plugin => Finding::new(Severity::Fault, sentence, "plugins", "Show plugins"),
        _ => Finding::new(Severity::Fault, sentence, "hosts", "Show hosts").affecting(u64::MAX),
    };
    // Not cut at the usual length: the message ends with what to do.
    Finding { said: Some(short(&visible(&reason.message), 600)), ..finding }
}

#[cfg(test)]
mod tests;
