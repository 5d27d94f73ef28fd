//! Which listener answers which route.

mod remembered;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use outbox_event::wording::did_you_mean;
use outbox_event::{AggregateType, Owner, Route};
use tokio::sync::watch;
use tokio::time::Instant;

use remembered::{AnsweredBy, Remembered};

use super::breakers::{BreakerOf, Breakers};
use super::progress::{Progress, Stall};
use super::totals::{CallTotals, Calls, RouteTotals, Routes};
use super::unroutable::{HAD_LISTENER, NO_LISTENER_AT_ALL, no_listener};
use super::{BreakerConfig, BreakerPause, CallLimit, Registration};

/// A registered listener, with the state of its calls.
pub struct RegistryEntry {
    /// The listener, and how it is called.
    pub registration: Registration,
    /// The owner that registered it.
    pub owner: Owner,
    /// The circuit breakers, which count how its calls end.
    breakers: Breakers,
    /// Whether this host makes progress with its events.
    progress: Progress,
    /// The limit on its concurrent calls; `None` for no limit.
    #[doc(hidden)] // for the host
    pub call_limit: Option<CallLimit>,
    /// The cost of the calls of all listeners of this owner.
    #[doc(hidden)] // for the host
    pub totals: Arc<CallTotals>,
    routes: Arc<Routes>,
    /// Looked up at the first event.
    route_totals: OnceLock<Arc<RouteTotals>>,
}

impl RegistryEntry {
    /// The breaker for events of this route. The listener's own route is this route, or a pattern that covers it.
    #[doc(hidden)] // for the host
    pub fn breaker(&self, route: &Route, now: Instant) -> BreakerOf<'_> {
        self.breakers.of(route, now)
    }

    /// Whether its breaker for events of this route is open, and no trial is due yet.
    #[must_use]
    pub fn has_open_breaker(&self, route: &Route, now: Instant) -> bool {
        self.breakers.of(route, now).is_open(now)
    }

    /// Notes that it answered an event for this destination, whatever the answer was.
    #[doc(hidden)] // for the host
    pub fn answered(&self, destination: Option<u64>) {
        self.progress.succeeded(destination);
    }

    /// Notes that an event was given back, because the listener cannot answer it on this host now: the breaker is open, a sink is down, or
    /// the destination of the event is unavailable; `None` if the reason concerns all events. Ignored for a plugin: it breaks by its own
    /// fault, which must not move the events of other listeners to other hosts.
    #[doc(hidden)] // for the host
    pub fn gave_back(&self, destination: Option<u64>, reason: &str, now: Instant) {
        if !matches!(self.owner, Owner::Plugin(_)) {
            self.progress.failed(destination, reason, now);
        }
    }

    /// The totals of the events that it answers; a relay's pattern counts as one route. Looked up at the first event: a plugin with a
    /// thousand routes must not take the labels of routes that have events. Routes without events are shown while there is capacity.
    #[doc(hidden)] // for the host
    pub fn route_totals(&self) -> &RouteTotals {
        self.route_totals.get_or_init(|| self.routes.of(&self.registration.route))
    }
}

impl std::fmt::Debug for RegistryEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistryEntry")
            .field("route", &self.registration.route)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

/// Two listeners for one route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("route {route} is already answered by {holder}; {newcomer} cannot answer it too: one listener each")]
pub struct RouteConflict {
    /// The route.
    pub route: Route,
    /// The owner that has it.
    pub holder: Owner,
    /// The owner that wanted it.
    pub newcomer: Owner,
}

type Table = HashMap<Route, Arc<RegistryEntry>, foldhash::fast::RandomState>;

/// Maps each route to its listener. Finding a registered listener takes no lock. If a relay's pattern covers the route, the event takes two
/// short locks: on the remembered routes, and on the breakers of the pattern. A change replaces the whole table, so no event sees a part
/// of a change.
#[derive(Debug)]
pub struct Listeners {
    table: ArcSwap<Table>,
    /// The relays, which answer by pattern the routes that are not in the table. The most exact pattern is first.
    relays: ArcSwap<Vec<Arc<RegistryEntry>>>,
    /// The routes that had a listener. Its lock serializes changes of the table and the relays.
    remembered: Mutex<Remembered>,
    /// How many queries of the table of routes were numbered.
    route_queries: AtomicU64,
    /// The number of the last query whose answer was applied.
    applied_query: Mutex<u64>,
    version: watch::Sender<u64>,
    /// When a listener was last added or removed.
    changed_at: ArcSwap<Instant>,
    /// The paused routes, each with its reason.
    paused: ArcSwap<HashMap<Route, String>>,
    /// Why routes lost their listener; see [`Listeners::note_given_up`].
    given_up: Mutex<HashMap<Route, String>>,
    /// Why routes may be missing here; see [`Listeners::set_incomplete`].
    incomplete: ArcSwapOption<String>,
    /// For listeners without a rule of their own.
    breaker: BreakerConfig,
    calls: Arc<Calls>,
    routes: Arc<Routes>,
}

