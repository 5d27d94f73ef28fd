//! `outbox event why`: where an event is, what happened to it, and what happens next.

mod history;
mod reason;
mod state;

use outbox::store::{AttemptCost, Filter, NodeRecord, Record, Store};
use outbox::time::Timestamp;
use outbox::{EventId, StoreError};
use serde::Serialize;

use crate::config::Config;
use crate::cost::cost_text;
use crate::database;
use crate::event::stands;
use crate::failure::{Exit, Failure};
use crate::output::{self, Colour, Format, count, paint, relative_to as at, shown};
use history::{Step, history};
use reason::{Reason, reason};
use state::{Known, State};

/// How far a queue is followed to its head. Queues are one step long unless something is wrong with them.
const LONGEST_QUEUE: usize = 100;
/// How many notices of what was done by hand are looked through.
const NOTICES: u32 = 1_000;
/// How many blocked aggregates are looked through for how many events wait behind one.
const KEYS: u32 = 1_000;

/// The page, for machines.
#[derive(Serialize)]
struct Page<'a> {
    event_id: EventId,
    seq: u64,
    route: String,
    aggregate_id: Option<&'a str>,
    #[serde(flatten)]
    counters: Counters,
    state: State,
    next: &'a str,
    commands: Vec<&'a str>,
    last_error: Option<&'a str>,
    last_cost: Option<&'a AttemptCost>,
    /// Who holds it now; `None` when nobody does.
    holder: Option<Holder<'a>>,
    /// The first of the queue that it waits in.
    head: Option<&'a Record>,
    waiting_behind: u64,
    now: Timestamp,
    history: &'a [Step],
}

#[derive(Serialize)]
struct Counters {
    status: outbox::Status,
    attempts: u32,
    deferrals: u32,
    claims: u32,
    starts: u32,
    claim_seq: u64,
    replays: u32,
}

#[derive(Serialize)]
struct Holder<'a> {
    owner: &'a str,
    /// Where to find it; `None` when it tells nothing of itself.
    label: Option<&'a str>,
    alive: bool,
    until: Option<Timestamp>,
}

/// Prints the page of one event.
pub(crate) async fn why(id: EventId, format: Format, config: &Config) -> Result<(), Failure> {
    let store = database::ready(config).await?;
    let Some(record) = store.get(id).await? else {
        let hint = "it may be discarded or purged already; see `outbox event list` and `outbox audit list`";
        return Err(Failure::new(Exit::NotFound, format!("no event has the id {id}; {hint}")));
    };
    let audit = store.audit(NOTICES).await?;
    let known = Known {
        now: store.now().await?,
        nodes: store.nodes().await?,
        routes: store.routes().await?,
        relays: config.relays().into_iter().map(|(route, _)| route).collect(),
        queue: queue(&*store, &record).await?,
        waiting: waiting(&*store, &record).await?,
        record,
    };
    let mut reason = reason(&known);
    for (command, _) in &mut reason.commands {
        *command = config.flags.command(command);
    }
    let steps = history(&known, &audit);
    output::one(&page(&known, &reason, &steps), format, |_| text(&known, &reason, &steps))
}

/// What it waits behind, up to the head of the queue.
async fn queue(store: &dyn Store, record: &Record) -> Result<Vec<Record>, StoreError> {
    let mut queue: Vec<Record> = Vec::new();
    let mut behind = record.behind;
    while let Some(seq) = behind.filter(|_| queue.len() < LONGEST_QUEUE) {
        let only = Filter { after: seq.checked_sub(1), before: seq.checked_add(1), ..Filter::default() };
        let Some(earlier) = store.list(&only, 1).await?.pop() else { break };
        behind = earlier.behind;
        queue.push(earlier);
    }
    Ok(queue)
}

/// How many wait behind it; 0 also when too many aggregates are blocked to be looked through.
async fn waiting(store: &dyn Store, record: &Record) -> Result<u64, StoreError> {
    if record.aggregate_id.is_none() {
        return Ok(0);
    }
    let keys = store.blocked_keys(KEYS).await?;
    Ok(keys.iter().filter(|key| key.seq == record.seq).map(|key| key.waiting).sum())
}

