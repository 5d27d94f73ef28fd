//! What keeps an event where it is, as codes; and what somebody can do about it. No words but those of the actions.

use serde::{Deserialize, Serialize};

use super::Facts;
use super::pauses::{passed_over, resume_command};
use super::state::{State, pauses, state_of, stuck};
use crate::deceptive::argument;
use crate::event::{EventId, Route};
use crate::node::names_sink;
use crate::store::{Record, StuckReason};
use crate::text::encoded;
use crate::time::Timestamp;

/// Why an event stands where it stands. Programs may rely on the names; later versions may add some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReasonCode {
    /// Its listener was done with it.
    Delivered,
    /// It failed for the last time, or its listener gave it up.
    GivenUp,
    /// It was given up, or waits, because no listener answers its route.
    NoListener,
    /// It waits for a listener of its own: a relay covers its route, and leaves routes alone that had a listener.
    PassedOverByRelay,
    /// A live host has claimed it.
    HeldByHost,
    /// A host claimed it that is gone or unknown; its lease is not over.
    HeldByLostHost,
    /// A host claimed it and reported nothing before its lease ended.
    LeaseOver,
    /// Its listener has answered, and the database refuses the outcome.
    OutcomeRefused,
    /// Its listener has answered, and another transaction has locked its row.
    OutcomeLocked,
    /// Its listener has answered, and the database is slow to store its outcome, or one that is stored together with it.
    OutcomeSlow,
    /// It is due, and the database does not let a host claim it, or cannot return its payload.
    ClaimRefused,
    /// It is due, and a live host takes it.
    WaitsForHost,
    /// It is due, and no host is alive.
    NoHost,
    /// Its writer asked for a later delivery.
    DelayedByWriter,
    /// It failed, and its next attempt is due later.
    AttemptFailed,
    /// Its listener asked for later.
    DeferredByListener,
    /// It was given back uncounted: the breaker of its listener was open, or what it needs was used up.
    GivenBack,
    /// Its route is paused.
    RoutePaused,
    /// Its route is held by a paused pattern.
    PatternPaused,
    /// An earlier event of its aggregate is dead and blocks it.
    BlockedByDead,
    /// An earlier event of its aggregate is not finished.
    BlockedByEarlier,
    /// The event that it waited behind is gone or blocks nothing any more; a host lets it go on.
    BlockerGone,
    /// Its time to be done is over.
    Expired,
    /// It waits for nothing, and no host will ever take it: somebody emptied `due_at`.
    Stranded,
}

/// What can be done. Programs may rely on the names; later versions may add some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ActionCode {
    /// Look at the event that it waits for.
    ExplainHead,
    /// Resume its route.
    ResumeRoute,
    /// Resume the pattern that holds its route.
    ResumePattern,
    /// See which plugins answer which routes.
    ListPlugins,
    /// See the state of the sinks.
    ListSinks,
    /// Examine the database.
    ExamineDatabase,
    /// Deliver a dead event again.
    Replay,
    /// Stop a dead event from blocking later events.
    Skip,
    /// Delete a dead event permanently.
    Discard,
}

/// Something that can be done.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Action {
    /// What can be done.
    pub code: ActionCode,
    /// What follows from it, in words.
    pub meaning: String,
    /// The command that does it, as it can be typed into a shell.
    pub command: String,
    /// The request that does it over HTTP: method and path. `None` when there is none.
    pub request: Option<String>,
    /// The event that it is done to: this one, or the first of the queue that it waits in. `None` when it is done to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    /// The route or pattern that it is done to; `None` when it is done to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Route>,
}

/// The purpose of `outbox plugin list`.
const WHO_ANSWERS: &str = "see which plugin answers which route";

/// Why an event stands where it stands, as values.
#[derive(Clone, Debug)]
pub struct Cause {
    /// The state of the event.
    pub state: State,
    /// Why.
    pub code: ReasonCode,
    /// When something happens to it by itself, at the earliest: a time to come. `None` for an event that is finished, waits for
    /// something that is not time, or is due already.
    pub next_at: Option<Timestamp>,
    /// What can be done, the mildest first.
    pub actions: Vec<Action>,
}

impl Cause {
    /// Decides it by these facts.
    #[must_use]
    pub fn of(facts: &Facts) -> Self {
        let state = state_of(facts, &facts.record);
        Self { state, code: code(facts, state), next_at: next_at(facts, state), actions: actions(facts, state) }
    }
}

