//! What becomes of a claimed event before any listener is called.

use super::Intake;
use crate::event::Event;
use crate::poller::HOSTS_GONE;
use crate::routes;
use crate::settlement::{given_back_for, unknown_route};
use crate::settler::Died;
use crate::store::{Claimed, Due, Settlement};

/// What becomes of a claimed event.
pub(super) enum Judged {
    /// It is delivered.
    Wanted(Event),
    /// This is settled at once; with the event where it is dead and could be read.
    Settled(Settlement, Option<Event>),
}

impl Intake {
    /// Whether a claimed event is delivered.
    pub(super) fn judge(&self, claim: Claimed, routes_known: bool) -> Judged {
        let event = match claim.event {
            Ok(event) => event,
            Err(why) => return Judged::Settled(self.rules.unreadable(why), None),
        };
        match claim.due {
            Due::In(after) => return Judged::Settled(given_back_for(after), None),
            Due::Expired => return Judged::Settled(self.rules.expired(), Some(event)),
            Due::Now => {}
        }
        if let Some(dead) = self.rules.stopped_its_host(claim.starts) {
            return Judged::Settled(dead, Some(event));
        }
        if !routes_known && self.listeners.gives_up_any([event.route()].into_iter()) {
            return Judged::Settled(unknown_route(), None);
        }
        Judged::Wanted(event)
    }

    /// Logs and counts an event that is dead before any listener was called; `None` for one that cannot be read.
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

    /// Asks the table which routes have a listener in any host, before an event is given up because none is known here: another
    /// host may have started a moment ago. False when the table does not say.
    pub(super) async fn ask_for_routes(&self, claimed: impl Iterator<Item = &Claimed>) -> bool {
        let routes = claimed.filter_map(|claim| claim.event.as_ref().ok()).map(|event| event.route());
        if !self.listeners.gives_up_any(routes) {
            return true;
        }
        let learned = routes::learn(&*self.store, &self.listeners).await;
        learned.inspect_err(|error| self.metrics.db_error(error)).is_ok()
    }
}

/// Whether no other event may be with a listener while this one is.
pub(super) fn is_delivered_alone(claim: &Claimed) -> bool {
    stops_hosts(claim.claims, claim.starts)
}

/// Whether an event with this many claims and starts since its last outcome may stop its host.
pub(super) fn stops_hosts(claims: u32, starts: u32) -> bool {
    claims > HOSTS_GONE || starts > 0
}
