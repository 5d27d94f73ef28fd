//! Which listener answers which route.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use outbox_event::wording::did_you_mean;
use outbox_event::{AggregateType, Owner, Route};
use tokio::sync::watch;
use tokio::time::Instant;

use super::breakers::{BreakerOf, Breakers};
use super::progress::{Progress, Stall};
use super::totals::{CallTotals, Calls, RouteTotals, Routes};
use super::unroutable::{HAD_LISTENER, NO_LISTENER_AT_ALL, no_listener};
use super::{BreakerConfig, CallLimit, Registration};

/// A registered listener, with what is remembered of its calls.
pub struct RegistryEntry {
    /// The listener and how it wants to be called.
    pub registration: Registration,
    /// Who registered it.
    pub owner: Owner,
    /// What its last calls came to.
    breakers: Breakers,
    /// Whether its events get anywhere on this host.
    progress: Progress,
    /// How many calls at once it may have; `None` for any number.
    #[doc(hidden)] // for the host
    pub call_limit: Option<CallLimit>,
    /// What the calls of all listeners of this owner cost.
    #[doc(hidden)] // for the host
    pub totals: Arc<CallTotals>,
    routes: Arc<Routes>,
    /// Looked up once.
    route_totals: OnceLock<Arc<RouteTotals>>,
}

impl RegistryEntry {
    /// The breaker for events of this route, which its own route is or covers.
    #[doc(hidden)] // for the host
    pub fn breaker(&self, route: &Route, now: Instant) -> BreakerOf<'_> {
        self.breakers.of(route, now)
    }

    /// Whether it is paused for events of this route.
    #[must_use]
    pub fn is_paused(&self, route: &Route, now: Instant) -> bool {
        self.breakers.of(route, now).is_open(now)
    }

    /// Notes that it answered an event, whatever the answer was.
    #[doc(hidden)] // for the host
    pub fn answered(&self) {
        self.progress.answered();
    }

    /// Notes that an event was given back, since this host cannot have it answered: the breaker is open, or a sink is down. Of a plugin
    /// this says nothing of the host: a plugin breaks by its own fault, and must not move the events of others.
    #[doc(hidden)] // for the host
    pub fn gave_back(&self, reason: &str, now: Instant) {
        if !matches!(self.owner, Owner::Plugin(_)) {
            self.progress.gave_back(reason, now);
        }
    }

    /// What became of the events that it answers; a relay's pattern counts as one route. Asked for at the first event: a plugin
    /// that names a thousand routes takes no label from the routes that have events, though they are shown while there is room.
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
    /// Who has it.
    pub holder: Owner,
    /// Who wanted it.
    pub newcomer: Owner,
}

type Table = HashMap<Route, Arc<RegistryEntry>, foldhash::fast::RandomState>;

/// Route → listener. Read by every event without a lock; changed as a whole, so no event ever sees half a change.
#[derive(Debug)]
pub struct Listeners {
    table: ArcSwap<Table>,
    /// Who answers a route that is not in the table, by pattern: the most exact first.
    relays: ArcSwap<Vec<Arc<RegistryEntry>>>,
    /// Serialises changes, and remembers every route that ever had a listener: events of such a route are parked, not killed.
    remembered: Mutex<BTreeSet<Route>>,
    version: watch::Sender<u64>,
    /// When a listener last came or went.
    changed_at: ArcSwap<Instant>,
    /// Routes that somebody paused, with what to say of it.
    paused: ArcSwap<HashMap<Route, String>>,
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
            version: watch::Sender::new(0),
            changed_at: ArcSwap::from_pointee(Instant::now()),
            paused: ArcSwap::default(),
            incomplete: ArcSwapOption::empty(),
            breaker: BreakerConfig::default(),
            calls: Arc::default(),
            routes: Arc::default(),
        }
    }
}

impl Listeners {
    /// No listeners yet; those to come are paused by this rule unless they have their own.
    #[must_use]
    #[doc(hidden)] // for the host
    pub fn with_breaker(breaker: BreakerConfig) -> Self {
        Self { breaker, ..Self::default() }
    }

    /// The same listeners, which count the costs of calls and the results of events in these totals.
    #[must_use]
    #[doc(hidden)] // for the host
    pub fn counting_in(self, calls: Arc<Calls>, routes: Arc<Routes>) -> Self {
        Self { calls, routes, ..self }
    }

