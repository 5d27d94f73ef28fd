//! Implements [`Place`] with the HTTP API of a running host.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use outbox::dead::{FailedEvents, ReplayLimits};
use outbox::node::HostSink;
use outbox::purge::PurgeLimits;
use outbox::store::{
    Audit, AuditFilter, AuditRecord, BlockedKey, DeadFilter, Filter, NodeRecord, Purgeable, Purged, Record, RefusedRows,
    RouteRecord, Stats,
};
use outbox::time::Timestamp;
use outbox::why::{Explanation, encoded};
use outbox::{EventId, Route};
use outbox_http::answer::{Counted, Done, PurgeReport, ReplayReport};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::answer::{Changed, Now, Page, RoutePage, Whole};
use super::client::Client;
use super::query::{dead_of, list_of, query};
use super::refused::Refused;
use super::{Change, Confirmed, Failed, Found, Listed, Place, Progress, Purging, ReplayedDead, ReplayedFailed, WouldPurge};
use crate::failure::{Exit, Failure};
use crate::remote::Remote;

/// The largest page of the API.
const PAGE: u32 = 200;
/// The most routes that a host may list; no host has as many.
const MOST_ROUTES: usize = 1_000_000;
/// How often a replay continues with a new count after another program has replayed or discarded events meanwhile.
const COUNTS: u32 = 10;

pub(super) struct Host {
    client: Client,
}

impl Host {
    pub(super) fn new(remote: &Remote) -> Result<Self, Failure> {
        Ok(Self { client: Client::new(remote)? })
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.client.get(path).await.map_err(|refused| self.failure(refused))
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Failure> {
        self.client.post(path, body).await.map_err(|refused| self.failure(refused))
    }

    fn failure(&self, refused: Refused) -> Failure {
        refused.failure(self.client.base())
    }

    /// Reads from a path that names one event. `None` if the host answers that there is no such event.
    async fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Failure> {
        match self.client.get(path).await {
            Ok(found) => Ok(Some(found)),
            Err(refused) if refused.code() == Some("not_found") => Ok(None),
            Err(refused) => Err(self.failure(refused)),
        }
    }

    async fn change_route(&self, verb: &str, route: &Route, audit: &Audit) -> Result<bool, Failure> {
        let (aggregate_type, event_type) = (encoded(route.aggregate_type.as_str()), encoded(route.event_type.as_str()));
        let path = format!("/v1/routes/{aggregate_type}/{event_type}/{verb}");
        let changed: Changed = self.post(&path, &json!({ "reason": audit.reason })).await?;
        Ok(changed.changed)
    }
}

/// How long one request may change events before it answers. Short, so that the count on the terminal is updated.
const PART: Duration = Duration::from_secs(2);

/// The time left of a time limit. `None` if there is no limit.
fn left(limit: Option<Duration>, started: Instant) -> Option<Duration> {
    limit.map(|limit| limit.saturating_sub(started.elapsed()))
}

/// The time limit of one of several requests.
fn part(left: Option<Duration>) -> Option<Duration> {
    Some(left.map_or(PART, |left| left.min(PART)))
}

fn span(span: Option<Duration>) -> Option<String> {
    span.map(|span| humantime::format_duration(span).to_string())
}

#[async_trait]
impl Place for Host {
    fn name(&self) -> String {
        self.client.base().to_owned()
    }

    async fn now(&self) -> Result<Timestamp, Failure> {
        Ok(self.get::<Now>("/v1/now").await?.now)
    }

    async fn stats(&self) -> Result<Stats, Failure> {
        self.get("/v1/stats").await
    }

    async fn list(&self, filter: &Filter, limit: u32) -> Result<Vec<Record>, Failure> {
        let (path, mut pairs) = list_of(filter)?;
        let header = filter.header.as_ref().map(|(key, value)| (format!("header.{key}"), value.clone()));
        if let Some((name, value)) = &header {
            pairs.push((name, Some(value.clone())));
        }
        let mut after = if filter.newest_first { filter.before } else { filter.after };
        let mut rows = Vec::new();
        loop {
            let wanted = limit.saturating_sub(u32::try_from(rows.len()).unwrap_or(u32::MAX)).min(PAGE);
            if wanted == 0 {
                return Ok(rows);
            }
            let place = [("limit", Some(wanted.to_string())), ("after", after.map(|seq| seq.to_string()))];
            let page: Page = self.get(&format!("{path}?{}", query(&[&pairs[..], &place[..]].concat()))).await?;
            let is_empty = page.events.is_empty();
            rows.extend(page.events.into_iter().take(usize::try_from(wanted).unwrap_or(usize::MAX)));
            after = page.next;
            // A host that names a next page after an empty one would keep this loop busy forever.
            if after.is_none() || is_empty {
                return Ok(rows);
            }
        }
    }