fn code(facts: &Facts, state: State) -> ReasonCode {
    let record = &facts.record;
    match state {
        State::Done => ReasonCode::Delivered,
        State::Dead | State::DeadBlocking if is_unroutable(record) => ReasonCode::NoListener,
        State::Dead | State::DeadBlocking => ReasonCode::GivenUp,
        State::Claimed => {
            let is_alive = facts.nodes.iter().any(|node| node.alive && Some(&node.owner) == record.locked_by.as_ref());
            if is_alive { ReasonCode::HeldByHost } else { ReasonCode::HeldByLostHost }
        }
        State::LeaseOver => ReasonCode::LeaseOver,
        State::Stuck => match stuck(facts, record) {
            Some((_, StuckReason::OutcomeLocked, _)) => ReasonCode::OutcomeLocked,
            Some((_, StuckReason::OutcomeSlow, _)) => ReasonCode::OutcomeSlow,
            Some((_, StuckReason::ClaimRefused, _)) => ReasonCode::ClaimRefused,
            _ => ReasonCode::OutcomeRefused,
        },
        State::Due if hosts(facts) > 0 => ReasonCode::WaitsForHost,
        State::Due => ReasonCode::NoHost,
        State::Delayed => ReasonCode::DelayedByWriter,
        State::Retrying | State::Deferred if waits_for_listener(record) => ReasonCode::NoListener,
        State::Retrying | State::Deferred if record.wait_reason.is_some() => ReasonCode::GivenBack,
        State::Retrying => ReasonCode::AttemptFailed,
        State::Deferred if record.deferrals > 0 => ReasonCode::DeferredByListener,
        State::Deferred => ReasonCode::GivenBack,
        State::Parked if passed_by_relays(facts, record).is_some() => ReasonCode::PassedOverByRelay,
        State::Parked => ReasonCode::NoListener,
        State::Paused if pauses(facts, record).iter().any(|pause| !pause.route.is_pattern()) => ReasonCode::RoutePaused,
        State::Paused => ReasonCode::PatternPaused,
        State::Behind => match facts.queue.last().map(|head| state_of(facts, head)) {
            None | Some(State::Dead | State::Done) => ReasonCode::BlockerGone,
            Some(State::DeadBlocking) => ReasonCode::BlockedByDead,
            Some(_) => ReasonCode::BlockedByEarlier,
        },
        State::Expired => ReasonCode::Expired,
        State::Stranded => ReasonCode::Stranded,
    }
}

fn next_at(facts: &Facts, state: State) -> Option<Timestamp> {
    let record = &facts.record;
    let at = match state {
        State::Claimed => record.lease_end,
        State::Delayed | State::Retrying | State::Deferred => record.due_at.map(|due| due.max(record.available_at)),
        _ => None,
    };
    at.filter(|at| *at > facts.now)
}

fn actions(facts: &Facts, state: State) -> Vec<Action> {
    let Facts { record, queue, .. } = facts;
    match state {
        State::DeadBlocking => of_blocking(record, record),
        State::Behind => queue.last().map_or_else(Vec::new, |head| {
            let blocks = state_of(facts, head) == State::DeadBlocking;
            let of_head = if blocks { of_blocking(record, head) } else { Vec::new() };
            [vec![explain(head.event_id)], of_head].concat()
        }),
        State::Paused => pauses(facts, record).into_iter().map(|pause| resume(&pause.route)).collect(),
        State::Parked => vec![list_plugins(WHO_ANSWERS)],
        State::Due | State::Retrying | State::Deferred if waits_for_listener(record) || never_had_listener(facts, record) => {
            vec![list_plugins(WHO_ANSWERS)]
        }
        State::Due | State::Retrying | State::Deferred if waits_for_sink(record) => vec![Action {
            code: ActionCode::ListSinks,
            meaning: "see the state of the sinks".to_owned(),
            command: "outbox sinks list".to_owned(),
            request: Some("GET /v1/sinks".to_owned()),
            event_id: None,
            route: None,
        }],
        State::Stranded | State::Stuck => vec![Action {
            code: ActionCode::ExamineDatabase,
            meaning: "look at the database".to_owned(),
            command: "outbox doctor".to_owned(),
            request: None,
            event_id: None,
            route: None,
        }],
        State::Dead => {
            let listed = is_unroutable(record).then(|| list_plugins("see which routes have a listener"));
            listed.into_iter().chain(of_harmless(record)).collect()
        }
        _ => Vec::new(),
    }
}

/// What can be done with a dead event that blocks later ones of its aggregate: `record` itself, or the first of its queue.
fn of_blocking(record: &Record, dead: &Record) -> Vec<Action> {
    let it = if record.event_id == dead.event_id { "it" } else { "that event" };
    vec![
        of_dead(
            ActionCode::Replay,
            dead.event_id,
            format!(
                "deliver {it} again at once, with no failures counted; later events of its aggregate wait until it is delivered"
            ),
        ),
        of_dead(ActionCode::Skip, dead.event_id, format!("deliver later events of the aggregate without {it}; it stays dead")),
        of_dead(
            ActionCode::Discard,
            dead.event_id,
            format!("delete {it} permanently, with its payload; later events of its aggregate are delivered"),
        ),
    ]
}

