//! Keeps the table of routes and this process's routes in step.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::event::Route;
use crate::listener::Listeners;
use crate::partition::Partitions;
use crate::recurring::{Outage, Recurring};
use crate::store::{RouteRecord, Store, StoreError};

/// Within how long every running host knows that a route was paused, resumed or forgotten elsewhere, unless it waits for its
/// database. What is with a listener by then is finished.
pub const PAUSE_KNOWN_WITHIN: Duration = Duration::from_secs(2);

/// Rest between two looks at the pauses.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same while the session's proofs tell of each change, every second too.
const LOOK_EVERY_TOLD: Duration = Duration::from_secs(10);

/// Notes which routes have a listener, so that their events are parked while it is away, and learns which are paused.
pub(crate) struct RouteKeeper {
    store: Arc<dyn Store>,
    changes: watch::Receiver<u64>,
    listeners: Arc<Listeners>,
    partitions: Arc<Partitions>,
    outage: Outage,
    /// What the session has seen of the table of routes; `None` while it does not tell.
    seen: watch::Receiver<Option<String>>,
    /// When this host last noted its routes. The session notices a deletion only after it has seen them.
    noted_at: Option<Instant>,
}

impl RouteKeeper {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        listeners: Arc<Listeners>,
        partitions: Arc<Partitions>,
        seen: watch::Receiver<Option<String>>,
    ) -> Self {
        Self { store, changes: listeners.changes(), listeners, partitions, outage: Outage::default(), seen, noted_at: None }
    }

    async fn step(&mut self) -> Result<(), StoreError> {
        self.changes.mark_unchanged();
        // Before the look: what changes after it is seen once more.
        self.seen.mark_unchanged();
        let (own, relayed) = (self.listeners.own_routes(), self.listeners.relays());
        let mut answer = Answer::read(&*self.store, &self.listeners).await?;
        // A route may be new here, or an operator made the table forget a route that this host answers.
        if !are_noted(&own, &relayed, &answer.routes) {
            self.store.remember_routes(&own, &relayed).await?;
            self.noted_at = Some(Instant::now());
            // All tables may have been emptied, and the row of this host and its partitions be gone, too.
            self.partitions.request_beat();
            answer = Answer::read(&*self.store, &self.listeners).await?;
        }
        answer.apply(&self.listeners);
        Ok(())
    }
}

/// Whether the table has all routes of `own` as routes with a listener of their own, and all of `relayed`.
fn are_noted(own: &[Route], relayed: &[Route], known: &[RouteRecord]) -> bool {
    let noted: HashMap<&Route, &RouteRecord> =
        known.iter().filter(|known| known.first_seen_at.is_some()).map(|known| (&known.route, known)).collect();
    let is_own = |route: &Route| noted.get(route).is_some_and(|known| known.had_own_listener());
    own.iter().all(is_own) && relayed.iter().all(|route| noted.contains_key(route))
}

impl Recurring for RouteKeeper {
    async fn run_once(&mut self) -> Duration {
        let kept = self.step().await;
        let succeeded = kept.is_ok();
        self.outage.note(
            kept,
            |error| tracing::warn!(%error, "the routes could not be read or recorded; trying again"),
            || tracing::info!("the routes can be read and recorded again"),
        );
        // A look that failed is repeated soon.
        let has_seen_routes = self.noted_at.is_none_or(|noted_at| noted_at.elapsed() >= LOOK_EVERY_TOLD);
        let is_told = self.seen.borrow().is_some() && has_seen_routes;
        if succeeded && is_told { LOOK_EVERY_TOLD } else { LOOK_EVERY }
    }

    async fn woken(&mut self) {
        tokio::select! {
            Ok(()) = self.changes.changed() => {}
            Ok(()) = self.seen.changed() => {}
            // Nothing changes any more.
            else => std::future::pending().await,
        }
    }
}

/// Notes which routes have a listener here, and says so when there are none. `loading` is how many plugins may yet bring some.
pub(crate) async fn note(store: &dyn Store, listeners: &Listeners, loading: usize) -> Result<(), StoreError> {
    let routes = listeners.routes();
    match (routes.is_empty(), loading) {
        (false, _) => {}
        (true, 0) => {
            tracing::warn!(
                "this host has no listener: it parks the events that are due until it has one, or another host has one"
            );
        }
        (true, 1) => tracing::info!("1 plugin is still loading; events that are due wait until it serves"),
        (true, loading) => tracing::info!("{loading} plugins are still loading; events that are due wait until they serve"),
    }
    store.remember_routes(&listeners.own_routes(), &listeners.relays()).await
}

/// Learns which routes are paused, and which have a listener in any host or had one and were not forgotten since.
pub(crate) async fn learn(store: &dyn Store, listeners: &Listeners) -> Result<(), StoreError> {
    Answer::read(store, listeners).await?.apply(listeners);
    Ok(())
}

/// The table of routes, as one query returned it. The poller and the route keeper may query it at the same time.
struct Answer {
    /// The number of the query.
    query: u64,
    routes: Vec<RouteRecord>,
}

impl Answer {
    async fn read(store: &dyn Store, listeners: &Listeners) -> Result<Self, StoreError> {
        let query = listeners.number_route_query();
        Ok(Self { query, routes: store.routes().await? })
    }

    /// Changes nothing if the answer to a later query was applied already.
    fn apply(self, listeners: &Listeners) {
        listeners.apply_route_query(self.query, || {
            listeners.set_paused(paused(&self.routes));
            let answered = self.routes.into_iter().filter(|known| known.first_seen_at.is_some());
            let (relayed, own): (Vec<RouteRecord>, Vec<RouteRecord>) = answered.partition(|known| known.only_relayed);
            let names = |routes: Vec<RouteRecord>| routes.into_iter().map(|known| known.route);
            listeners.set_recorded(names(own), names(relayed));
        });
    }
}

/// The paused routes, each with what its events are parked with.
fn paused(routes: &[RouteRecord]) -> HashMap<Route, String> {
    routes.iter().filter(|known| known.paused_at.is_some()).map(|known| (known.route.clone(), reason(known))).collect()
}

/// What events are parked with while this route is paused.
pub(crate) fn reason(known: &RouteRecord) -> String {
    let by = known.paused_by.as_deref().map_or_else(String::new, |by| format!(" by {by}"));
    let why = known.pause_reason.as_deref().map_or_else(String::new, |why| format!(": {why}"));
    format!("the route {} is paused{by}{why}", known.route)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::system_clock;

    #[test]
    fn answer_to_an_earlier_query_undoes_no_pause_and_forgets_no_route() {
        let listeners = Listeners::default();
        let route = Route::new("Order", "OrderPlaced").expect("valid");
        let mut known = RouteRecord::new(route.clone());
        known.first_seen_at = Some(system_clock().now());
        known.paused_at = known.first_seen_at;
        let [earlier, later] = [(); 2].map(|()| listeners.number_route_query());

        Answer { query: later, routes: vec![known] }.apply(&listeners);
        Answer { query: earlier, routes: Vec::new() }.apply(&listeners);

        assert!(listeners.paused(&route).is_some());
        assert!(listeners.is_remembered(&route));
        let after = listeners.number_route_query();
        Answer { query: after, routes: Vec::new() }.apply(&listeners);
        assert!(listeners.paused(&route).is_none());
    }
}
