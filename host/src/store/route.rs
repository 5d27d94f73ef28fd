//! What the table knows of routes and of blocked aggregates.

use serde::{Deserialize, Serialize};

use crate::event::{EventId, Route, Status};
use crate::time::Timestamp;

/// A route, as the table knows it. Counts are 0 where they were not asked for.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "http", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct RouteRecord {
    /// The route.
    #[serde(flatten)]
    pub route: Route,
    /// Since when it has had a listener; `None` when it never had one.
    pub first_seen_at: Option<Timestamp>,
    /// Since when it is paused.
    pub paused_at: Option<Timestamp>,
    /// Who paused it.
    pub paused_by: Option<String>,
    /// Why.
    pub pause_reason: Option<String>,
    /// Events that wait for their time or are being delivered.
    pub waiting: u64,
    /// Events that wait for a listener, or for the end of the pause.
    pub parked: u64,
    /// Events that wait behind an earlier one of their aggregate.
    pub blocked: u64,
    /// Events that were given up.
    pub dead: u64,
}

impl RouteRecord {
    /// As it was read. A plain INSERT may give an event the name of a pattern: it is dead or will be, and is not counted, since a
    /// pattern is known only by its pause or its relay.
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
    pub(super) fn read(self) -> Option<Self> {
        if !self.route.is_pattern() {
            return Some(self);
        }
        let is_known = self.paused_at.is_some() || self.first_seen_at.is_some();
        is_known.then_some(Self { waiting: 0, parked: 0, blocked: 0, dead: 0, ..self })
    }

    /// A route of which nothing is known; for tests, which change what they need.
    #[must_use]
    pub fn new(route: Route) -> Self {
        Self {
            route,
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
}

/// The names of a route; empty ones, which come before all others, for none.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) fn names(route: Option<&Route>) -> (&str, &str) {
    route.map_or(("", ""), |route| (route.aggregate_type.as_str(), route.event_type.as_str()))
}

/// An aggregate whose events wait behind one that is not resolved.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "http", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct BlockedKey {
    /// The kind of aggregate.
    pub aggregate_type: String,
    /// Which one.
    pub aggregate_id: String,
    /// The `seq` of the event that they wait behind.
    pub seq: u64,
    /// Its id; `None` when it is gone already, and the others about to go on.
    pub event_id: Option<EventId>,
    /// Its type.
    pub event_type: Option<String>,
    /// Where it stands.
    pub status: Option<Status>,
    /// When it is tried again; `None` when it waits for something that is not time.
    pub due_at: Option<Timestamp>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// How many wait behind it.
    pub waiting: u64,
}
