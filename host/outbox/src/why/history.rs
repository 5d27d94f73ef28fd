//! What happened to an event, as far as its row and the audit log tell.

use serde::{Deserialize, Serialize};

use super::Facts;
use super::by_hand::words;
use super::state::State;
use crate::deceptive::shown;
use crate::event::Status;
use crate::store::Record;
use crate::time::Timestamp;
use crate::units::span;

/// One thing that happened, or that will.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Step {
    /// When, by the database's clock; for when the event happened, by its writer's clock. In the future for what is to come.
    pub at: Timestamp,
    /// When it ended, where it took its time: the last batch of a bulk action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What, in words, safe for a terminal.
    pub what: String,
}

/// What happened and what comes next, oldest first. The row keeps the last claim only: earlier ones are told by its counters.
pub(super) fn history(known: &Facts, state: State, next_at: Option<Timestamp>) -> Vec<Step> {
    let record = &known.record;
    let mut steps = written(record);
    let mut add = |at: Option<Timestamp>, what: String| steps.extend(at.map(|at| Step { at, until: None, what }));
    let is_delayed = record.available_at > record.created_at;
    if is_delayed {
        add(Some(record.available_at), "the earliest delivery that its writer asked for".to_owned());
    }
    if !matches!(record.status, Status::Done | Status::Dead) {
        add(record.expires_at, "expires, and is given up if it has not been delivered".to_owned());
    }
    let holder = record.locked_by.as_deref().unwrap_or_default();
    let label = known.nodes.iter().find(|node| node.owner == holder).map_or(holder, |node| &node.label);
    add(record.locked_at, format!("claimed by {}", shown(label)));
    let finished = match record.status {
        Status::Dead if record.blocks => "given up; later events of its aggregate wait for it",
        Status::Dead => "given up",
        _ => "it was delivered",
    };
    add(record.done_at, finished.to_owned());
    match state {
        State::Claimed => add(next_at, "its claim ends, unless the host renews it".to_owned()),
        // Said already.
        _ if is_delayed && next_at == Some(record.available_at) => {}
        _ => add(next_at, "it is due".to_owned()),
    }
    steps.extend(known.by_hand.changes.iter().map(|change| Step {
        at: change.record.at,
        until: Some(change.last_at).filter(|last| *last > change.record.at),
        what: words(record, change),
    }));
    if known.by_hand.has_earlier {
        let at = known.by_hand.changes.last().map_or(record.created_at, |earliest| earliest.record.at);
        let what = "earlier manual operations are not listed here; see `outbox audit list`".to_owned();
        steps.push(Step { at, until: None, what });
    }
    steps.sort_by_key(|step| step.at);
    steps
}

/// When it happened and when it was inserted; one step where the clocks of its writer and of the database agree to a second.
fn written(record: &Record) -> Vec<Step> {
    let step = |at: Timestamp, what: String| Step { at, until: None, what };
    let (later, earlier) = (record.created_at.since(record.occurred_at), record.occurred_at.since(record.created_at));
    let apart = later.max(earlier);
    let which = if later > earlier { "after" } else { "before" };
    if apart.as_millis() < 1_000 {
        return vec![step(record.created_at, "it was written".to_owned())];
    }
    vec![
        step(record.occurred_at, "it happened, by the clock of its writer".to_owned()),
        step(record.created_at, format!("it was written {} {which} it happened, by the database's clock", span(apart))),
    ]
}