    async fn get(&self, id: EventId) -> Result<Option<Found>, Failure> {
        let path = format!("/v1/events/{}?payload=base64", encoded(id.as_str()));
        let Some(Whole { mut record, payload_base64, payload_hidden }) = self.find(&path).await? else { return Ok(None) };
        if let Some(text) = payload_base64 {
            let bytes = data_encoding::BASE64.decode(text.as_bytes());
            let bytes =
                bytes.map_err(|error| Failure::new(Exit::Failed, "the payload in the answer is not base64").because(error))?;
            record.payload = Some(Bytes::from(bytes));
        }
        Ok(Some(Found { record, payload_hidden }))
    }

    async fn why(&self, id: EventId) -> Result<Option<Explanation>, Failure> {
        self.find(&format!("/v1/events/{}/why", encoded(id.as_str()))).await
    }

    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, Failure> {
        Ok(self.get::<Counted>(&format!("/v1/dead/count?{}", query(&dead_of(filter)))).await?.count)
    }

    async fn change(&self, change: Change, id: EventId, audit: &Audit) -> Result<bool, Failure> {
        let verb = match change {
            Change::Replay => "replay",
            Change::Skip => "skip",
            Change::Discard => "discard",
        };
        let path = format!("/v1/dead/{}/{verb}", encoded(id.as_str()));
        match self.client.post::<Done>(&path, &json!({ "reason": audit.reason })).await {
            Ok(done) => Ok(done.count > 0),
            Err(refused) if matches!(refused.code(), Some("not_found" | "wrong_state")) => Ok(false),
            Err(refused) => Err(self.failure(refused)),
        }
    }

    /// Does nothing: the host wakes the other hosts itself after each change.
    async fn tell_hosts(&self) {}

    /// Sends requests until no event is left to replay. Events that die after the count are left alone.
    async fn replay_all(
        &self,
        filter: &DeadFilter,
        limits: &ReplayLimits,
        audit: &Audit,
        progress: Progress<'_>,
    ) -> Result<ReplayedDead, Failure> {
        let started = Instant::now();
        // The operator has confirmed this number, so never replay more.
        let mut wanted = limits.events.unwrap_or(u64::MAX);
        let mut matching = self.count_dead(filter).await?;
        let (mut replayed, mut counts) = (ReplayedDead::default(), 0);
        loop {
            let time = left(limits.time, started);
            if matching == 0 || wanted == 0 || time.is_some_and(|time| time.is_zero()) {
                return Ok(replayed);
            }
            let mut body: serde_json::Map<String, Value> =
                dead_of(filter).into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect();
            body.insert("max_attempts".to_owned(), filter.max_attempts.into());
            body.insert("dead_before".to_owned(), json!(filter.dead_before));
            body.insert("expected_count".to_owned(), matching.into());
            body.insert("limit".to_owned(), wanted.into());
            body.insert("per_second".to_owned(), limits.per_second.into());
            body.insert("batch_size".to_owned(), limits.batch_size.into());
            // A rate is kept within a request.
            let part = if limits.per_second.is_some() { time } else { part(time) };
            body.insert("time_limit".to_owned(), span(part).into());
            body.insert("reason".to_owned(), audit.reason.clone().into());
            match self.client.post::<Done>("/v1/dead/replay", &Value::Object(body)).await {
                Ok(done) => {
                    replayed.count = replayed.count.saturating_add(done.count);
                    progress(replayed.count);
                    wanted = wanted.saturating_sub(done.count);
                    matching = done.left.unwrap_or(0);
                    // Each request tries again the events that the database refuses to change.
                    let is_over = done.count == 0 || matching <= done.refused.count || done.refused.gave_up;
                    replayed.refused = done.refused;
                    if is_over {
                        return Ok(replayed);
                    }
                }
                // Another program replays or discards some of them at the same time.
                Err(Refused::Problem(problem)) if problem.code == "count_changed" && counts < COUNTS => {
                    counts += 1;
                    matching = problem.count.unwrap_or(0);
                }
                Err(refused) => return Err(self.failure(refused)),
            }
        }
    }

