//! One call of a listener for one event, within its deadline and its lease, and the interceptors around it.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

use super::Shared;
use super::overdue::Watched;
use crate::chain::panic_text;
use crate::event::{Cost, Event};
use crate::listener::{Cause, Failure, Outcome, RegistryEntry, Reply, Visit};
use crate::queue::Delivery;

/// A listener that watches its own deadline reports more than we can, so it gets this much longer to report first.
const GRACE: Duration = Duration::from_millis(250);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// How often a call looks whether its claim ends sooner than it did: where order is kept, a call that began while others relied
/// on leases alone must have ended soon after this host's session, once they rely on that. They wait for three times as long.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// One attempt, and what it needs to know.
#[derive(Clone, Copy)]
pub(super) struct Attempt<'a> {
    pub(super) shared: &'a Shared,
    pub(super) worker: usize,
    pub(super) delivery: &'a Delivery,
    pub(super) watched: &'a Watched<'a>,
}

impl Attempt<'_> {
    /// Asks the listener, unless its breaker is open; `None` when the claim was lost, so that nothing may be written.
    pub(super) async fn ask(self, entry: &RegistryEntry, max_attempts: u32) -> Option<Reply> {
        let route = self.delivery.event.route();
        let now = Instant::now();
        let breaker = entry.breaker(route, now);
        let admittance = match breaker.admit(now) {
            Ok(admittance) => admittance,
            Err(after) => return Some(Outcome::Busy { after }.into()),
        };
        let reply = self.call(entry, max_attempts).await?;
        for cost in reply.cost.iter().chain(reply.broken_call_cost.as_deref()) {
            entry.totals.add(cost);
        }
        if let Some(cost) = &reply.cost {
            // Its share of a call for several events is not how long it took.
            entry.route_totals().duration.observe(cost.took.saturating_mul(cost.events));
        }
        // A listener without room was not called.
        if let Outcome::Busy { after } = reply.outcome {
            return Some(Outcome::Busy { after: admittance.no_call(after, Instant::now()) }.into());
        }
        let broken = match &reply.outcome {
            Outcome::Failed(failure) if failure.cause.is_breakage() => Some(failure.cause),
            _ => None,
        };
        if let Some(cause) = broken {
            entry.totals.trapped(cause);
        }
        if admittance.record(broken.is_some(), Instant::now()) {
            tracing::error!(
                %route, listener = %entry.owner, pause_s = breaker.pause().as_secs(),
                "the listener keeps breaking and is paused; the events of this route wait and lose no attempt"
            );
        }
        Some(reply)
    }

    /// One call, with what it cost.
    async fn call(self, entry: &RegistryEntry, max_attempts: u32) -> Option<Reply> {
        let Self { shared, worker, delivery, watched } = self;
        // A year stands for no limit, and can be added to any time without overflow.
        let allowed = entry.registration.deadline.map_or(shared.config.deadline, |own| own.min(YEAR) + GRACE);
        // The clock starts here: no wait before the call counts against it.
        let began = Instant::now();
        let deadline = began + allowed;
        watched.until(deadline + GRACE);
        let deferrals = delivery.deferrals;
        let visit =
            Visit { event: &delivery.event, worker, batch: delivery.batch, deferrals, max_attempts, began: began.into_std() };
        // A closure may panic before it has made its future.
        let call = async { entry.registration.listener.call(visit).await };
        let mut call = std::pin::pin!(AssertUnwindSafe(call).catch_unwind());
        let measured = |reply: Reply| {
            // A busy listener was not called, unless it reports a cost.
            let was_called = !matches!(reply.outcome, Outcome::Busy { .. });
            let cost = reply.cost.or_else(|| was_called.then(|| Cost::of_time(began.elapsed())));
            Some(Reply { cost, ..reply })
        };
        let holds = || delivery.mark.lease_end().filter(|end| *end > Instant::now());
        loop {
            let Some(lease_end) = holds() else {
                return lost(shared, delivery, "while its listener was at work");
            };
            // Checked before each step: a process that was suspended during a call may resume the call before its timers, and would
            // go on with an event that another host holds by now.
            let step =
                poll_fn(|context| if holds().is_some() { call.as_mut().poll(context).map(Some) } else { Poll::Ready(None) });
            let look_again = Instant::now() + LOOK_AGAIN;
            match tokio::time::timeout_at(deadline.min(lease_end).min(look_again), step).await {
                Ok(None) => return lost(shared, delivery, "while its listener was at work"),
                Ok(Some(Ok(reply))) => return measured(reply),
                Ok(Some(Err(panic))) => {
                    return measured(Outcome::Failed(Failure::broken(Cause::Panic, panic_text(&*panic))).into());
                }
                Err(_) if Instant::now() >= deadline => {
                    let message = format!("the call took longer than {allowed:?} and was cut off");
                    return measured(Outcome::Failed(Failure::broken(Cause::Deadline, message)).into());
                }
                // The lease may have been renewed meanwhile, or its end has come nearer.
                Err(_) if delivery.mark.lease_end().is_some_and(|end| end > Instant::now()) => {}
                Err(_) => return lost(shared, delivery, "while its listener was at work"),
            }
        }
    }

    /// Asks the interceptors, all of them together within the dispatcher's deadline.
    pub(super) async fn before(self) -> Result<(), Failure> {
        let Self { shared, delivery, watched, .. } = self;
        if shared.interceptors.is_empty() {
            return Ok(());
        }
        let deadline = shared.config.deadline;
        watched.until(Instant::now() + deadline + GRACE);
        match tokio::time::timeout(deadline, ask_interceptors(shared, &delivery.event)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::broken(Cause::Interceptor, took_too_long(deadline))),
        }
    }

    /// Tells the interceptors, all of them together within the dispatcher's deadline.
    pub(super) async fn after(self, outcome: &Outcome) {
        let Self { shared, delivery, watched, .. } = self;
        if shared.interceptors.is_empty() {
            return;
        }
        let deadline = shared.config.deadline;
        watched.until(Instant::now() + deadline + GRACE);
        if tokio::time::timeout(deadline, tell_interceptors(shared, &delivery.event, outcome)).await.is_err() {
            log_interceptor(&delivery.event, &took_too_long(deadline));
        }
    }
}

