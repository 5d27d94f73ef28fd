//! The explanation of one event: the same over HTTP, on the command line and on its page.

use serde::{Deserialize, Serialize};

use super::facts::Facts;
use super::history::{Step, history};
use super::reason::{Action, Cause, ReasonCode};
use super::sentence::sentence;
use super::state::State;
use crate::event::{EventId, Route, Status};
use crate::node::{PluginStatus, plugins};
use crate::store::{AttemptCost, NodeRecord, Record, Store, StoreError};
use crate::time::Timestamp;

/// The state of an event and the reason for it, its history, what happens next, and what can be done.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Explanation {
    /// The event's key.
    pub event_id: EventId,
    /// The order of insertion.
    pub seq: u64,
    /// `AGGREGATE_TYPE/EVENT_TYPE`.
    pub route: String,
    /// The ID of the aggregate; `None` when it has none.
    pub aggregate_id: Option<String>,
    /// Its status and its counters.
    #[serde(flatten)]
    pub counters: Counters,
    /// Its state, which is finer than its status.
    pub state: State,
    /// The reason for the state, for programs.
    pub reason: ReasonCode,
    /// The reason and what happens next, in one sentence or a few, safe for a terminal.
    pub sentence: String,
    /// The earliest time at which something happens without a person; `None` for an event that is finished, is due already, or
    /// waits for something other than time.
    pub next_at: Option<Timestamp>,
    /// What can be done, the least drastic action first.
    pub actions: Vec<Action>,
    /// Why it was parked, as the host that did it saw it then; `None` when it is not parked.
    pub parked: Option<String>,
    /// The `seq` of the earlier event of its aggregate that it waits behind.
    pub behind: Option<u64>,
    /// The last error.
    pub last_error: Option<String>,
    /// The cost of its last attempt.
    pub last_cost: Option<AttemptCost>,
    /// The plugin of its last attempt, such as `order-mailer 1.0.0`; `None` if no live host has it.
    pub last_plugin: Option<String>,
    /// The most fuel that one call of that plugin may use; `None` if no live host has it.
    pub last_fuel_limit: Option<u64>,
    /// The host that holds it, or held it when the lease ended; `None` when none does.
    pub holder: Option<Holder>,
    /// The first event of the queue that it waits in, without its payload.
    pub head: Option<Record>,
    /// How many later events of its aggregate wait behind it.
    pub waiting_behind: u64,
    /// The present time by the database's clock.
    pub now: Timestamp,
    /// What happened and what comes next, oldest first.
    pub history: Vec<Step>,
}

/// Its status and its counters. Field names are column names.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Counters {
    /// Its status.
    pub status: Status,
    /// Counted failures.
    pub attempts: u32,
    /// How often its listener deferred it.
    pub deferrals: u32,
    /// Claims since the last outcome.
    pub claims: u32,
    /// Times since the last outcome that it was started alone, because its hosts had gone while they held it.
    pub starts: u32,
    /// Claims and outcomes in all.
    pub claim_seq: u64,
    /// How often it was replayed.
    pub replays: u32,
}

/// The host that holds an event.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Holder {
    /// The value of `locked_by`.
    pub owner: String,
    /// The host's label; `None` when it is not in the table of hosts.
    pub label: Option<String>,
    /// Whether the host is alive.
    pub alive: bool,
    /// When its claim ends.
    pub until: Option<Timestamp>,
}

/// Explains one event; `None` when no event has this id. `relays` are the routes and patterns of the host's relays.
///
/// # Errors
/// The database's own.
pub async fn explain(store: &dyn Store, id: EventId, relays: Vec<Route>) -> Result<Option<Explanation>, StoreError> {
    let Some(record) = store.get(id).await? else { return Ok(None) };
    Ok(Some(Explanation::of(&Facts::gather(store, record, relays).await?)))
}