    async fn count_failed(&self, threshold: Option<u32>) -> Result<Failed, Failure> {
        let body = json!({ "retry_count_threshold": threshold, "dry_run": true });
        let all: ReplayReport = self.post("/v1/replay", &body).await?;
        let dead = all.left_dead.saturating_add(all.replayed);
        Ok(Failed { waiting: all.retried_now, matching: all.replayed, dead, dead_before: all.dead_before })
    }

    async fn replay_failed(
        &self,
        failed: &FailedEvents,
        limits: &ReplayLimits,
        audit: &Audit,
        progress: Progress<'_>,
    ) -> Result<ReplayedFailed, Failure> {
        if audit.reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) {
            let what = "a host requires a reason for replaying all failed events; add --reason TEXT";
            return Err(Failure::new(Exit::Usage, what));
        }
        let started = Instant::now();
        let (mut done, mut waiting) = (ReplayedFailed::default(), RefusedRows::default());
        // Each request continues after the previous one, so that no event is replayed twice.
        let (mut after, mut dead_before) = (Some(failed.after).filter(|after| *after > 0), failed.dead_before);
        loop {
            let gone = done.retried_now.saturating_add(done.replayed);
            let events = limits.events.map(|most| most.saturating_sub(gone));
            let time = left(limits.time, started);
            if events == Some(0) || time.is_some_and(|time| time.is_zero()) {
                return Ok(done);
            }
            let body = json!({
                "retry_count_threshold": failed.max_attempts, "event_limit": events, "time_limit": span(time),
                "dead_limit": failed.max_dead.map(|most| most.saturating_sub(done.replayed)),
                "waiting_limit": failed.max_waiting.map(|most| most.saturating_sub(done.retried_now)),
                "reason": audit.reason, "after": after, "dead_before": dead_before,
            });
            let all: ReplayReport = self.post("/v1/replay", &body).await?;
            done.retried_now = done.retried_now.saturating_add(all.retried_now);
            done.replayed = done.replayed.saturating_add(all.replayed);
            // Each request tries again the dead events that the database refuses to change, and waiting events only once.
            waiting.merge(all.refused_waiting);
            done.refused = waiting.clone();
            done.refused.merge(all.refused_dead);
            progress(done.retried_now.saturating_add(done.replayed));
            if !all.out_of_time {
                return Ok(done);
            }
            let has_moved = all.retried_now > 0 || all.replayed > 0 || all.next != after;
            // A host that makes no progress would keep this loop busy forever.
            if !has_moved && left(limits.time, started).is_none_or(|time| !time.is_zero()) {
                let what = format!(
                    "the host at {} replayed no event within the time limit of a request; check whether its database is overloaded, \
                     then run the command again",
                    self.name()
                );
                return Err(Failure::new(Exit::Unreachable, what));
            }
            (after, dead_before) = (all.next, Some(all.dead_before));
        }
    }

    async fn purgeable(&self, what: Purging, older_than: Option<Duration>) -> Result<WouldPurge, Failure> {
        let body = json!({ "dead": what == Purging::Dead, "older_than": span(older_than), "dry_run": true });
        let report = match self.client.post::<PurgeReport>("/v1/purge", &body).await {
            Err(Refused::Problem(problem)) if problem.errors.iter().any(|error| error.field == "older_than") => {
                let what = "dead events have no retention at this host; give one like --older-than 90d";
                return Err(Failure::new(Exit::Usage, what));
            }
            report => report.map_err(|refused| self.failure(refused))?,
        };
        let older_than = Duration::try_from_secs_f64(report.older_than_seconds).unwrap_or(Duration::MAX);
        let purgeable = Purgeable { count: report.purged.count, blocking: report.blocking };
        Ok(WouldPurge { older_than, finished_before: report.finished_before, purgeable })
    }