/// What can be done with a dead event that nothing waits for.
fn of_harmless(record: &Record) -> [Action; 2] {
    let order = match record.aggregate_id.as_deref() {
        None | Some("") => "",
        Some(_) => "; events of its aggregate that were delivered meanwhile stay delivered",
    };
    [
        of_dead(ActionCode::Replay, record.event_id, format!("deliver it again at once, with no failures counted{order}")),
        of_dead(ActionCode::Discard, record.event_id, "delete it permanently, with its payload".to_owned()),
    ]
}

fn explain(head: EventId) -> Action {
    Action {
        code: ActionCode::ExplainHead,
        meaning: "explain the event that it waits for".to_owned(),
        command: format!("outbox event why {}", argument(head.as_str())),
        request: Some(format!("GET /v1/events/{}/why", encoded(head.as_str()))),
        event_id: Some(head),
        route: None,
    }
}

fn resume(route: &Route) -> Action {
    let (code, meaning) = if route.is_pattern() {
        (ActionCode::ResumePattern, "resume all routes of this pattern")
    } else {
        (ActionCode::ResumeRoute, "resume its route")
    };
    let (aggregate_type, event_type) = (encoded(route.aggregate_type.as_str()), encoded(route.event_type.as_str()));
    let request = Some(format!("POST /v1/routes/{aggregate_type}/{event_type}/resume"));
    let command = resume_command(route);
    Action { code, meaning: meaning.to_owned(), command, request, event_id: None, route: Some(route.clone()) }
}

fn list_plugins(meaning: &str) -> Action {
    Action {
        code: ActionCode::ListPlugins,
        meaning: meaning.to_owned(),
        command: "outbox plugin list".to_owned(),
        request: Some("GET /v1/plugins".to_owned()),
        event_id: None,
        route: None,
    }
}

fn of_dead(code: ActionCode, id: EventId, meaning: String) -> Action {
    let verb = match code {
        ActionCode::Skip => "skip",
        ActionCode::Discard => "discard",
        _ => "replay",
    };
    Action {
        code,
        meaning,
        command: format!("outbox dead {verb} {}", argument(id.as_str())),
        request: Some(format!("POST /v1/dead/{}/{verb}", encoded(id.as_str()))),
        event_id: Some(id),
        route: None,
    }
}

/// How many hosts are alive. An outbox that only writes is no host.
pub(super) fn hosts(facts: &Facts) -> usize {
    facts.nodes.iter().filter(|node| node.alive).count()
}

/// Whether it was given up because no listener was there for its route.
pub(super) fn is_unroutable(record: &Record) -> bool {
    record.last_error.as_deref().is_some_and(crate::listener::is_unroutable)
}

/// Whether it waits for a listener, and is given up if none comes soon.
pub(super) fn waits_for_listener(record: &Record) -> bool {
    record.waits_for().is_some_and(crate::listener::is_unroutable)
}

/// Whether it waits for a sink, or for a receiver of a sink, by the reason that its relay noted.
fn waits_for_sink(record: &Record) -> bool {
    record.wait_reason.as_deref().is_some_and(names_sink)
}

/// Whether no host has had a listener for its route, and no relay of this configuration covers it. An event that was called or given
/// back had one.
pub(super) fn never_had_listener(facts: &Facts, record: &Record) -> bool {
    if record.attempts > 0 || record.deferrals > 0 || record.wait_reason.is_some() {
        return false;
    }
    let Ok(route) = Route::new(record.aggregate_type.as_str(), record.event_type.as_str()) else { return false };
    let answers = |other: &Route| *other == route || other.is_pattern() && other.covers(&route);
    let ever = facts.routes.iter().filter(|known| known.first_seen_at.is_some()).map(|known| &known.route);
    !ever.chain(&facts.relays).any(answers)
}

/// Why no relay takes it; `None` where none covers it, or one does.
pub(super) fn passed_by_relays(facts: &Facts, record: &Record) -> Option<String> {
    let route = Route::new(record.aggregate_type.as_str(), record.event_type.as_str()).ok()?;
    let had_listener = facts.routes.iter().any(|known| known.route == route && known.had_own_listener());
    if had_listener { passed_over(&route, &facts.relays) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::OldestPending;

    #[test]
    fn the_causes_of_pending_events_have_the_names_of_reasons() {
        for (cause, _) in OldestPending::default().by_cause() {
            let code = serde_json::from_value::<ReasonCode>(cause.into());
            assert!(code.is_ok(), "{cause} is no reason");
        }
    }
}