impl Explanation {
    /// The explanation that follows from these facts.
    #[must_use]
    pub fn of(facts: &Facts) -> Self {
        let record = &facts.record;
        let Cause { state, code, next_at, actions } = Cause::of(facts);
        let holder = record.locked_by.as_deref().filter(|_| matches!(state, State::Claimed | State::LeaseOver));
        let last_plugin = record.last_cost.as_ref().and_then(|kept| plugin(kept, &facts.nodes));
        Self {
            event_id: record.event_id,
            seq: record.seq,
            route: format!("{}/{}", record.aggregate_type, record.event_type),
            aggregate_id: record.aggregate_id.clone(),
            counters: Counters {
                status: record.status,
                attempts: record.attempts,
                deferrals: record.deferrals,
                claims: record.claims,
                starts: record.starts,
                claim_seq: record.claim_seq,
                replays: record.replays,
            },
            state,
            reason: code,
            sentence: sentence(facts, state),
            next_at,
            actions,
            parked: record.parked.clone(),
            behind: record.behind,
            last_error: record.last_error.clone(),
            last_cost: record.last_cost.clone(),
            last_plugin: last_plugin.as_ref().map(named),
            last_fuel_limit: last_plugin.and_then(|plugin| plugin.details.limits).map(|limits| limits.fuel),
            holder: holder.map(|owner| held_by(owner, record, &facts.nodes)),
            head: facts.queue.last().cloned(),
            waiting_behind: facts.waiting,
            now: facts.now,
            history: history(facts, state, next_at),
        }
    }
}

fn held_by(owner: &str, record: &Record, nodes: &[NodeRecord]) -> Holder {
    let node = nodes.iter().find(|node| node.owner == owner);
    Holder {
        owner: owner.to_owned(),
        label: node.map(|node| node.label.clone()),
        alive: node.is_some_and(|node| node.alive),
        until: record.lease_end,
    }
}

/// The plugin with the digest of this attempt, where a host tells of it.
fn plugin(kept: &AttemptCost, nodes: &[NodeRecord]) -> Option<PluginStatus> {
    let digest = kept.cost.guest?.digest.to_string();
    let is_of = |plugin: &PluginStatus| plugin.digest.as_deref().is_some_and(|whole| whole.starts_with(&digest));
    nodes.iter().flat_map(plugins).find(is_of)
}

/// `order-mailer 1.0.0`.
fn named(plugin: &PluginStatus) -> String {
    plugin.version.as_ref().map_or_else(|| plugin.name.clone(), |version| format!("{} {version}", plugin.name))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::{Cost, GuestCost, OwnerId};
    use crate::store::{AttemptEnd, Node};

    #[test]
    fn the_plugin_of_an_attempt_has_its_name_while_a_host_tells_of_it() {
        let guest = GuestCost { digest: "0123456789ab".parse().expect("hex"), ..GuestCost::default() };
        let cost = |guest| Cost { guest, ..Cost::of_time(Duration::from_millis(1)) };
        let kept = |guest| AttemptCost { attempt: 1, outcome: AttemptEnd::Done, cost: cost(guest) };
        let at = Timestamp::from_micros(0);
        let node = |report: &str| {
            let node = Node::new(OwnerId::known("host-1"), "shop 1", "multi_node", "0.1.0");
            changed!(NodeRecord { report: Some(report.to_owned()), ..NodeRecord::new(&node, at) })
        };
        let nodes = [
            node("no report"),
            node(
                r#"{"plugins":[{"name":"other","digest":"ff","state":"serving"},
                {"name":"mailer","version":"1.4.0","digest":"0123456789abffff","state":"serving","limits":{"fuel":200}}]}"#,
            ),
        ];

        let found = plugin(&kept(Some(guest)), &nodes).expect("a host tells of it");
        assert_eq!((named(&found).as_str(), found.details.limits.map(|limits| limits.fuel)), ("mailer 1.4.0", Some(200)));
        assert_eq!((plugin(&kept(Some(guest)), &nodes[..1]), plugin(&kept(None), &nodes)), (None, None));
    }
}
