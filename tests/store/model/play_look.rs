//! Steps that only look.
use std::collections::BTreeMap;
use std::time::Duration;

use outbox::Route;
use outbox::store::{
    AuditStore, DeadStore, InspectStore, KeyStore, NodeStore, ReadStore, RouteRecord, RouteStore, SettleStore, WaitsFor,
};
use support::Database;

use super::compare::{agree, agree_row};
use super::looking::RouteRow;
use super::parts::{DeadChoice, Look, Partitions};
use super::play::{Player, round, route, said};
use super::table::{Fault, Note};

impl<D: Database> Player<'_, D> {
    pub(super) async fn look(
        &mut self,
        at: Look,
        event: usize,
        waits_for: WaitsFor,
        partitions: Partitions,
    ) -> Result<(), Fault> {
        self.tick().await;
        match at {
            Look::Stats => self.look_at_stats().await,
            Look::NextDue => self.look_at_next_due().await,
            Look::NextToRead => self.look_at_next_to_read(event).await,
            Look::Routes => agree("routes", self.table.routes(), known(said("routes", self.store.routes().await)?)?),
            Look::CountRoutes => {
                let counted = said("count_routes", self.store.count_routes().await)?;
                agree("counted routes", self.table.count_routes(), known(counted)?)
            }
            Look::Nodes => {
                let nodes = said("nodes", self.store.nodes().await)?;
                let nodes: Vec<_> =
                    nodes.into_iter().map(|node| (node.owner, node.mode, node.alive, node.partitions)).collect();
                agree("nodes", self.table.shown_nodes(), nodes)
            }
            Look::BlockedKeys => {
                let keys = said("blocked_keys", self.store.blocked_keys(1_000).await)?;
                let mut keys: Vec<_> = keys
                    .into_iter()
                    .map(|key| (key.waiting, key.seq, key.aggregate_type, key.aggregate_id, key.event_id))
                    .collect();
                let longest_first = keys.is_sorted_by_key(|key| std::cmp::Reverse(key.0));
                agree("whether the longest queue comes first", true, longest_first)?;
                keys.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.cmp(other)));
                agree("blocked keys", self.table.blocked_keys(), keys)
            }
            Look::Heads => {
                let events: Vec<u64> = self.table.rows.keys().copied().chain([self.table.newest() + 1]).collect();
                let mut heads = said("heads", self.store.heads(&events, waits_for).await)?;
                heads.sort_unstable();
                agree("heads", self.table.heads(&events, waits_for), heads)
            }
            Look::Blockers => {
                let (partitions, after) = (partitions.numbers(), self.some_event(event).saturating_sub(1));
                for (after, limit) in [(0, 1_000), (after, 1)] {
                    let blockers = said("blockers", self.store.blockers(&partitions, after, limit).await)?;
                    agree("blockers", self.table.blockers(&partitions, after, limit), blockers)?;
                }
                Ok(())
            }
            Look::Get => self.look_at_one(event).await,
            Look::Locked => {
                let events: Vec<u64> = self.table.rows.keys().copied().chain([self.table.newest() + 1]).collect();
                agree("locked by others", Vec::new(), said("locked", self.store.locked(&events).await)?)
            }
            Look::CountDead => {
                let (theirs, ours) = self.dead_filters(&DeadChoice::default()).await;
                agree("dead", self.table.count_dead(&ours), said("count_dead", self.store.count_dead(&theirs).await)?)
            }
            Look::Audit => self.look_at_audit().await,
            Look::State => self.look_at_state(event).await,
        }
    }

    async fn look_at_stats(&self) -> Result<(), Fault> {
        let (expected, mut found) = (self.table.stats(), said("stats", self.store.stats().await)?);
        let span = |seconds: f64| std::time::Duration::from_secs_f64(seconds);
        // In milliseconds, rounded.
        let rounding = std::time::Duration::from_millis(1);
        let is_same = |expected: Option<f64>, found: Option<f64>| match (expected, found) {
            (Some(expected), Some(found)) => span(expected).abs_diff(span(found)) <= self.times.slack + rounding,
            (expected, found) => expected == found,
        };
        let mut ages = expected.oldest_pending_seconds.by_cause().into_iter().zip(found.oldest_pending_seconds.by_cause());
        let are_same = ages.all(|((_, expected), (_, found))| is_same(expected, found));
        agree("ages of the oldest", true, are_same)
            .map_err(|fault| format!("{fault}: expected {expected:?}, found {found:?}"))?;
        found.oldest_pending_seconds = expected.oldest_pending_seconds;
        agree("statistics", expected, found)
    }

    async fn look_at_next_due(&self) -> Result<(), Fault> {
        let found = said("next_due", self.store.next_due().await)?;
        self.agree_rest("next due", self.table.next_due(), found)
    }

    /// As an owner, with nothing in hand and with what it was given.
    async fn look_at_next_to_read(&self, number: usize) -> Result<(), Fault> {
        let owner = self.owner(number);
        let hand: Vec<u64> = self.hands[number % self.hands.len()].iter().map(|fence| fence.sequence).collect();
        for (in_hand, busy) in [(Vec::new(), Vec::new()), (hand, vec![route((0, 0))])] {
            let found = said("next_to_read", self.store.next_to_read(&owner, &in_hand, &busy).await)?;
            self.agree_rest("next to read", self.table.next_to_read(owner.as_str(), &in_hand, &busy), found)?;
        }
        Ok(())
    }

    fn agree_rest(&self, what: &str, expected: Option<Duration>, found: Option<Duration>) -> Result<(), Fault> {
        let same = match (expected, found) {
            (Some(expected), Some(found)) => self.times.same_span(expected, found),
            (expected, found) => expected == found,
        };
        if same { Ok(()) } else { Err(format!("{what}: expected {expected:?}, the database said {found:?}")) }
    }

    async fn look_at_one(&self, number: usize) -> Result<(), Fault> {
        let rows: Vec<_> = self.table.rows.values().collect();
        let Some(row) = round(&rows, number) else { return Ok(()) };
        let found = said("get", self.store.get(row.event_id).await)?.ok_or_else(|| format!("{} is not there", row.event_id))?;
        agree("payload", row.payload.as_ref(), found.payload.as_ref())?;
        agree_row(row, found, self.times)
    }

    async fn look_at_audit(&self) -> Result<(), Fault> {
        let newest_first: Vec<&Note> = self.table.notes.iter().rev().collect();
        let found = said("audit", self.store.audit(1_000).await)?;
        let short = |note: &Note| {
            let Note { audit, action, selector, count } = note;
            ((*action).to_owned(), selector.clone(), *count, audit.actor.clone(), audit.reason.clone())
        };
        let expected: Vec<_> = newest_first.into_iter().map(short).collect();
        let found = found.into_iter().map(|note| (note.action, note.selector, note.count, note.actor, note.reason)).collect();
        agree("what was noted", expected, found)
    }
}

/// Routes by name; an error when they do not come in that order.
fn known(routes: Vec<RouteRecord>) -> Result<BTreeMap<Route, RouteRow>, Fault> {
    if !routes.is_sorted_by(|one, other| one.route < other.route) {
        return Err(format!("routes do not come by name: {routes:?}"));
    }
    let row = |record: RouteRecord| {
        agree("whether a pause has a time", record.paused_by.is_some(), record.paused_at.is_some())?;
        let row = RouteRow {
            remembered: record.first_seen_at.is_some(),
            paused_by: record.paused_by,
            pause_reason: record.pause_reason,
            waiting: record.waiting,
            parked: record.parked,
            blocked: record.blocked,
            dead: record.dead,
        };
        Ok((record.route, row))
    };
    routes.into_iter().map(row).collect()
}
