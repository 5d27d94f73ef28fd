//! The database of the configuration as a place.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outbox::dead::{self, DeadEvents, FailedEvents, ReplayLimits};
use outbox::event::Status;
use outbox::metrics::Metrics;
use outbox::node::{HostSink, live_sinks, sinks};
use outbox::purge::{Purge, PurgeConfig, PurgeLimits};
use outbox::store::{
    Audit, AuditFilter, AuditRecord, BlockedKey, DeadFilter, Filter, NodeRecord, Purged, Record, RouteRecord, Stats,
    hide_password,
};
use outbox::time::Timestamp;
use outbox::why::{Explanation, explain};
use outbox::{EventId, Route, Store};

use super::{Change, Confirmed, Failed, Found, Listed, Place, Progress, Purging, ReplayedDead, ReplayedFailed, WouldPurge};
use crate::config::Config;
use crate::database::{self, tell_hosts};
use crate::failure::{Exit, Failure};
use crate::output;

pub(super) struct Database {
    store: Arc<dyn Store>,
    dead: DeadEvents,
    purge: PurgeConfig,
    relays: Vec<Route>,
    name: String,
}

impl Database {
    pub(super) async fn open(config: &Config) -> Result<Self, Failure> {
        let store = database::ready(config).await?;
        Ok(Self {
            dead: DeadEvents::new(store.clone()),
            store,
            purge: config.purge.clone(),
            relays: config.relays().into_iter().map(|(route, _)| route).collect(),
            name: hide_password(&config.database.url),
        })
    }

    /// Tells the hosts of the change of a route, where there was one.
    async fn told(&self, changed: bool) -> Result<bool, Failure> {
        if changed {
            tell_hosts(&*self.store).await;
        }
        Ok(changed)
    }
}

const fn status(what: Purging) -> Status {
    match what {
        Purging::Done => Status::Done,
        Purging::Dead => Status::Dead,
    }
}

#[async_trait]
impl Place for Database {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn now(&self) -> Result<Timestamp, Failure> {
        Ok(self.store.now().await?)
    }

    async fn stats(&self) -> Result<Stats, Failure> {
        Ok(self.store.stats().await?)
    }

    async fn list(&self, filter: &Filter, limit: u32) -> Result<Vec<Record>, Failure> {
        Ok(self.store.list(filter, limit).await?)
    }

    async fn get(&self, id: EventId) -> Result<Option<Found>, Failure> {
        Ok(self.store.get(id).await?.map(|record| Found { record, payload_hidden: false }))
    }

    async fn why(&self, id: EventId) -> Result<Option<Explanation>, Failure> {
        Ok(explain(&*self.store, id, self.relays.clone()).await?)
    }

    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, Failure> {
        Ok(self.dead.count(filter).await?)
    }

    async fn change(&self, change: Change, id: EventId, audit: &Audit) -> Result<bool, Failure> {
        Ok(match change {
            Change::Replay => self.dead.replay(id, audit).await?,
            Change::Skip => self.dead.skip(id, audit).await?,
            Change::Discard => self.dead.discard(id, audit).await?,
        })
    }

    async fn tell_hosts(&self) {
        tell_hosts(&*self.store).await;
    }

    async fn replay_all(
        &self,
        filter: &DeadFilter,
        limits: &ReplayLimits,
        audit: &Audit,
        progress: Progress<'_>,
    ) -> Result<ReplayedDead, Failure> {
        let replayed = self.dead.replay_all(filter, limits, audit, progress).await;
        // What earlier batches brought back goes on, whatever became of the last one.
        tell_hosts(&*self.store).await;
        let dead::Replayed { count, refused, .. } = replayed?;
        Ok(ReplayedDead { count, refused })
    }

    async fn count_failed(&self, threshold: Option<u32>) -> Result<Failed, Failure> {
        let dead_before = self.store.now().await?;
        let filter = DeadFilter { max_attempts: threshold, dead_before: Some(dead_before), ..DeadFilter::default() };
        Ok(Failed {
            waiting: self.store.count_waiting(threshold).await?,
            matching: self.dead.count(&filter).await?,
            dead: self.dead.count(&DeadFilter::default()).await?,
            dead_before,
        })
    }