fn page<'a>(known: &'a Known, reason: &'a Reason, steps: &'a [Step]) -> Page<'a> {
    let record = &known.record;
    let holder = record.locked_by.as_deref().filter(|_| matches!(reason.state, State::Claimed | State::LeaseOver));
    Page {
        event_id: record.event_id,
        seq: record.seq,
        route: format!("{}/{}", record.aggregate_type, record.event_type),
        aggregate_id: record.aggregate_id.as_deref(),
        counters: Counters {
            status: record.status,
            attempts: record.attempts,
            deferrals: record.deferrals,
            claims: record.claims,
            starts: record.starts,
            claim_seq: record.claim_seq,
            replays: record.replays,
        },
        state: reason.state,
        next: &reason.next,
        commands: reason.commands.iter().map(|(command, _)| command.as_str()).collect(),
        last_error: record.last_error.as_deref(),
        last_cost: record.last_cost.as_ref(),
        holder: holder.map(|owner| {
            let node: Option<&NodeRecord> = known.nodes.iter().find(|node| node.owner == owner);
            Holder {
                owner,
                label: node.map(|node| node.label.as_str()),
                alive: node.is_some_and(|node| node.alive),
                until: record.lease_end,
            }
        }),
        head: known.queue.last(),
        waiting_behind: known.waiting,
        now: known.now,
        history: steps,
    }
}

fn text(known: &Known, reason: &Reason, steps: &[Step]) -> String {
    let record = &known.record;
    let colour = match reason.state {
        State::Done => Colour::Green,
        State::Dead | State::DeadBlocking | State::Stranded => Colour::Red,
        State::Claimed | State::Due | State::Delayed | State::Deferred => Colour::Faint,
        _ => Colour::Yellow,
    };
    let aggregate = record.aggregate_id.as_deref().map_or_else(String::new, |id| format!(" of {}", shown(id)));
    let route = format!("{}/{}", record.aggregate_type, record.event_type);
    let mut text = format!("{}  {}{aggregate}  {}\n\n", record.event_id, shown(&route), paint(&stands(record), colour));
    text.push_str(&format!("{}\n\n", reason.next));
    if let Some(error) = &record.last_error {
        let (first, rest) = reason::parts(error);
        // What the sentence above has told is not told again.
        let is_told = reason.next.contains(&*shown(first.trim_end_matches('.')));
        match (is_told, rest) {
            (false, _) => text.push_str(&format!("last error  {}\n", shown(error))),
            (true, "") => {}
            (true, rest) => text.push_str(&format!("details     {}\n", shown(rest))),
        }
    }
    if let Some(cost) = &record.last_cost {
        text.push_str(&format!("cost        {}\n", cost_text(cost, &known.nodes)));
    }
    let mut counters = vec![
        count(record.attempts.into(), "failed attempt"),
        count(record.deferrals.into(), "deferral"),
        count(record.claim_seq, "claim"),
        format!("{} of them without an outcome", record.claims),
        count(record.replays.into(), "replay"),
    ];
    if record.starts > 0 {
        // Two hosts were gone while they held it, so it is delivered with no other event beside it.
        counters.push(format!("{} alone without an outcome", count(record.starts.into(), "start")));
    }
    text.push_str(&format!("counted     {}\n\n", counters.join(", ")));
    let rows = steps.iter().map(|step| [at(step.at, known.now), step.at.to_string(), step.what.clone()]);
    text.push_str(&output::table(&[">when", "at", "what happened"], rows));
    if !reason.commands.is_empty() {
        let pairs: Vec<(&str, String)> =
            reason.commands.iter().map(|(command, meaning)| (command.as_str(), (*meaning).to_owned())).collect();
        text.push_str(&format!("\n{}", output::pairs(&pairs)));
    }
    text
}