impl Default for Listeners {
    fn default() -> Self {
        Self {
            table: ArcSwap::default(),
            relays: ArcSwap::default(),
            remembered: Mutex::default(),
            route_queries: AtomicU64::default(),
            applied_query: Mutex::default(),
            version: watch::Sender::new(0),
            changed_at: ArcSwap::from_pointee(Instant::now()),
            paused: ArcSwap::default(),
            given_up: Mutex::default(),
            incomplete: ArcSwapOption::empty(),
            breaker: BreakerConfig::default(),
            calls: Arc::default(),
            routes: Arc::default(),
        }
    }
}

impl Listeners {
    /// An empty registry. Listeners without a breaker of their own use this one.
    #[must_use]
    #[doc(hidden)] // for the host
    pub fn with_breaker(breaker: BreakerConfig) -> Self {
        Self { breaker, ..Self::default() }
    }

    /// Counts the costs of calls and the results of events in these totals.
    #[must_use]
    #[doc(hidden)] // for the host
    pub fn counting_in(self, calls: Arc<Calls>, routes: Arc<Routes>) -> Self {
        Self { calls, routes, ..self }
    }

    /// The totals of one owner, even if it has no listeners.
    #[doc(hidden)] // for the host
    pub fn totals_of(&self, owner: &Owner) -> Arc<CallTotals> {
        self.calls.of(owner)
    }

    /// The listener of a route: the one that is registered for it, or else the relay with the most exact pattern. A pattern does not apply
    /// to a route that had a listener of its own, here or in another host: its events wait for that listener. To relay them permanently, an
    /// operator names the route exactly.
    #[must_use]
    pub fn find(&self, route: &Route) -> Option<Arc<RegistryEntry>> {
        self.registered(route).or_else(|| self.relay(route))
    }

    /// The listener that is registered for a route. Ignores relays.
    #[must_use]
    pub fn registered(&self, route: &Route) -> Option<Arc<RegistryEntry>> {
        self.table.load().get(route).cloned()
    }

    fn relay(&self, route: &Route) -> Option<Arc<RegistryEntry>> {
        let relays = self.relays.load();
        let relay = relays.iter().find(|relay| relay.registration.route.covers(route))?;
        let had_its_own = || self.remembered().answered_by(route) == Some(AnsweredBy::OwnListener);
        (!relay.registration.route.is_pattern() || !had_its_own()).then(|| relay.clone())
    }

    /// The routes and patterns of the relays, the most exact first.
    #[doc(hidden)] // for the host
    pub fn relays(&self) -> Vec<Route> {
        self.relays.load().iter().map(|relay| relay.registration.route.clone()).collect()
    }

