//! Where a command looks and acts: the database of the configuration, or a running host over HTTP (`--url`). Each command is written
//! once, over [`Place`].

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
use outbox::purge::PurgeLimits;
use outbox::store::{
    Audit, AuditFilter, AuditRecord, BlockedKey, DeadFilter, Filter, NodeRecord, Purgeable, Purged, Record, RouteRecord, Stats,
};
use outbox::time::Timestamp;
use outbox::why::Explanation;
use outbox::{EventId, Route};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::failure::Failure;
use crate::plugins::PluginStatus;
pub(crate) use writer::{Taken, Writer, writer};

/// Told from time to time how many events it has been so far.
pub(crate) type Progress<'p> = &'p mut (dyn FnMut(u64) + Send);

/// What a command needs of the place where it looks and acts.
#[async_trait]
pub(crate) trait Place: Send + Sync {
    /// What it is called, for people; without credentials.
    fn name(&self) -> String;

    /// The present time by the database's clock.
    async fn now(&self) -> Result<Timestamp, Failure>;

    async fn stats(&self) -> Result<Stats, Failure>;

    /// Rows without payloads, at most `limit`.
    async fn list(&self, filter: &Filter, limit: u32) -> Result<Vec<Record>, Failure>;

    /// One row with its payload; `None` when there is none.
    async fn get(&self, id: EventId) -> Result<Option<Found>, Failure>;

    /// Why an event stands where it stands; `None` when there is none of this id.
    async fn why(&self, id: EventId) -> Result<Option<Explanation>, Failure>;

    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, Failure>;

    /// Changes one dead event; false when it is not there, or not in a state for it. [`tell_hosts`](Self::tell_hosts) after the last.
    async fn change(&self, change: Change, id: EventId, audit: &Audit) -> Result<bool, Failure>;

    /// Tells the hosts of changes. A hint: their polls find them all the same.
    async fn tell_hosts(&self);

    /// Brings back the dead events that match, at most `limits.events`; how many.
    async fn replay_all(
        &self,
        filter: &DeadFilter,
        limits: &ReplayLimits,
        audit: &Audit,
        progress: Progress<'_>,
    ) -> Result<u64, Failure>;

    /// What failed no more often than `threshold` times by now.
    async fn count_failed(&self, threshold: Option<u32>) -> Result<Failed, Failure>;

    /// Lets these events go again.
    async fn replay_failed(
        &self,
        failed: &FailedEvents,
        limits: &ReplayLimits,
        audit: &Audit,
        progress: Progress<'_>,
    ) -> Result<Replayed, Failure>;

    /// What a purge would delete. Without `older_than` it is the retention of this place.
    async fn purgeable(&self, what: Purging, older_than: Option<Duration>) -> Result<WouldPurge, Failure>;

    /// Deletes it, and notes it. Refuses when more events match than were counted.
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

    /// Ends the pause of a route or a pattern; false when it was not paused.
    async fn resume(&self, route: &Route, audit: &Audit) -> Result<bool, Failure>;

    async fn nodes(&self) -> Result<Vec<NodeRecord>, Failure>;

    async fn audit(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditRecord>, Failure>;

    /// The plugins of the hosts that run.
    async fn plugins(&self) -> Result<Vec<Listed>, Failure>;
}

/// A row with its payload.
pub(crate) struct Found {
    pub(crate) record: Record,
    /// Whether the payload and what it holds is kept from whoever asks.
    pub(crate) payload_hidden: bool,
}

/// What can be done with one dead event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Replay,
    Skip,
    Discard,
}

/// How many events failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    /// Wait for another attempt, or were put off by their listener.
    pub(crate) waiting: u64,
    /// Are dead, and failed no more often than was asked for.
    pub(crate) matching: u64,
    /// Are dead.
    pub(crate) dead: u64,
    /// When they were counted, by the database's clock: what dies later is not among `matching`.
    pub(crate) dead_before: Timestamp,
}

/// What became of the events that failed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replayed {
    pub(crate) retried_now: u64,
    pub(crate) replayed: u64,
}

/// Which finished events a purge deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purging {
    Done,
    Dead,
}

/// What a purge would delete.
pub(crate) struct WouldPurge {
    /// Finished at least so long ago.
    pub(crate) older_than: Duration,
    /// The time that this was, by the database's clock.
    pub(crate) finished_before: Timestamp,
    pub(crate) purgeable: Purgeable,
}

/// What the operator of a purge has agreed to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirmed {
    /// Only events that finished by then.
    pub(crate) finished_before: Timestamp,
    /// How many those were, of which a limit may have left out some.
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
