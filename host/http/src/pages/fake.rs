//! Rows for tests.

use std::sync::Arc;

use outbox_event::time::Timestamp;
use outbox_event::{Envelope, OwnerId, Route, SinkState, SinkStatus, Status};
use outbox_store::{Node, NodeRecord, Record, RouteRecord};

use super::document::{Frame, Theme};
use super::known::snapshot::{Known, Snapshot};

pub(super) fn record() -> Record {
    let at = Timestamp::from_micros(1_795_249_980_000_000);
    let envelope = Envelope::new("Paid").aggregate("Order", "42").occurred_at(at).json(&42).expect("valid");
    changed!(Record {
        payload: None,
        status: Status::Dead,
        attempts: 3,
        claim_seq: 3,
        due_at: None,
        done_at: Some(at),
        last_error: Some("deadline".to_owned()),
        ..Record::inserted(7, &envelope, at)
    })
}

pub(super) fn node(label: &str, now: Timestamp) -> NodeRecord {
    NodeRecord::new(&Node::new(OwnerId::known(&format!("owner-{label}")), label, "multi_node", "0.1.0"), now)
}

pub(super) fn route(aggregate_type: &str, event_type: &str) -> RouteRecord {
    RouteRecord::new(Route::new(aggregate_type, event_type).unwrap())
}

/// A working sink that these routes, or patterns, are relayed to.
pub(super) fn sink(name: &str, routes: &[&str]) -> SinkStatus {
    let route = |route: &&str| {
        let (aggregate_type, event_type) = route.split_once('/').expect("both names");
        Route::new(aggregate_type, event_type).expect("valid")
    };
    SinkStatus {
        name: name.to_owned(),
        kind: "nats".to_owned(),
        target: "nats://broker".to_owned(),
        state: SinkState::Working,
        outage: None,
        last_success: None,
        unavailable_receivers: 0,
        first_unavailable: Vec::new(),
        routes: routes.iter().map(route).collect(),
        more_routes: 0,
    }
}

/// The frame of a page that knows an empty table.
pub(super) fn frame() -> Frame {
    let now = Timestamp::from_micros(1_795_249_980_000_000);
    let snapshot = Snapshot { nodes: vec![node("web-1", now)], ..Snapshot::made_up(now) };
    Frame {
        root: "./".to_owned(),
        here: String::new(),
        theme: Theme::System,
        entry: "Overview",
        place: "sqlite".to_owned(),
        visitor: None,
        may_act: true,
        known: Known { snapshot: Some(Arc::new(snapshot)), outage: None },
        owner: String::new(),
        unready: Vec::new(),
        rate: None,
        notice: None,
        has: None,
    }
}