    async fn replay_failed(
        &self,
        failed: &FailedEvents,
        limits: &ReplayLimits,
        audit: &Audit,
        progress: Progress<'_>,
    ) -> Result<ReplayedFailed, Failure> {
        let replayed = self.dead.replay_failed(failed, limits, audit, progress).await;
        tell_hosts(&*self.store).await;
        let dead::ReplayedFailed { retried, replayed, .. } = replayed?;
        let mut refused = retried.refused;
        refused.merge(replayed.refused);
        Ok(ReplayedFailed { retried_now: retried.count, replayed: replayed.count, refused })
    }

    async fn purgeable(&self, what: Purging, older_than: Option<Duration>) -> Result<WouldPurge, Failure> {
        let Some(older_than) = older_than.or(self.purge.kept(status(what))) else {
            let what = "dead events have no retention; give one like --older-than 90d, or set purge.dead_retention";
            return Err(Failure::new(Exit::Usage, what));
        };
        let finished_before = self.store.now().await?.minus(older_than);
        let purgeable = self.store.count_purgeable(status(what), finished_before).await?;
        Ok(WouldPurge { older_than, finished_before, purgeable })
    }

    async fn purge(
        &self,
        what: Purging,
        confirmed: Confirmed,
        limits: PurgeLimits,
        audit: &Audit,
        progress: Progress<'_>,
    ) -> Result<Purged, Failure> {
        let Confirmed { finished_before, count } = confirmed;
        let matching = self.store.count_purgeable(status(what), finished_before).await?.count;
        // A dead event that blocks nothing any more is old enough at once. Where fewer match and not all are to be deleted,
        // others than those that were counted might be.
        let is_part = what == Purging::Dead || limits.rows.is_some_and(|rows| rows < count);
        if matching > count || is_part && matching < count {
            let events = output::count(matching, &format!("{} event", status(what)));
            let verb = if matching == 1 { "matches" } else { "match" };
            let what = format!("{events} {verb}, not {count}; nothing was done. Run the command again");
            return Err(Failure::new(Exit::Conflict, what));
        }
        let limits = PurgeLimits { rows: Some(matching.min(limits.rows.unwrap_or(u64::MAX))), ..limits };
        let purge = Purge::new(self.store.clone(), self.purge.clone(), Arc::new(Metrics::default()));
        Ok(purge.run_for(audit, status(what), finished_before, limits, |so_far| progress(so_far.count)).await?)
    }

    async fn routes(&self) -> Result<Vec<RouteRecord>, Failure> {
        Ok(self.store.count_routes().await?)
    }

    async fn blocked(&self, limit: u32) -> Result<Vec<BlockedKey>, Failure> {
        Ok(self.store.blocked_keys(limit).await?)
    }

    async fn pause(&self, route: &Route, audit: &Audit) -> Result<bool, Failure> {
        self.told(self.store.pause(route, audit).await?).await
    }

    async fn resume(&self, route: &Route, audit: &Audit) -> Result<bool, Failure> {
        self.told(self.store.resume(route, audit).await?).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>, Failure> {
        Ok(outbox::node::hosts(&*self.store).await?)
    }

    async fn audit(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditRecord>, Failure> {
        Ok(self.store.list_audit(filter, limit).await?)
    }

    async fn plugins(&self) -> Result<Vec<Listed>, Failure> {
        let listed = |node: NodeRecord| {
            let plugins = outbox::node::plugins(&node);
            plugins.into_iter().map(move |status| Listed { host: Some(node.label.clone()), status })
        };
        Ok(self.nodes().await?.into_iter().filter(|node| node.alive).flat_map(listed).collect())
    }

    async fn sinks(&self, routes: &[RouteRecord]) -> Result<Vec<HostSink>, Failure> {
        Ok(live_sinks(&self.nodes().await?, routes, sinks))
    }
}