/// Reports that another host may hold the event now, so that nothing may be written.
pub(super) fn lost<T>(shared: &Shared, delivery: &Delivery, when: &str) -> Option<T> {
    shared.metrics.leases_lost.increment();
    let event = &delivery.event;
    tracing::warn!(
        event.id = %event.id(), route = %event.route(), attempt = event.attempt(),
        "the lease of an event ended {when}; whoever holds it now delivers it"
    );
    None
}

async fn ask_interceptors(shared: &Shared, event: &Event) -> Result<(), Failure> {
    for interceptor in &shared.interceptors {
        match AssertUnwindSafe(async { interceptor.before(event).await }).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(message)) => return Err(Failure::broken(Cause::Interceptor, message)),
            Err(panic) => return Err(Failure::broken(Cause::Interceptor, panic_text(&*panic))),
        }
    }
    Ok(())
}

async fn tell_interceptors(shared: &Shared, event: &Event, outcome: &Outcome) {
    for interceptor in shared.interceptors.iter().rev() {
        match AssertUnwindSafe(async { interceptor.after(event, outcome).await }).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(message)) => log_interceptor(event, &message),
            Err(panic) => log_interceptor(event, &panic_text(&*panic)),
        }
    }
}

fn took_too_long(deadline: Duration) -> String {
    format!("took longer than {deadline:?} and was cut off")
}

fn log_interceptor(event: &Event, error: &str) {
    tracing::error!(
        event.id = %event.id(), route = %event.route(), attempt = event.attempt(), error,
        "an interceptor failed after an attempt; the outcome stands"
    );
}