    /// What is counted of one owner of listeners, whether it has any or not.
    #[doc(hidden)] // for the host
    pub fn totals_of(&self, owner: &Owner) -> Arc<CallTotals> {
        self.calls.of(owner)
    }

    /// The listener of a route: the one that is registered for it, or else the relay with the most exact pattern. A pattern leaves
    /// a route alone that had a listener of its own, here or in another host: its events wait for that. An operator who wants them
    /// relayed for good names the route exactly.
    #[must_use]
    pub fn find(&self, route: &Route) -> Option<Arc<RegistryEntry>> {
        self.registered(route).or_else(|| self.relay(route))
    }

    /// The listener that is registered for a route, whatever relays there are.
    #[must_use]
    pub fn registered(&self, route: &Route) -> Option<Arc<RegistryEntry>> {
        self.table.load().get(route).cloned()
    }

    fn relay(&self, route: &Route) -> Option<Arc<RegistryEntry>> {
        let relays = self.relays.load();
        let relay = relays.iter().find(|relay| relay.registration.route.covers(route))?;
        let had_its_own = || {
            let remembered = self.remembered.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            remembered.contains(route)
        };
        (!relay.registration.route.is_pattern() || !had_its_own()).then(|| relay.clone())
    }

    /// The routes and patterns of the relays, the most exact first.
    #[doc(hidden)] // for the host
    pub fn relays(&self) -> Vec<Route> {
        self.relays.load().iter().map(|relay| relay.registration.route.clone()).collect()
    }

