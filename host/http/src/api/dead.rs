//! Dead events: listed, counted, shown, replayed, skipped, discarded.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use outbox::dead::{ReplayLimits, Replayed};
use outbox_event::time::Timestamp;
use outbox_event::units::{When, duration_option};
use outbox_event::{EventId, Status};
use outbox_store::{DeadFilter, Filter, RefusedRows, StoreError};
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use super::super::access::token::Role;
use super::super::answer::{Counted, Done};
use super::super::auth::{Operator, Viewer};
use super::super::body::Asked;
use super::super::host::Host;
use super::super::openapi::{Endpoint, text};
use super::super::params::{Id, Params};
use super::super::peer::CutOff;
use super::super::problem::{Kind, Problem};
use super::events::{
    PAYLOAD, Page, Shown, fields, filtered, found, id_schema, listed, page, payload_form, payload_schema, shown,
};
use super::expected::Expected;

/// The longest that one request works; a client would not wait longer. The answer says how many are left; a repeat continues.
pub(super) const LONGEST: Duration = Duration::from_secs(25);

/// The most events in one batch: a request ends between two batches only.
const MOST_IN_BATCH: u32 = 10_000;

/// The reason for a change, for the audit log.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = Reason)]
pub(super) struct Why {
    /// Recorded in the audit log, at most 1,000 characters of it.
    pub(super) reason: Option<String>,
}

/// Which dead events to replay, and how.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = DeadReplay)]
pub(super) struct Replay {
    /// Events of this type; also `type`.
    #[serde(alias = "type")]
    event_type: Option<String>,
    /// Events of this aggregate type.
    aggregate_type: Option<String>,
    /// Events of this aggregate.
    aggregate_id: Option<String>,
    /// Events of this tenant; also `tenant`.
    #[serde(alias = "tenant")]
    tenant_id: Option<String>,
    /// Events whose last error contains this text.
    error: Option<String>,
    /// Events whose `attempts` are at most this. The failure at which a listener gives an event up is not counted there.
    #[schema(format = "uint32", maximum = 4_294_967_295_u64)]
    max_attempts: Option<u32>,
    /// Events that died since this time, or since so long ago: `2h`.
    since: Option<String>,
    /// Events that died up to this time, or up to so long ago.
    until: Option<String>,
    /// Only events that were dead by then: the `dead_before` of the same request with `dry_run`. Needed unless it is a dry run.
    dead_before: Option<Timestamp>,
    /// How many events the caller expects to match: `count` and `left` of the same request with `dry_run`, added up.
    #[schema(format = "uint64")]
    expected_count: Option<u64>,
    /// The most events to replay, oldest first.
    #[schema(format = "uint64")]
    limit: Option<u64>,
    /// The most events to replay a second, so that a receiver that has just recovered is not overloaded; at least 1.
    #[schema(format = "uint32", minimum = 1, maximum = 4_294_967_295_u64)]
    per_second: Option<u32>,
    /// The most events that one statement replays. Default 100.
    #[schema(format = "uint32", minimum = 1, maximum = 10_000)]
    batch_size: Option<u32>,
    /// Stop after this long, such as `"10s"`; 25 s at most.
    #[serde(with = "duration_option")]
    #[schema(value_type = Option<String>)]
    time_limit: Option<Duration>,
    /// Only count the events; change nothing.
    dry_run: bool,
    /// Recorded in the audit log.
    reason: Option<String>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let dated = |endpoint: Endpoint| {
        endpoint
            .query(
                "max_attempts",
                json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
                "Events whose `attempts` are at most this. The failure at which a listener gives an event up is not counted there.",
            )
            .query("since", text(), "Events that died since this time, or since so long ago: `2h`.")
            .query("until", text(), "Events that died up to this time, or up to so long ago.")
    };
    let list = dated(listed(Endpoint::get("/v1/dead", "list_dead", "List dead events", list)));
    let count = dated(filtered(Endpoint::get("/v1/dead/count", "count_dead", "Count dead events", count)));
    let example = json!({
        "aggregate_type": "Order", "dead_before": "2026-03-01T12:00:00Z", "expected_count": 12, "reason": "the mail server answers again",
    });
    let all = Endpoint::post("/v1/dead/replay", "replay_dead", "Replay the dead events that match", replay_all)
        .detail(
            "They become new again; at most `limit` of them, oldest first. The request is refused unless exactly `expected_count` \
             events match, whatever its `limit`: send `count` and `left` of the same request with `dry_run`, added up, and its \
             `dead_before`. One request works for at most 25 s, and ends early when its client goes away or the host stops. To \
             continue, send the same `dead_before`, the `left` of the answer as `expected_count`, and `limit` lowered by its `count`. \
             It is over when `count` is 0, `refused.gave_up` is true, or only the `refused` are left. Two hosts do not wait for each \
             other: send a request to one of them.",
        )
        .role(Role::Operator)
        .counts_first()
        .asked::<Replay>(example)
        .refuses(&[Kind::CountChanged])
        .answers::<Done>(StatusCode::OK, "How many events were replayed.");
    vec![
        list,
        count.answers::<Counted>(StatusCode::OK, "How many dead events match."),
        all,
        Endpoint::get("/v1/dead/{id}", "show_dead", "Show a dead event", show)
            .role(Role::Viewer)
            .part("id", id_schema(), "The event's id.")
            .asks_the_database()
            .checks_its_query()
            .query("payload", payload_schema(), PAYLOAD)
            .refuses(&[Kind::NotFound, Kind::WrongState])
            .answers::<Shown>(StatusCode::OK, "The event, with its payload for operators and admins."),
        of_one(Endpoint::post("/v1/dead/{id}/replay", "replay_one", "Replay a dead event", replay)),
        of_one(Endpoint::post(
            "/v1/dead/{id}/skip",
            "skip_one",
            "Deliver later events of its aggregate without it; it stays dead",
            skip,
        )),
        of_one(Endpoint::post("/v1/dead/{id}/discard", "discard_one", "Delete a dead event permanently", discard)),
    ]
}

