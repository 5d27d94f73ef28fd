//! What people and pollers see.

use std::collections::BTreeMap;
use std::time::Duration;

use outbox::store::{Record, Stats};
use outbox::{Route, Status};

use super::table::{Table, route};

/// What is known of a route.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RouteRow {
    pub(super) remembered: bool,
    pub(super) paused_by: Option<String>,
    pub(super) pause_reason: Option<String>,
    pub(super) waiting: u64,
    pub(super) parked: u64,
    pub(super) blocked: u64,
    pub(super) dead: u64,
}

impl Table {
    /// How many events stand where.
    pub(super) fn stats(&self) -> Stats {
        let count = |test: &dyn Fn(&Record) -> bool| self.rows.values().filter(|row| test(row)).count() as u64;
        let now = self.now;
        let waits = |row: &Record| row.due_at.is_some_and(|due_at| due_at <= now || row.wait_since.is_some());
        let mut stats = Stats::default();
        stats.new = count(&|row| row.status == Status::New && row.due_at.is_some());
        stats.retry = count(&|row| row.status == Status::Retry && row.due_at.is_some());
        stats.done = count(&|row| row.status == Status::Done);
        stats.dead = count(&|row| row.status == Status::Dead);
        stats.parked = count(&|row| row.parked.is_some());
        stats.blocked = count(&|row| row.behind.is_some());
        stats.in_flight = count(&|row| row.lease_end.is_some_and(|lease_end| lease_end > now));
        let since = |row: &Record| {
            let is_due_again = row.status == Status::Retry || row.deferrals > 0 || row.replays > 0;
            let due_at = row.wait_since.or(row.due_at).filter(|_| is_due_again).unwrap_or(row.created_at);
            row.available_at.max(row.created_at).max(due_at)
        };
        let oldest = |is_given_back: bool| {
            let ready = self.rows.values().filter(|row| waits(row) && row.available_at <= now);
            let of_cause = ready.filter(|row| row.wait_since.is_some() == is_given_back);
            of_cause.map(since).min().map(|since| now.since(since).as_secs_f64())
        };
        stats.oldest_pending_seconds.waits_for_host = oldest(false);
        // No reason of this model says that no listener answers.
        stats.oldest_pending_seconds.given_back = oldest(true);
        stats
    }

    /// How long until the next event is due, or the lease of one that is due and held is over.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let next = self.rows.values().filter_map(|row| {
            let due_at = row.due_at?;
            Some(if due_at > self.now { due_at } else { row.lease_end.unwrap_or(due_at) })
        });
        next.min().map(|next| next.since(self.now))
    }

    /// How long until the next event can be read of partitions that name the owner: one that is due and in hand does not count.
    pub(super) fn next_to_read(&self, owner: &str, in_hand: &[u64], busy: &[Route]) -> Option<Duration> {
        let ours = self.rows.values().filter(|row| row.due_at.is_some() && self.is_owner(owner, self.partition(row)));
        let next = ours.filter_map(|row| match row.due_at? {
            due_at if due_at > self.now => Some(due_at),
            _ if in_hand.contains(&row.seq) || busy.contains(&route(row)) => None,
            due_at => Some(row.lease_end.unwrap_or(due_at)),
        });
        next.min().map(|next| next.since(self.now))
    }

    /// Every route that had a listener or is paused, without counts.
    pub(super) fn routes(&self) -> BTreeMap<Route, RouteRow> {
        let mut routes: BTreeMap<Route, RouteRow> = BTreeMap::new();
        for route in &self.remembered {
            routes.entry(route.clone()).or_default().remembered = true;
        }
        for (route, audit) in &self.paused {
            let row = routes.entry(route.clone()).or_default();
            (row.paused_by, row.pause_reason) = (Some(audit.actor.clone()), audit.reason.clone());
        }
        routes
    }

    /// The same, and every route with unfinished or dead events, with their counts.
    pub(super) fn count_routes(&self) -> BTreeMap<Route, RouteRow> {
        let mut routes = self.routes();
        for event in self.rows.values().filter(|row| row.status != Status::Done) {
            let row = routes.entry(route(event)).or_default();
            row.waiting += u64::from(event.due_at.is_some());
            row.parked += u64::from(event.parked.is_some());
            row.blocked += u64::from(event.behind.is_some());
            row.dead += u64::from(event.status == Status::Dead);
        }
        routes
    }
}
