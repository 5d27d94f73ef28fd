//! Rows for tests.

use crate::event::{EventId, Headers, Route, Status};
use crate::store::{NodeRecord, Record, RouteRecord};
use crate::time::Timestamp;

pub(super) fn record() -> Record {
    let at = Timestamp::from_micros(1_795_249_980_000_000);
    Record {
        seq: 7,
        event_id: EventId::generate(at),
        event_type: "Paid".to_owned(),
        aggregate_type: "Order".to_owned(),
        aggregate_id: Some("42".to_owned()),
        tenant_id: None,
        headers: Headers::default(),
        content_type: "application/json".to_owned(),
        payload_bytes: 2,
        payload: None,
        status: Status::Dead,
        attempts: 3,
        deferrals: 0,
        claims: 0,
        starts: 0,
        claim_seq: 3,
        replays: 0,
        occurred_at: at,
        created_at: at,
        available_at: at,
        due_at: None,
        expires_at: None,
        done_at: Some(at),
        parked: None,
        behind: None,
        blocks: false,
        locked_by: None,
        locked_at: None,
        lease_end: None,
        last_error: Some("deadline".to_owned()),
        last_cost: None,
    }
}

pub(super) fn node(label: &str, now: Timestamp) -> NodeRecord {
    NodeRecord {
        owner: format!("owner-{label}"),
        label: label.to_owned(),
        mode: "multi_node".to_owned(),
        version: "0.1.0".to_owned(),
        started_at: now,
        alive_until: now,
        alive: true,
        partitions: 0,
        plugins: None,
    }
}

pub(super) fn route(aggregate_type: &str, event_type: &str) -> RouteRecord {
    RouteRecord {
        route: Route::new(aggregate_type, event_type).unwrap(),
        first_seen_at: None,
        paused_at: None,
        paused_by: None,
        pause_reason: None,
        waiting: 0,
        parked: 0,
        blocked: 0,
        dead: 0,
    }
}

/// The frame of a page that knows an empty table.
pub(super) fn frame() -> super::layout::Frame {
    let now = Timestamp::from_micros(1_795_249_980_000_000);
    let look = super::look::Look { nodes: vec![node("web-1", now)], ..super::look::Look::made_up(now) };
    super::layout::Frame {
        root: "./".to_owned(),
        here: String::new(),
        theme: super::layout::Theme::System,
        entry: "Overview",
        place: "sqlite".to_owned(),
        visitor: None,
        may_act: true,
        seen: super::look::Seen { look: Some(std::sync::Arc::new(look)), gone: None },
        rate: None,
        notice: None,
        has: None,
    }
}
