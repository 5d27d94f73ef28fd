//! Decides whether a claimed event is delivered or settled, before any listener is called.

use std::time::Duration;

use super::Intake;
use crate::event::{Event, Route};
use crate::poller::HOSTS_GONE;
use crate::routes;
use crate::settlement::{given_back_for, unknown_route, waits};
use crate::settler::Died;
use crate::store::{Claimed, Due, Settlement};

/// Whether the listeners of other hosts are known for the routes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Routes {
    /// Each route has a listener here, or waits for one.
    Answered,
    /// The routes of other hosts were read from the table.
    Known,
    /// The routes of other hosts could not be read.
    Unknown,
}

/// The decision on a claimed event.
pub(super) enum Judged {
    /// It is delivered.
    Wanted(Event),
    /// It is settled at once. The event is `Some` if it is dead and could be read.
    Settled(Settlement, Option<Event>),
}

impl Intake {
    /// Decides on a claimed event.
    pub(super) fn judge(&self, claim: Claimed, routes: Routes) -> Judged {
        let event = match claim.event {
            Ok(event) => event,
            Err(why) => return Judged::Settled(self.rules.unreadable(why), None),
        };
        let waited = match claim.due {
            Due::In(after) => return Judged::Settled(given_back_for(after), None),
            Due::Expired => return Judged::Settled(self.rules.expired(), Some(event)),
            Due::Since(waited) => waited,
        };
        if let Some(dead) = self.rules.stopped_its_host(claim.starts) {
            return Judged::Settled(dead, Some(event));
        }
        match self.awaits_listener(event.route(), waited, routes) {
            Some(settlement) => Judged::Settled(settlement, None),
            None => Judged::Wanted(event),
        }
    }

    /// The settlement of an event that has no listener and must not be given up yet. `None` for any other event.
    fn awaits_listener(&self, route: &Route, waited: Duration, routes: Routes) -> Option<Settlement> {
        // An event of a paused route goes to a worker, which parks it, with or without a listener.
        let is_paused = || self.listeners.paused(route).is_some();
        if routes == Routes::Answered || !self.listeners.gives_up_any([route].into_iter()) || is_paused() {
            return None;
        }
        if routes == Routes::Unknown {
            return Some(unknown_route());
        }
        // A host that starts after an outage finds old events, and its listeners may be registered one by one.
        let rest = self.rules.rest_without_listener(waited.min(self.listeners.unchanged_for()))?;
        Some(waits(rest, self.rules.awaited(&self.listeners.unroutable(route))))
    }

    /// Whether an event that has been due for `waited` goes to a worker, which gives it up if it has no listener.
    pub(super) fn may_go_on(&self, route: &Route, waited: Duration, routes: Routes) -> bool {
        self.awaits_listener(route, waited, routes).is_none()
    }

    /// Logs and counts an event that died before any listener was called. `event` is `None` if it cannot be read.
    pub(super) fn log_dead(&self, sequence: u64, event: Option<&Event>, settlement: &Settlement) {
        let Settlement::Dead { error, .. } = settlement else { return };
        let Some(event) = event else {
            self.settler.failures().log_unreadable(sequence, error);
            self.metrics.routes.other().count_outcome(settlement);
            return;
        };
        let listener = self.listeners.find(event.route());
        let died = if listener.is_some() { Died::Uncalled } else { Died::Unroutable };
        self.settler.failures().log_dead_event(event, error, died);
        match listener {
            Some(entry) => entry.route_totals().count_outcome(settlement),
            None => self.metrics.routes.other().count_outcome(settlement),
        }
    }

    /// Reads from the table which routes have a listener in any host, before an event without a listener here is given up: another host may
    /// have started a moment ago.
    pub(super) async fn ask_for_routes(&self, claimed: impl Iterator<Item = &Claimed>) -> Routes {
        let routes = claimed.filter_map(|claim| claim.event.as_ref().ok()).map(|event| event.route());
        if !self.listeners.gives_up_any(routes) {
            return Routes::Answered;
        }
        let learned = routes::learn(&*self.store, &self.listeners).await;
        match learned.inspect_err(|error| self.metrics.db_error(error)) {
            Ok(_) => Routes::Known,
            Err(_) => Routes::Unknown,
        }
    }
}

/// Whether no other listener may run during the call for this event.
pub(super) fn is_delivered_alone(claim: &Claimed) -> bool {
    stops_hosts(claim.claims, claim.starts)
}

/// Whether an event with this many claims and starts since its last outcome may stop its host.
pub(super) fn stops_hosts(claims: u32, starts: u32) -> bool {
    claims > HOSTS_GONE || starts > 0
}
