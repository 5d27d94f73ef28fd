//! What the table knows of routes and of blocked aggregates.

use async_trait::async_trait;
use outbox_event::time::Timestamp;
use outbox_event::units::number;
use outbox_event::{Fence, OwnerId, Route};
use serde::{Deserialize, Serialize};

use super::{Audit, StoreError};

/// How many routes are counted one by one. Who writes events invents routes: a host must not read them all.
pub const MOST_ROUTES: u32 = 10_000;

/// What to say below counted routes of which some may have been left out.
#[doc(hidden)] // for our own program
#[must_use]
pub fn left_out(counted: &[RouteRecord]) -> Option<String> {
    let most = MOST_ROUTES as usize;
    let listed = number(most as u64);
    (counted.len() >= most).then(|| {
        format!("At most {listed} routes are listed: those that had a listener or are paused, then those with the most events.")
    })
}

/// Routes: which have had a listener, which are paused, and the events that are parked for them.
#[async_trait]
pub trait RouteStore: Send + Sync {
    /// Every route that ever had a listener or was paused, by name, without its counts.
    async fn routes(&self) -> Result<Vec<RouteRecord>, StoreError>;

    /// Every route that had a listener, was paused, or has unfinished or dead events, by name, with its counts; of more than
    /// [`MOST_ROUTES`] those that had a listener or were paused, then those with the most events. Reads all of those events: for
    /// people, not for the hot walk.
    async fn count_routes(&self) -> Result<Vec<RouteRecord>, StoreError>;

    /// The first route behind `after`, in the database's own order of names, of which events are parked; the first of all for
    /// `None`. `None` when there is none.
    async fn parked_route(&self, after: Option<&Route>) -> Result<Option<Route>, StoreError>;

    /// Unparks events of these routes, `limit` at most: they are due again at their `available_at`. `routes` are looked for by
    /// name, so that a pattern unparks nothing, and whether a route is paused is not looked at. `partitions` are those of the
    /// events; `None` is for all, an empty list for none.
    ///
    /// Returns the fences of the events that were unparked, without epochs and in no order; fewer than `limit` when there are no
    /// more, or when others unpark some of them at the same time. Each event is left under a claim of `owner` that has ended.
    /// Whoever delivers it claims it first, so `owner`, which answers its route, may deliver it, and so may the host that holds its
    /// partition. Rows that another transaction has locked are passed by.
    ///
    /// # Errors
    /// The database's own. Then nothing was unparked, unless the answer to the commit was lost. A repeat is safe: what was unparked
    /// is no longer parked, and the host that holds its partition reads it.
    async fn unpark(
        &self,
        owner: &OwnerId,
        routes: &[Route],
        partitions: Option<&[u16]>,
        limit: u32,
    ) -> Result<Vec<Fence>, StoreError>;

    /// Notes that the routes of `own` have a listener of their own, and that relays take those of `relayed`: routes or patterns. A
    /// route that ever had a listener of its own stays noted as such.
    async fn remember_routes(&self, own: &[Route], relayed: &[Route]) -> Result<(), StoreError>;

    /// Pauses a route, whether it is known or not: hosts park its events from now on. False when it was paused already.
    async fn pause(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError>;

    /// Ends the pause of a route; its events stay parked until they are unparked. False when it was not paused.
    async fn resume(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError>;

    /// Forgets a route: that it had a listener, and its pause. Its events stay. False when it was not known. A host that answers
    /// it notes it again.
    async fn forget_route(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError>;
}

/// A route, as the table knows it. Counts are 0 where they were not asked for.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct RouteRecord {
    /// The route.
    #[serde(flatten)]
    pub route: Route,
    /// Since when it has had a listener; `None` when it never had one.
    pub first_seen_at: Option<Timestamp>,
    /// Whether only relays have answered it, so that a relay's pattern takes its events. False if it was never answered.
    pub only_relayed: bool,
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

    /// Whether it ever had a listener of its own. Only a relay that names it exactly takes its events then.
    #[must_use]
    pub fn had_own_listener(&self) -> bool {
        self.first_seen_at.is_some() && !self.only_relayed
    }

    /// A route of which nothing is known; for tests, which change what they need.
    #[must_use]
    pub fn new(route: Route) -> Self {
        Self {
            route,
            first_seen_at: None,
            only_relayed: false,
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

/// Routes as they were counted, the most important first, by name.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub(super) fn by_name(counted: Vec<Option<RouteRecord>>) -> Vec<RouteRecord> {
    let mut routes: Vec<RouteRecord> = counted.into_iter().flatten().collect();
    routes.sort_by(|one, other| one.route.cmp(&other.route));
    routes
}

/// Routes as a JSON list of `[aggregate_type, event_type]`.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) fn pairs(routes: &[Route]) -> String {
    let pairs = routes.iter().map(|route| serde_json::json!([route.aggregate_type, route.event_type]));
    pairs.collect::<serde_json::Value>().to_string()
}

/// The names of a route; empty ones, which come before all others, for none.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) fn names(route: Option<&Route>) -> (&str, &str) {
    route.map_or(("", ""), |route| (route.aggregate_type.as_str(), route.event_type.as_str()))
}
