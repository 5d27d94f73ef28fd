//! The place that a command works on: the database of the configuration, or a running host over HTTP (`--url`). Each command is
//! written once, over [`Place`].

mod answer;
mod client;
mod database;
mod host;
mod query;
mod refused;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outbox::dead::{FailedEvents, ReplayLimits};
use outbox::node::HostSink;
use outbox::purge::PurgeLimits;
use outbox::store::{
    Audit, AuditFilter, AuditRecord, BlockedKey, DeadFilter, Filter, NodeRecord, Purgeable, Purged, Record, RefusedRows,
    RouteRecord, Stats,
};
use outbox::time::Timestamp;
use outbox::why::Explanation;
use outbox::{EventId, Route};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::failure::Failure;
use crate::plugins::PluginStatus;
pub(crate) use query::as_dead;
pub(crate) use writer::{Taken, Writer, writer};

/// Called from time to time with how many events have been changed so far.
pub(crate) type Progress<'p> = &'p mut (dyn FnMut(u64) + Send);

/// What commands need of the place that they work on.
#[async_trait]
pub(crate) trait Place: Send + Sync {
    /// The name of the place, for people; without credentials.
    fn name(&self) -> String;

    /// The present time by the database's clock.
    async fn now(&self) -> Result<Timestamp, Failure>;

    async fn stats(&self) -> Result<Stats, Failure>;

    /// Rows without payloads, at most `limit`.
    async fn list(&self, filter: &Filter, limit: u32) -> Result<Vec<Record>, Failure>;

    /// One row with its payload; `None` when no event has this id.
    async fn get(&self, id: EventId) -> Result<Option<Found>, Failure>;

    /// The explanation of an event's state; `None` when no event has this id.
    async fn why(&self, id: EventId) -> Result<Option<Explanation>, Failure>;

    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, Failure>;

    /// Changes one dead event; false when it does not exist, or its state does not allow the change. Call
    /// [`tell_hosts`](Self::tell_hosts) after the last change.
    async fn change(&self, change: Change, id: EventId, audit: &Audit) -> Result<bool, Failure>;

    /// Wakes the hosts after changes. A hint: their polls find the events all the same.
    async fn tell_hosts(&self);

    /// Replays the dead events that match, at most `limits.events`.
    async fn replay_all(
        &self,
        filter: &DeadFilter,
        limits: &ReplayLimits,
        audit: &Audit,
        progress: Progress<'_>,
    ) -> Result<ReplayedDead, Failure>;

    /// Counts the events that have failed at most `threshold` times.
    async fn count_failed(&self, threshold: Option<u32>) -> Result<Failed, Failure>;

    /// Makes these events due again.
    async fn replay_failed(
        &self,
        failed: &FailedEvents,
        limits: &ReplayLimits,
        audit: &Audit,
        progress: Progress<'_>,
    ) -> Result<ReplayedFailed, Failure>;

    /// What a purge would delete. Without `older_than`, the retention of this place applies.
    async fn purgeable(&self, what: Purging, older_than: Option<Duration>) -> Result<WouldPurge, Failure>;

    /// Purges, and notes it in the audit log. Refuses when more events match than were counted.
    async fn purge(
        &self,
        what: Purging,
        confirmed: Confirmed,
        limits: PurgeLimits,
        audit: &Audit,
        progress: Progress<'_>,
    ) -> Result<Purged, Failure>;

    /// Every route with its counts.
    async fn routes(&self) -> Result<Vec<RouteRecord>, Failure>;

    /// The aggregates whose events wait behind another, longest queue first, at most `limit`.
    async fn blocked(&self, limit: u32) -> Result<Vec<BlockedKey>, Failure>;

    /// Pauses a route or a pattern; false when it was paused already.
    async fn pause(&self, route: &Route, audit: &Audit) -> Result<bool, Failure>;

    /// Resumes a route or a pattern; false when it was not paused.
    async fn resume(&self, route: &Route, audit: &Audit) -> Result<bool, Failure>;

    /// The hosts. One whose session has ended is not alive.
    async fn nodes(&self) -> Result<Vec<NodeRecord>, Failure>;

    async fn audit(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditRecord>, Failure>;

    /// The plugins of the hosts that run.
    async fn plugins(&self) -> Result<Vec<Listed>, Failure>;

    /// The sinks of the hosts that run. `routes` are those of [`routes`](Self::routes), for the number of waiting events; a host of
    /// `--url` counts by itself.
    async fn sinks(&self, routes: &[RouteRecord]) -> Result<Vec<HostSink>, Failure>;
}

/// A row with its payload.
pub(crate) struct Found {
    pub(crate) record: Record,
    /// Whether the payload is hidden from this user.
    pub(crate) payload_hidden: bool,
}

/// A change of one dead event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Replay,
    Skip,
    Discard,
}

/// How many events failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    /// Events that wait for another attempt, or were deferred by their listener.
    pub(crate) waiting: u64,
    /// Dead events that failed at most `threshold` times.
    pub(crate) matching: u64,
    /// All dead events.
    pub(crate) dead: u64,
    /// When they were counted, by the database's clock: events that die later are not among `matching`.
    pub(crate) dead_before: Timestamp,
}

/// The result of a replay of dead events.
#[derive(Debug, Default)]
pub(crate) struct ReplayedDead {
    pub(crate) count: u64,
    /// Events that the database refused to change.
    pub(crate) refused: RefusedRows,
}

/// The result of a replay of failed events.
#[derive(Debug, Default)]
pub(crate) struct ReplayedFailed {
    pub(crate) retried_now: u64,
    pub(crate) replayed: u64,
    /// Events that the database refused to change.
    pub(crate) refused: RefusedRows,
}

/// Which finished events a purge deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purging {
    Done,
    Dead,
}

/// What a purge would delete.
pub(crate) struct WouldPurge {
    /// How long ago the events must have finished.
    pub(crate) older_than: Duration,
    /// The same as a time, by the database's clock.
    pub(crate) finished_before: Timestamp,
    pub(crate) purgeable: Purgeable,
}

/// What the operator has confirmed before a purge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirmed {
    /// Only events that finished by then.
    pub(crate) finished_before: Timestamp,
    /// How many events matched, whatever the limit.
    pub(crate) count: u64,
}

/// A plugin of a host that runs, or of the directory.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Listed {
    /// The host's label; `None` for what only lies in the directory.
    pub(crate) host: Option<String>,
    #[serde(flatten)]
    pub(crate) status: PluginStatus,
}

/// The host of `--url`, or else the database of the configuration, whose schema must be ours.
pub(crate) async fn open(config: &Config) -> Result<Arc<dyn Place>, Failure> {
    Ok(match &config.remote {
        Some(remote) => Arc::new(host::Host::new(remote)?),
        None => Arc::new(database::Database::open(config).await?),
    })
}
