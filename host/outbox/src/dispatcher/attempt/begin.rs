//! The second step: checks that the event may still be delivered, and waits until its listener may be called.

use std::time::Duration;

use tokio::time::Instant;

use super::{Attempt, Target};
use crate::dispatcher::alone;
use crate::dispatcher::overdue::Watched;
use crate::dispatcher::shared::LostWhen;
use crate::event::Event;
use crate::listener::RegistryEntry;
use crate::queue::{Via, Work};
use crate::settlement::{given_back, waits};
use crate::store::Settlement;

/// The rest of an event that has not waited yet, while the breaker of its listener is open for longer.
const LEAST_REST: Duration = Duration::from_secs(1);

/// An attempt that may call its listener.
pub(super) struct Begun<'a> {
    /// Reports the attempt if it blocks its thread.
    pub(super) watched: Watched<'a>,
    /// Dropped before the outcome is sent: the settler writes at once if no worker is calling a listener.
    _work: Work<'a>,
}

impl Attempt<'_> {
    /// Waits until the listener may be called, beside others or alone.
    ///
    /// # Errors
    /// The settlement of an event that is not delivered now; `None` if its lease was lost, so that nothing may be written.
    pub(super) async fn begin(&self) -> Result<Begun<'_>, Option<Settlement>> {
        // Without a listener no call has to run alone.
        let start = self.start.as_ref().filter(|_| matches!(self.target, Target::Listener(_)));
        let work = if start.is_some() { self.enter_alone().await? } else { self.shared.at_work.enter().await };
        self.check()?;
        if let Some(start) = start {
            start.count(self.shared, &self.delivery).await?;
        }
        let watched = self.shared.visits.begin(self.worker, self.delivery.event.id(), self.delivery.fence());
        Ok(Begun { watched, _work: work })
    }

    async fn enter_alone(&self) -> Result<Work<'_>, Option<Settlement>> {
        // Checked before all other workers have to wait.
        self.check()?;
        let entered = alone::enter(self.shared).await;
        // The next event that is delivered alone may take the slot now.
        self.slot.let_go();
        entered.map_err(Some)
    }

    fn check(&self) -> Result<(), Option<Settlement>> {
        let Self { shared, delivery, .. } = self;
        if !delivery.mark.may_begin() {
            // Another host may have taken the event's partition over. If not, this host reads the event again once its session is
            // confirmed.
            return Err(Some(given_back()));
        }
        if delivery.mark.lease_end().is_none_or(|end| end <= Instant::now()) {
            shared.lease_lost(delivery, LostWhen::BeforeCall);
            return Err(None);
        }
        let Target::Listener(entry) = &self.target else { return Ok(()) };
        if delivery.is_expired() {
            // A hot event was compared with this host's clock only. The database's clock decides at the next claim.
            return Err(Some(match delivery.via {
                Via::Hot if delivery.fence().is_some() => given_back(),
                Via::Hot | Via::Cold => shared.rules.expired(),
            }));
        }
        if delivery.alone {
            let now = Instant::now();
            if let Err(pause) = entry.breaker(delivery.event.route(), now).admit(now) {
                let (after, reason) = give_back_paused(entry, &delivery.event, pause, now);
                return Err(Some(waits(after, reason)));
            }
        }
        Ok(())
    }
}

/// Notes that an event is given back because the breaker of its listener is open for `pause`. Returns the event's rest, and the reason.
///
/// Another host may take the event over, and its listener may work there. So an event rests for as long again as it has waited.
pub(super) fn give_back_paused(entry: &RegistryEntry, event: &Event, pause: Duration, now: Instant) -> (Duration, String) {
    let reason = format!("the circuit breaker of its listener {} is open after repeated failures", entry.owner);
    entry.gave_back(None, &reason, now);
    (pause.min(event.waited().max(LEAST_REST)), reason)
}
