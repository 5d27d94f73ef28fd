//! The call of a listener, within its deadline and its event's lease.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

use super::Attempt;
use super::begin::Begun;
use crate::chain::panic_text;
use crate::dispatcher::shared::LostWhen;
use crate::event::Cost;
use crate::listener::{Cause, Failure, Outcome, RegistryEntry, Reply, Visit};

/// A listener that watches its own deadline reports more than the host can, so it gets this much longer to report first.
pub(super) const GRACE: Duration = Duration::from_millis(250);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// How often a call looks whether its lease ends earlier than before. In the ordered modes, other hosts may change from trusting leases
/// to trusting this host's session. They then wait three times as long for calls that began before.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Attempt<'_> {
    /// Calls the listener, and adds the cost of the call. `None` if the lease was lost, so that nothing may be written.
    pub(super) async fn call(&self, entry: &RegistryEntry, begun: &Begun<'_>) -> Option<Reply> {
        let Self { shared, worker, delivery, .. } = self;
        // A year stands for no limit, and can be added to any time without overflow.
        let allowed = entry.registration.deadline.map_or(shared.config.deadline, |own| own.min(YEAR) + GRACE);
        // The clock starts here: no wait before the call counts against it.
        let began = Instant::now();
        let deadline = began + allowed;
        begun.watched.until(deadline + GRACE);
        let visit = Visit {
            event: &delivery.event,
            worker: *worker,
            batch: delivery.batch,
            deferrals: delivery.deferrals,
            max_attempts: self.max_attempts(),
            began: began.into_std(),
        };
        // A closure may panic before it has made its future.
        let call = async { entry.registration.listener.call(visit).await };
        let mut call = std::pin::pin!(AssertUnwindSafe(call).catch_unwind());
        let measured = |reply: Reply| {
            // A busy listener was not called, unless it reports a cost.
            let was_called = !matches!(reply.outcome, Outcome::Busy { .. });
            let cost = reply.cost.or_else(|| was_called.then(|| Cost::of_time(began.elapsed())));
            Some(Reply { cost, ..reply })
        };
        let lease_end = || delivery.mark.lease_end().filter(|end| *end > Instant::now());
        while let Some(end) = lease_end() {
            // Checked before each step: a process that was suspended during a call may resume the call before its timers, and another
            // host may have the event by then.
            let step = poll_fn(|context| match lease_end() {
                Some(_) => call.as_mut().poll(context).map(Some),
                None => Poll::Ready(None),
            });
            let look_again = Instant::now() + LOOK_AGAIN;
            match tokio::time::timeout_at(deadline.min(end).min(look_again), step).await {
                Ok(None) => break,
                Ok(Some(Ok(reply))) => return measured(reply),
                Ok(Some(Err(panic))) => {
                    return measured(Outcome::Failed(Failure::broken(Cause::Panic, panic_text(&*panic))).into());
                }
                Err(_) if Instant::now() >= deadline => {
                    let message = format!("the call took longer than {allowed:?} and was cut off");
                    return measured(Outcome::Failed(Failure::broken(Cause::Deadline, message)).into());
                }
                // The lease may have been renewed, or its end may have come nearer: the loop looks again.
                Err(_) => {}
            }
        }
        shared.lease_lost(delivery, LostWhen::DuringCall);
        None
    }
}