/// The parameters and the answer of every change of one event.
fn of_one(endpoint: Endpoint) -> Endpoint {
    endpoint
        .role(Role::Operator)
        .part("id", id_schema(), "The event's id.")
        .asks_the_database()
        .asked::<Why>(json!({ "reason": "the address was mended" }))
        .refuses(&[Kind::NotFound, Kind::WrongState])
        .answers::<Done>(StatusCode::OK, "The change was made.")
}

/// The longest that a request may work: what it asks for, or [`LONGEST`].
pub(super) fn longest(time_limit: Option<Duration>) -> Duration {
    time_limit.map_or(LONGEST, |span| span.min(LONGEST))
}

/// `GET /v1/dead`: oldest first.
pub(super) async fn list(State(host): State<Host>, _: Viewer, mut params: Params) -> Result<Json<Page>, Problem> {
    let filter = fields(&mut params);
    let (max_attempts, since, until) = death(&mut params);
    let now = host.store.now().await?;
    let at = |when: Option<When>| when.map(|when| when.from(now));
    let (finished_after, finished_before) = (at(since), at(until));
    page(&host, Filter { status: Some(Status::Dead), max_attempts, finished_after, finished_before, ..filter }, params).await
}

/// `GET /v1/dead/count`.
pub(super) async fn count(State(host): State<Host>, _: Viewer, mut params: Params) -> Result<Json<Counted>, Problem> {
    let Filter { event_type, aggregate_type, aggregate_id, tenant_id, header, error, .. } = fields(&mut params);
    if header.is_some() {
        params.fault("header", "dead events cannot be counted by header");
    }
    let (max_attempts, since, until) = death(&mut params);
    params.finish()?;
    let now = host.store.now().await?;
    let at = |when: Option<When>| when.map(|when| when.from(now));
    let (dead_after, dead_before) = (at(since), at(until));
    let filter =
        DeadFilter { event_type, aggregate_type, aggregate_id, tenant_id, error, max_attempts, dead_after, dead_before };
    Ok(Json(Counted { count: host.store.count_dead(&filter).await? }))
}

fn death(params: &mut Params) -> (Option<u32>, Option<When>, Option<When>) {
    let max_attempts = params.value("max_attempts", "write a number");
    (max_attempts, params.value("since", When::HINT), params.value("until", When::HINT))
}

/// `GET /v1/dead/{id}`.
pub(super) async fn show(State(host): State<Host>, viewer: Viewer, id: Id, mut params: Params) -> Result<Response, Problem> {
    let form = payload_form(&mut params);
    params.finish()?;
    let row = found(&host, id.0).await?;
    if row.status == Status::Dead { Ok(shown(&row, &viewer, form)) } else { Err(not_so(id.0, row.status, "dead")) }
}

/// `POST /v1/dead/{id}/replay`: it is new again.
pub(super) async fn replay(host: State<Host>, by: Operator, id: Id, why: Asked<Why>) -> Result<Json<Done>, Problem> {
    let audit = by.0.audit(why.0.reason);
    one(&host, id.0, "dead", host.dead.replay(id.0, &audit).await).await
}

/// `POST /v1/dead/{id}/discard`: it is deleted for good.
pub(super) async fn discard(host: State<Host>, by: Operator, id: Id, why: Asked<Why>) -> Result<Json<Done>, Problem> {
    let audit = by.0.audit(why.0.reason);
    one(&host, id.0, "dead", host.dead.discard(id.0, &audit).await).await
}

/// `POST /v1/dead/{id}/skip`: later events of its aggregate go on; it stays dead.
pub(super) async fn skip(host: State<Host>, by: Operator, id: Id, why: Asked<Why>) -> Result<Json<Done>, Problem> {
    let audit = by.0.audit(why.0.reason);
    one(&host, id.0, "dead with later events of its aggregate behind it", host.dead.skip(id.0, &audit).await).await
}