    /// Replaces all relays. Their routes may be patterns; a listener that is registered for a route takes precedence.
    ///
    /// # Errors
    /// If a pattern is given twice. Then nothing has changed.
    #[doc(hidden)] // for the host
    pub fn set_relays(&self, relays: Vec<(Owner, Registration)>) -> Result<(), RouteConflict> {
        let mut remembered = self.remembered();
        let mut entries: Vec<Arc<RegistryEntry>> = Vec::with_capacity(relays.len());
        for (owner, registration) in relays {
            let route = registration.route.clone();
            if let Some(holder) = entries.iter().find(|entry| entry.registration.route == route) {
                return Err(RouteConflict { route, holder: holder.owner.clone(), newcomer: owner });
            }
            entries.push(Arc::new(self.entry(owner, registration)));
        }
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.registration.route.exactness()));
        let routes = entries.iter().map(|entry| entry.registration.route.clone());
        remembered.answer(routes, AnsweredBy::OnlyRelays);
        self.relays.store(Arc::new(entries));
        drop(remembered);
        self.changed();
        Ok(())
    }

    fn entry(&self, owner: Owner, registration: Registration) -> RegistryEntry {
        self.routes.announce(&registration.route);
        RegistryEntry {
            breakers: Breakers::new(&registration.route, registration.breaker.unwrap_or(self.breaker)),
            progress: Progress::default(),
            call_limit: CallLimit::of(&registration, &owner),
            totals: self.calls.of(&owner),
            routes: self.routes.clone(),
            route_totals: OnceLock::new(),
            registration,
            owner,
        }
    }

    /// Replaces everything that `owner` answers by `registrations`, in one step. Its other routes are removed.
    ///
    /// # Errors
    /// If another owner answers one of the routes, or a route is given twice. Then nothing has changed.
    pub fn replace(&self, owner: impl Into<Owner>, registrations: Vec<Registration>) -> Result<(), RouteConflict> {
        self.replace_all([(owner.into(), registrations)])
    }

    /// [`replace`](Self::replace) for several owners in one step, so that a route that moves from one of them to another is never without a
    /// listener.
    ///
    /// # Errors
    /// If another owner answers one of the routes, or a route is given twice. Then nothing has changed.
    pub fn replace_all(&self, changes: impl IntoIterator<Item = (Owner, Vec<Registration>)>) -> Result<(), RouteConflict> {
        let changes: Vec<(Owner, Vec<Registration>)> = changes.into_iter().collect();
        let mut remembered = self.remembered();
        let mut table: Table = (**self.table.load()).clone();
        table.retain(|_, entry| changes.iter().all(|(owner, _)| entry.owner != *owner));
        for (owner, registrations) in changes {
            for registration in registrations {
                let route = registration.route.clone();
                if let Some(holder) = table.get(&route) {
                    return Err(RouteConflict { route, holder: holder.owner.clone(), newcomer: owner });
                }
                table.insert(route, Arc::new(self.entry(owner.clone(), registration)));
            }
        }
        self.given_up().retain(|route, _| !table.contains_key(route));
        // The name of a plugin's route must not become a pattern, for which every host would park events.
        remembered.answer(table.keys().filter(|route| !route.is_pattern()).cloned(), AnsweredBy::OwnListener);
        self.table.store(Arc::new(table));
        drop(remembered);
        self.changed();
        Ok(())
    }

    /// Adds one listener to what `owner` answers.
    ///
    /// # Errors
    /// If the route is answered already. Then nothing has changed.
    pub fn add(&self, owner: impl Into<Owner>, registration: Registration) -> Result<(), RouteConflict> {
        let owner = owner.into();
        let mut registrations: Vec<Registration> =
            self.table.load().values().filter(|entry| entry.owner == owner).map(|entry| entry.registration.clone()).collect();
        registrations.push(registration);
        self.replace(owner, registrations)
    }

    /// Removes everything that `owner` answers. Events of its routes are parked until a listener answers them again.
    pub fn remove(&self, owner: impl Into<Owner>) {
        self.replace(owner, Vec::new()).expect("nothing is added, so nothing conflicts");
    }

    /// Numbers a query of the table of routes. Call it before the query: the answer has everything that was committed until then.
    #[doc(hidden)] // for the host
    pub fn number_route_query(&self) -> u64 {
        self.route_queries.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Applies the answer to a query, unless the answer to a later query was applied already: that one is at least as new.
    #[doc(hidden)] // for the host
    pub fn apply_route_query(&self, number: u64, apply: impl FnOnce()) {
        let mut applied = self.applied_query.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if number > *applied {
            apply();
            *applied = number;
        }
    }

    /// Replaces what the table of routes says: `own` had a listener of their own in some host, and only relays answered `relayed`, which
    /// may be patterns. A route that the table had and has lost is forgotten, unless a listener answers it here.
    #[doc(hidden)] // for the host
    pub fn set_recorded(&self, own: impl IntoIterator<Item = Route>, relayed: impl IntoIterator<Item = Route>) {
        let mut remembered = self.remembered();
        let (table, relays) = (self.table.load(), self.relays.load());
        let relayed_here = |route: &Route| relays.iter().any(|relay| relay.registration.route == *route);
        remembered.replace_recorded(own, relayed, |route| table.contains_key(route) || relayed_here(route));
        self.given_up().retain(|route, _| table.contains_key(route) || remembered.answered_by(route).is_some());
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether the route had a listener, or a relay whose pattern covers it, and was not forgotten since.
    #[must_use]
    #[doc(hidden)] // for the host
    pub fn is_remembered(&self, route: &Route) -> bool {
        self.remembered().has(route)
    }

    /// Sets why routes may be missing: a plugin did not load or is still loading, and its routes are unknown. `None` if no route is
    /// missing.
    pub fn set_incomplete(&self, why: Option<String>) {
        self.incomplete.store(why.map(Arc::new));
    }

    /// Notes why routes are about to lose their listener. This is why their events wait, until a listener is registered for the route
    /// or the route is forgotten.
    #[doc(hidden)] // for the host
    pub fn note_given_up(&self, routes: impl IntoIterator<Item = (Route, String)>) {
        self.given_up().extend(routes);
    }

    fn given_up(&self) -> MutexGuard<'_, HashMap<Route, String>> {
        self.given_up.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Why events of a route without a listener here wait for one. `None` if there is no reason to wait.
    #[must_use]
    pub fn awaited(&self, route: &Route) -> Option<String> {
        let given_up = self.given_up().get(route).cloned();
        if given_up.is_some() {
            return given_up;
        }
        let incomplete = self.incomplete.load();
        if self.is_remembered(route) {
            // Both reasons may apply: the routes of a plugin that did not load are unknown.
            let here = incomplete.as_ref().map_or_else(String::new, |why| format!("; here {why}"));
            return Some(format!("{HAD_LISTENER}{here}"));
        }
        if let Some(why) = &*incomplete {
            return Some(why.to_string());
        }
        let is_empty = self.table.load().is_empty() && self.relays.load().is_empty();
        is_empty.then(|| NO_LISTENER_AT_ALL.to_owned())
    }

    /// Whether events of any of these routes would be given up: no listener answers it, and there is no reason to wait.
    #[doc(hidden)] // for the host
    pub fn gives_up_any<'r>(&self, mut routes: impl Iterator<Item = &'r Route>) -> bool {
        routes.any(|route| self.find(route).is_none() && self.awaited(route).is_none())
    }

    /// The longest deadline that a listener sets for itself. `None` if no listener sets one.
    #[doc(hidden)] // for the host
    pub fn longest_deadline(&self) -> Option<Duration> {
        let (table, relays) = (self.table.load(), self.relays.load());
        table.values().chain(relays.iter()).filter_map(|entry| entry.registration.deadline).max()
    }

    /// The routes that have a listener of their own now, sorted.
    #[must_use]
    #[doc(hidden)] // for the host
    pub fn own_routes(&self) -> Vec<Route> {
        let mut routes: Vec<Route> = self.table.load().keys().filter(|route| !route.is_pattern()).cloned().collect();
        routes.sort();
        routes
    }

    /// The routes that are answered now, sorted. Relays appear as their patterns.
    #[must_use]
    pub fn routes(&self) -> Vec<Route> {
        let mut routes = self.own_routes();
        routes.extend(self.relays());
        routes.sort();
        routes.dedup();
        routes
    }

    /// The routes that are answered now and not paused, sorted; without patterns.
    #[must_use]
    #[doc(hidden)] // for the host
    pub fn open_routes(&self) -> Vec<Route> {
        let mut routes = self.routes();
        routes.retain(|route| !route.is_pattern() && self.paused(route).is_none());
        routes
    }

    /// A digest of all listeners and their routes: equal on hosts that can deliver the same events.
    #[doc(hidden)] // for the host
    #[must_use]
    pub fn digest(&self) -> String {
        let (table, relays) = (self.table.load(), self.relays.load());
        let all = table.values().chain(relays.iter());
        let mut named: Vec<_> = all.map(|entry| (entry.registration.route.clone(), entry.owner.to_string())).collect();
        named.sort();
        let mut hasher = DefaultHasher::new();
        named.hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    /// The listeners whose last events, or those for one destination, were all given back; sorted by their routes or patterns.
    #[doc(hidden)] // for the host
    pub fn stalls(&self, now: Instant) -> Vec<(Route, Owner, Stall)> {
        let (table, relays) = (self.table.load(), self.relays.load());
        let stall = |entry: &Arc<RegistryEntry>| {
            let stall = entry.progress.stall(now)?;
            Some((entry.registration.route.clone(), entry.owner.clone(), stall))
        };
        let mut stalls: Vec<_> = table.values().chain(relays.iter()).filter_map(stall).collect();
        stalls.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        stalls
    }

    /// The breakers that are open, each with its route and listener; sorted by route. Skips a relay where another listener now answers
    /// the route: its breaker gets no trial, so it stays open.
    #[doc(hidden)] // for the host
    pub fn open_breakers(&self) -> Vec<(Route, Owner, BreakerPause)> {
        let (table, relays) = (self.table.load(), self.relays.load());
        let mut open = Vec::new();
        for entry in table.values().chain(relays.iter()) {
            let mut pauses = entry.breakers.open(&entry.registration.route);
            pauses.retain(|(route, _)| self.find(route).is_some_and(|found| Arc::ptr_eq(&found, entry)));
            open.extend(pauses.into_iter().map(|(route, pause)| (route, entry.owner.clone(), pause)));
        }
        open.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        open
    }

    /// The routes whose listeners share the call slots of these names; without patterns.
    #[doc(hidden)] // for the host
    pub fn routes_sharing(&self, names: &[Arc<str>]) -> Vec<Route> {
        if names.is_empty() {
            return Vec::new();
        }
        let (table, relays) = (self.table.load(), self.relays.load());
        let shares = |entry: &RegistryEntry| entry.call_limit.as_ref().is_some_and(|limit| names.contains(&limit.name));
        let listed = table.iter().filter(|(_, entry)| shares(entry)).map(|(route, _)| route.clone());
        let relayed = relays.iter().filter(|relay| shares(relay)).map(|relay| relay.registration.route.clone());
        listed.chain(relayed).filter(|route| !route.is_pattern()).collect()
    }

    /// Whether any relay answers more than one route, so that the answered routes cannot be listed.
    #[must_use]
    #[doc(hidden)] // for the host
    pub fn has_patterns(&self) -> bool {
        self.relays.load().iter().any(|relay| relay.registration.route.is_pattern())
    }

    /// Pauses these routes and no others, each with its reason. Returns whether that changed anything.
    pub fn set_paused(&self, paused: HashMap<Route, String>) -> bool {
        if **self.paused.load() == paused {
            return false;
        }
        self.paused.store(Arc::new(paused));
        self.version.send_modify(|version| *version += 1);
        true
    }

    /// Why a route is paused, itself or by a pattern that covers it. `None` if it is not paused.
    #[must_use]
    pub fn paused(&self, route: &Route) -> Option<String> {
        let paused = self.paused.load();
        // The usual case: nothing to hash.
        if paused.is_empty() {
            return None;
        }
        let patterns = paused.iter().filter(|(known, _)| known.is_pattern() && known.covers(route));
        let by_pattern = || patterns.max_by_key(|(known, _)| known.exactness()).map(|(_, why)| why);
        paused.get(route).or_else(by_pattern).cloned()
    }

    fn changed(&self) {
        self.changed_at.store(Arc::new(Instant::now()));
        self.version.send_modify(|version| *version += 1);
    }

    /// How long ago a listener was last added or removed; since the start if never.
    #[doc(hidden)] // for the host
    #[must_use]
    pub fn unchanged_for(&self) -> Duration {
        self.changed_at.load().elapsed()
    }

    /// Notifies of every change by a growing number. The present state counts as seen.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Why no listener answers a route, with the routes that may have been meant: a few letters differ, or only the aggregate type.
    #[must_use]
    pub fn unroutable(&self, route: &Route) -> String {
        let routes = self.routes();
        let near = route.near(&routes);
        let hint = match near.as_slice() {
            [] => match routes.len() {
                1 => "1 route is answered".to_owned(),
                routes => format!("{routes} routes are answered"),
            },
            near => {
                let is_same_type = near.iter().any(|known| known.event_type == route.event_type);
                let left_out = route.aggregate_type == AggregateType::global() && is_same_type;
                let asked = if left_out { "was the aggregate type left out? " } else { "" };
                let names: Vec<String> = near.iter().map(ToString::to_string).collect();
                format!("{asked}{}", did_you_mean(&names))
            }
        };
        no_listener(route, &hint)
    }
}

#[cfg(test)]
mod tests;
