//! The third step: asks the interceptors and then the listener.

use tokio::time::Instant;

use super::begin::{Begun, give_back_paused};
use super::{Attempt, Target};
use crate::listener::{Cause, Failure, FailureKind, Outcome, RegistryEntry, Reply, waits_for_one};

/// The answer of the listener, or the outcome that replaces it.
pub(super) struct Answered {
    pub(super) reply: Reply,
    /// Whether the event waits for a listener of its route, or for the end of a pause.
    pub(super) awaits_listener: bool,
    /// Whether interceptors run after this answer. No interceptor does if one of them ended the attempt before the call.
    pub(super) is_intercepted: bool,
}

impl Attempt<'_> {
    /// `None` if the lease was lost, so that nothing may be written.
    pub(super) async fn answer(&self, begun: &Begun<'_>) -> Option<Answered> {
        if let Err(failure) = self.before(begun).await {
            let reply = Outcome::Failed(failure).into();
            return Some(Answered { reply, awaits_listener: false, is_intercepted: false });
        }
        let (reply, awaits_listener) = match &self.target {
            Target::Listener(entry) => (self.ask(entry, begun).await?, false),
            Target::Paused(reason) => (Outcome::Unroutable(reason.clone()).into(), true),
            Target::Missing => self.unroutable(),
        };
        Some(Answered { reply, awaits_listener, is_intercepted: !self.shared.interceptors.is_empty() })
    }

    /// Calls the listener unless its breaker is open. `None` if the lease was lost.
    async fn ask(&self, entry: &RegistryEntry, begun: &Begun<'_>) -> Option<Reply> {
        let route = self.delivery.event.route();
        let now = Instant::now();
        let breaker = entry.breaker(route, now);
        let admittance = match breaker.admit(now) {
            Ok(admittance) => admittance,
            Err(pause) => {
                let (after, reason) = give_back_paused(entry, &self.delivery.event, pause, now);
                return Some(Outcome::Busy { after, reason: reason.into() }.into());
            }
        };
        let reply = self.call(entry, begun).await?;
        for cost in reply.cost.iter().chain(reply.broken_call_cost.as_deref()) {
            entry.totals.add(cost);
        }
        if let Some(cost) = &reply.cost {
            // The event's share of a call for several events is not the call's duration.
            entry.route_totals().duration.observe(cost.took.saturating_mul(cost.events));
        }
        // A listener without capacity was not called.
        if let Outcome::Busy { after, reason } = reply.outcome {
            if reply.is_stalled {
                entry.gave_back(reply.destination, &reason, Instant::now());
            }
            return Some(Outcome::Busy { after: admittance.no_call(after, Instant::now()), reason }.into());
        }
        // The event is given up because its sink was away for too long, which says no more about the listener than a wait for the sink.
        if let Outcome::Failed(Failure { kind: FailureKind::Unrecoverable, cause: Cause::Sink, message }) = &reply.outcome {
            if reply.is_stalled {
                entry.gave_back(reply.destination, message, Instant::now());
            }
            drop(admittance);
            return Some(reply);
        }
        let broken = match &reply.outcome {
            Outcome::Failed(failure) if failure.cause.is_breakage() => Some(failure.cause),
            _ => None,
        };
        match broken {
            Some(cause) => entry.totals.trapped(cause),
            None => entry.answered(reply.destination),
        }
        if admittance.record(broken.is_some(), Instant::now()) {
            tracing::error!(
                %route, listener = %entry.owner, pause_s = breaker.pause().as_secs(),
                "the listener keeps breaking, so its breaker is open; the events of this route wait and lose no attempt"
            );
        }
        Some(reply)
    }

    /// The reply for an event without a listener here, and whether the event waits for one.
    fn unroutable(&self) -> (Reply, bool) {
        let (listeners, route) = (&self.shared.listeners, self.delivery.event.route());
        let (reason, awaited) = (listeners.unroutable(route), listeners.awaited(route));
        let awaits_listener = awaited.is_some();
        let reason = match awaited {
            Some(why) => waits_for_one(&reason, &why),
            None => reason,
        };
        (Outcome::Unroutable(reason).into(), awaits_listener)
    }
}