/// The answer to a change of one event.
async fn one(host: &Host, id: EventId, wanted: &str, changed: Result<bool, StoreError>) -> Result<Json<Done>, Problem> {
    if !changed? {
        return Err(not_so(id, found(host, id).await?.status, wanted));
    }
    host.tell_hosts().await;
    Ok(Json(Done { count: 1, left: None, dead_before: None, refused: RefusedRows::default(), dry_run: false }))
}

fn not_so(id: EventId, status: Status, wanted: &str) -> Problem {
    Problem::new(Kind::WrongState, format!("the event {id} is {status}, not {wanted}; nothing was done"))
}

impl Replay {
    fn filter(&self, now: Timestamp) -> Result<DeadFilter, Problem> {
        let at = |name: &str, text: &Option<String>| {
            let when = text.as_deref().map(|text| text.parse::<When>().map(|when| when.from(now)));
            when.transpose().map_err(|hint| Problem::field(name, hint))
        };
        Ok(DeadFilter {
            event_type: self.event_type.clone(),
            aggregate_type: self.aggregate_type.clone(),
            aggregate_id: self.aggregate_id.clone(),
            tenant_id: self.tenant_id.clone(),
            error: self.error.clone(),
            max_attempts: self.max_attempts,
            dead_after: at("since", &self.since)?,
            // Events that die after the count are not replayed in place of those that were counted.
            dead_before: [at("until", &self.until)?, self.dead_before, Some(now)].into_iter().flatten().min(),
        })
    }
}

/// `POST /v1/dead/replay`: replays the events that match, if they are as many as the caller expects.
pub(super) async fn replay_all(
    host: State<Host>,
    by: Operator,
    mut cut_off: CutOff,
    asked: Asked<Replay>,
) -> Result<Json<Done>, Problem> {
    let asked = asked.0;
    if asked.per_second == Some(0) {
        return Err(Problem::field("per_second", "it is 0; write at least 1, or leave it out"));
    }
    if let Some(size) = asked.batch_size.filter(|size| !(1..=MOST_IN_BATCH).contains(size)) {
        let detail = format!("it is {size}; write at least 1 and at most {MOST_IN_BATCH}, or leave it out");
        return Err(Problem::field("batch_size", detail));
    }
    if !asked.dry_run && asked.dead_before.is_none() {
        // Otherwise a repeated request would replay events that have died again.
        return Err(Problem::field("dead_before", "send the `dead_before` that the same request returned with `dry_run`"));
    }
    let time = longest(asked.time_limit);
    let mut confirming = if asked.dry_run { None } else { Some(host.confirming(&mut cut_off).await?) };
    let place = host.read_place(Role::Operator).await?;
    let filter = asked.filter(host.store.now().await?)?;
    let matching = host.store.count_dead(&filter).await?;
    drop(place);
    let wanted = matching.min(asked.limit.unwrap_or(u64::MAX));
    let dead_before = filter.dead_before;
    if asked.dry_run {
        let (left, refused) = (Some(matching - wanted), RefusedRows::default());
        return Ok(Json(Done { count: wanted, left, dead_before, refused, dry_run: true }));
    }
    // If fewer events match, the replay would reach other events than the caller has seen.
    Expected::Exactly.check(asked.expected_count, matching, "dead event")?;
    let limits = ReplayLimits {
        batch_size: asked.batch_size.unwrap_or(ReplayLimits::default().batch_size),
        per_second: asked.per_second,
        time: Some(time),
        events: Some(wanted),
    };
    if cut_off.is_over() {
        return Err(CutOff::problem());
    }
    let goes_on = |_| {
        confirming.take();
        !cut_off.is_over()
    };
    let replayed = host.dead.replay_while(&filter, &limits, &by.0.audit(asked.reason), goes_on).await?;
    host.tell_hosts().await;
    let Replayed { count, refused, .. } = replayed;
    Ok(Json(Done { count, left: Some(matching.saturating_sub(count)), dead_before, refused, dry_run: false }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dies_after_the_count_is_not_meant() {
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        let hours = |hours: u64| Duration::from_secs(hours * 3_600);
        let meant = |until: Option<&str>, dead_before: Option<Timestamp>| {
            let asked = Replay { until: until.map(str::to_owned), dead_before, ..Replay::default() };
            asked.filter(now).expect("a time").dead_before
        };
        assert_eq!([meant(None, None), meant(Some("2100-01-01T00:00:00Z"), Some(now.plus(hours(1))))], [Some(now); 2]);
        for dead_before in [None, Some(now.minus(hours(1)))] {
            assert_eq!(meant(Some("2h"), dead_before), Some(now.minus(hours(2))), "the earlier of both");
        }
        assert_eq!(meant(Some("1h"), Some(now.minus(hours(2)))), Some(now.minus(hours(2))));
    }
}