    /// Makes these all relays: their routes are patterns, and a listener that is registered for a route goes before them.
    ///
    /// # Errors
    /// When a pattern is given twice. Then nothing has changed.
    #[doc(hidden)] // for the host
    pub fn set_relays(&self, relays: Vec<(Owner, Registration)>) -> Result<(), RouteConflict> {
        let mut remembered = self.remembered.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut entries: Vec<Arc<RegistryEntry>> = Vec::with_capacity(relays.len());
        for (owner, registration) in relays {
            let route = registration.route.clone();
            if let Some(holder) = entries.iter().find(|entry| entry.registration.route == route) {
                return Err(RouteConflict { route, holder: holder.owner.clone(), newcomer: owner });
            }
            entries.push(Arc::new(self.entry(owner, registration)));
        }
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.registration.route.exactness()));
        remembered.extend(entries.iter().map(|entry| entry.registration.route.clone()));
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

    /// Makes `registrations` everything that `owner` answers, in one step: what it answered before and no longer does is gone,
    /// what stays is swapped.
    ///
    /// # Errors
    /// When somebody else answers one of the routes, or one is given twice. Then nothing has changed.
    pub fn replace(&self, owner: impl Into<Owner>, registrations: Vec<Registration>) -> Result<(), RouteConflict> {
        self.replace_all([(owner.into(), registrations)])
    }

    /// [`replace`](Self::replace) for several owners in one step, so that a route that goes from one of them to another is
    /// never without a listener.
    ///
    /// # Errors
    /// When somebody else answers one of the routes, or one is given twice. Then nothing has changed.
    pub fn replace_all(&self, changes: impl IntoIterator<Item = (Owner, Vec<Registration>)>) -> Result<(), RouteConflict> {
        let changes: Vec<(Owner, Vec<Registration>)> = changes.into_iter().collect();
        let mut remembered = self.remembered.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
        // The name of a plugin's route must not become a pattern, for which every host would park events.
        remembered.extend(table.keys().filter(|route| !route.is_pattern()).cloned());
        self.table.store(Arc::new(table));
        drop(remembered);
        self.changed();
        Ok(())
    }

    /// Adds one listener to what `owner` answers.
    ///
    /// # Errors
    /// When somebody answers the route already. Then nothing has changed.
    pub fn add(&self, owner: impl Into<Owner>, registration: Registration) -> Result<(), RouteConflict> {
        let owner = owner.into();
        let mut registrations: Vec<Registration> =
            self.table.load().values().filter(|entry| entry.owner == owner).map(|entry| entry.registration.clone()).collect();
        registrations.push(registration);
        self.replace(owner, registrations)
    }

    /// Takes away everything that `owner` answers. Events of its routes are parked until somebody answers them again.
    pub fn remove(&self, owner: impl Into<Owner>) {
        self.replace(owner, Vec::new()).expect("nothing is added, so nothing conflicts");
    }

    /// Remembers routes that had a listener in an earlier life of the host.
    #[doc(hidden)] // for the host
    pub fn remember(&self, routes: impl IntoIterator<Item = Route>) {
        self.remembered.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(routes);
    }

    /// Whether the route ever had a listener, or a relay whose pattern covers it.
    #[must_use]
    #[doc(hidden)] // for the host
    pub fn is_remembered(&self, route: &Route) -> bool {
        let remembered = self.remembered.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        remembered.contains(route) || remembered.iter().any(|known| known.is_pattern() && known.covers(route))
    }

    /// Says why routes may be missing: a plugin did not load, or is still being loaded, and nobody knows yet what it answers.
    /// `None` when none is missing.
    pub fn set_incomplete(&self, why: Option<String>) {
        self.incomplete.store(why.map(Arc::new));
    }

    /// Why events of a route that nobody answers here wait for a listener; `None` when there is no reason to wait.
    #[must_use]
    pub fn awaited(&self, route: &Route) -> Option<String> {
        let incomplete = self.incomplete.load();
        if self.is_remembered(route) {
            // Which of the two it is, nobody can say who does not know what the plugin would answer.
            let here = incomplete.as_ref().map_or_else(String::new, |why| format!("; here {why}"));
            return Some(format!("{HAD_LISTENER}{here}"));
        }
        if let Some(why) = &*incomplete {
            return Some(why.to_string());
        }
        let is_empty = self.table.load().is_empty() && self.relays.load().is_empty();
        is_empty.then(|| NO_LISTENER_AT_ALL.to_owned())
    }

    /// Whether events of any of these routes would be given up: nobody answers it, and there is no reason to wait.
    #[doc(hidden)] // for the host
    pub fn gives_up_any<'r>(&self, mut routes: impl Iterator<Item = &'r Route>) -> bool {
        routes.any(|route| self.find(route).is_none() && self.awaited(route).is_none())
    }

    /// The longest deadline that a listener has of its own; `None` when none has any.
    #[doc(hidden)] // for the host
    pub fn longest_deadline(&self) -> Option<Duration> {
        let (table, relays) = (self.table.load(), self.relays.load());
        table.values().chain(relays.iter()).filter_map(|entry| entry.registration.deadline).max()
    }

    /// The routes that are answered now, sorted; those of relays as the patterns that they are.
    #[must_use]
    pub fn routes(&self) -> Vec<Route> {
        let (table, relays) = (self.table.load(), self.relays.load());
        let registered = table.keys().filter(|route| !route.is_pattern()).cloned();
        let mut routes: Vec<Route> = registered.chain(relays.iter().map(|relay| relay.registration.route.clone())).collect();
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

    /// Stands for all listeners and their routes: equal on hosts that can deliver the same.
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

    /// The listeners whose last events were all given back, sorted by their routes or patterns.
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

    /// The routes whose listeners share the places of these names; without patterns.
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

    /// Whether any relay answers more than one route, so that nobody can list the routes that are answered.
    #[must_use]
    #[doc(hidden)] // for the host
    pub fn has_patterns(&self) -> bool {
        self.relays.load().iter().any(|relay| relay.registration.route.is_pattern())
    }

    /// Pauses these routes and no others, each with what to say of it. True when that changed something.
    pub fn set_paused(&self, paused: HashMap<Route, String>) -> bool {
        if **self.paused.load() == paused {
            return false;
        }
        self.paused.store(Arc::new(paused));
        self.version.send_modify(|version| *version += 1);
        true
    }

    /// Why a route is paused, itself or by a pattern that covers it; `None` when it is not.
    #[must_use]
    pub fn paused(&self, route: &Route) -> Option<String> {
        let paused = self.paused.load();
        // Nearly always: nothing to hash.
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

    /// How long ago a listener last came or went; since the start, if none did.
    #[doc(hidden)] // for the host
    #[must_use]
    pub fn unchanged_for(&self) -> Duration {
        self.changed_at.load().elapsed()
    }

    /// Tells of every change: the number grows. What is there now has been told already.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Why nobody answers a route, with the names that may have been meant: a few letters differ, or the aggregate type alone.
    #[must_use]
    pub fn unroutable(&self, route: &Route) -> String {
        let routes = self.routes();
        let near = route.near(&routes);
        let hint = match near.as_slice() {
            [] => match self.table.load().len() {
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