    async fn purge(
        &self,
        what: Purging,
        confirmed: Confirmed,
        limits: PurgeLimits,
        audit: &Audit,
        progress: Progress<'_>,
    ) -> Result<Purged, Failure> {
        let started = Instant::now();
        let (mut purged, mut expected) = (Purged::default(), confirmed.count);
        loop {
            let rows = limits.rows.map(|most| most.saturating_sub(purged.count));
            let time = left(limits.time, started);
            if expected == 0 || rows == Some(0) || time.is_some_and(|time| time.is_zero()) {
                return Ok(purged);
            }
            let body = json!({
                "dead": what == Purging::Dead, "finished_before": confirmed.finished_before, "limit": rows,
                "expected_count": expected, "time_limit": span(part(time)), "reason": audit.reason,
            });
            let report = match self.client.post::<PurgeReport>("/v1/purge", &body).await {
                Ok(report) => report,
                // Another program, or the host itself, deletes some of them at the same time.
                Err(Refused::Problem(problem))
                    if purged.count > 0 && problem.code == "count_changed" && problem.count < Some(expected) =>
                {
                    expected = problem.count.unwrap_or(0);
                    continue;
                }
                Err(refused) => return Err(self.failure(refused)),
            };
            let Purged { count, first, last, undeletable } = report.purged;
            purged.add(count, first, last);
            progress(purged.count);
            // Never more than was confirmed, even if more rows match by now.
            expected = confirmed.count.saturating_sub(purged.count).min(report.left);
            // Each request finds the events again that the database does not delete.
            let is_over = count == 0 || report.left <= undeletable.count || undeletable.gave_up;
            purged.undeletable = undeletable;
            if is_over {
                return Ok(purged);
            }
        }
    }

    async fn routes(&self) -> Result<Vec<RouteRecord>, Failure> {
        let (mut after, mut routes) = (None, Vec::<RouteRecord>::new());
        loop {
            let place = [("limit", Some(PAGE.to_string())), ("after", after.clone())];
            let page: RoutePage = self.get(&format!("/v1/routes?{}", query(&place))).await?;
            let (known, last) = (routes.last().map(|known| &known.route), page.routes.last().map(|last| &last.route));
            // A host that always names a next page would keep this loop busy forever. A host with ever longer pages would fill
            // the memory of the command.
            let too_many = page.routes.len() > PAGE as usize || routes.len() >= MOST_ROUTES;
            if too_many {
                let what = format!("the host at {} lists more routes than a host may have", self.name());
                return Err(Failure::new(Exit::Unreachable, what));
            }
            if page.next.is_some() && after.is_some() && last <= known {
                let what = format!("the host at {} repeats a page of its list of routes", self.name());
                return Err(Failure::new(Exit::Unreachable, what));
            }
            routes.extend(page.routes);
            after = page.next;
            if after.is_none() {
                return Ok(routes);
            }
        }
    }

    async fn blocked(&self, limit: u32) -> Result<Vec<BlockedKey>, Failure> {
        if limit > PAGE {
            let what =
                format!("a host lists at most {PAGE} aggregates, not {limit}; give --limit {PAGE} or less, or leave out --url");
            return Err(Failure::new(Exit::Usage, what));
        }
        self.get(&format!("/v1/routes/blocked?limit={limit}")).await
    }

    async fn pause(&self, route: &Route, audit: &Audit) -> Result<bool, Failure> {
        self.change_route("pause", route, audit).await
    }

    async fn resume(&self, route: &Route, audit: &Audit) -> Result<bool, Failure> {
        self.change_route("resume", route, audit).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>, Failure> {
        self.get("/v1/nodes").await
    }

    async fn audit(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditRecord>, Failure> {
        let pairs = [
            ("actor", filter.actor.clone()),
            ("action", filter.action.clone()),
            ("event_id", filter.event_id.map(|id| id.to_string())),
            ("since", filter.since.map(|time| time.to_string())),
            ("until", filter.until.map(|time| time.to_string())),
        ];
        let (mut before, mut records) = (filter.before, Vec::new());
        loop {
            let wanted = limit.saturating_sub(u32::try_from(records.len()).unwrap_or(u32::MAX)).min(PAGE);
            if wanted == 0 {
                return Ok(records);
            }
            let place = [("limit", Some(wanted.to_string())), ("before", before.map(|id| id.to_string()))];
            let page: Vec<AuditRecord> = self.get(&format!("/v1/audit?{}", query(&[&pairs[..], &place[..]].concat()))).await?;
            before = page.last().map(|last| last.id);
            let is_last = u32::try_from(page.len()).is_ok_and(|many| many < wanted);
            records.extend(page);
            if is_last {
                return Ok(records);
            }
        }
    }

    async fn plugins(&self) -> Result<Vec<Listed>, Failure> {
        self.get("/v1/plugins").await
    }

    async fn sinks(&self, _: &[RouteRecord]) -> Result<Vec<HostSink>, Failure> {
        self.get("/v1/sinks").await
    }
}
