//! One call of a listener for one event, within its deadline and its lease.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt;

use super::Shared;
use crate::event::Event;
use crate::listener::{Cause, Failure, Found, Outcome, Visit, panic_text};
use crate::queue::Delivery;
use crate::store::EXPIRED;
use crate::time::system_clock;

/// A listener with a deadline of its own reports it better than we do: it gets so much longer to speak first.
const GRACE: Duration = Duration::from_millis(250);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long an event steps back when its listener has no free place and others wait.
const NO_PLACE: Duration = Duration::from_secs(1);

/// How long an event steps back when its start could not be counted.
const NOT_COUNTED: Duration = Duration::from_secs(1);

/// What the attempt came to; `None` when the claim was lost, so that nothing may be written.
pub(super) async fn attempt(shared: &Shared, worker: usize, delivery: &Delivery, found: &Found) -> Option<Outcome> {
    let started = Instant::now();
    if delivery.mark.lease_end().is_none_or(|end| end <= started) {
        return lost(shared, delivery, "before its listener was called");
    }
    if expired(&delivery.event) {
        return Some(Outcome::Dead(EXPIRED.to_owned()));
    }
    if let Err(after) = found.breaker.admit(started) {
        return Some(Outcome::Busy { after });
    }
    let _place = match &found.places {
        None => None,
        Some(places) => match places.try_acquire() {
            Ok(place) => Some(place),
            // Others' events wait: this one steps back, rather than keeping a worker from them.
            Err(_) if shared.queue.depth() != (0, 0) => return Some(Outcome::Busy { after: NO_PLACE }),
            Err(_) => places.acquire().await.ok(),
        },
    };
    if delivery.alone
        && let Err(instead) = count_start(shared, delivery).await
    {
        return instead;
    }
    let outcome = match before(shared, &delivery.event).await {
        Err(failure) => Outcome::Failed(failure),
        Ok(()) => {
            let outcome = call(shared, worker, delivery, found, started).await?;
            after(shared, &delivery.event, &outcome).await;
            outcome
        }
    };
    let broke = matches!(&outcome, Outcome::Failed(failure) if failure.cause.is_breakage());
    if found.breaker.record(broke, Instant::now()) {
        tracing::error!(
            route = %found.registration.route, listener = %found.owner, pause_s = found.breaker.pause().as_secs(),
            "the listener keeps breaking and is paused; its events wait and lose no attempt"
        );
    }
    Some(outcome)
}

/// Counts the start of an event that is delivered alone. The one time that a worker waits for the database: what it knows when its
/// host has stopped must be in the table before. `Err` is what the attempt came to instead.
async fn count_start(shared: &Shared, delivery: &Delivery) -> Result<(), Option<Outcome>> {
    let Some(fence) = delivery.fence() else { return Ok(()) };
    match shared.store.start(fence).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(lost(shared, delivery, "before its listener was called")),
        Err(_) => {
            shared.metrics.db_errors.increment();
            Err(Some(Outcome::Busy { after: NOT_COUNTED }))
        }
    }
}

/// Whether its time ended since it was claimed or written. By the host's clock, since the row is not read again.
fn expired(event: &Event) -> bool {
    event.expires_at().is_some_and(|end| end <= system_clock().now())
}

async fn call(shared: &Shared, worker: usize, delivery: &Delivery, found: &Found, started: Instant) -> Option<Outcome> {
    // A year is as good as for ever, and can be added to any time.
    let allowed = found.registration.deadline.map_or(shared.config.deadline, |own| own.min(YEAR) + GRACE);
    let deadline = started + allowed;
    let visit = Visit { event: &delivery.event, worker, batch: delivery.batch };
    // A closure may panic before it has made its future.
    let call = async { found.registration.listener.call(visit).await };
    let mut call = std::pin::pin!(AssertUnwindSafe(call).catch_unwind());
    loop {
        // A timeout polls first: an event whose lease ended while it waited for an interceptor or a place would be delivered.
        let Some(lease_end) = delivery.mark.lease_end().filter(|end| *end > Instant::now()) else {
            return lost(shared, delivery, "while its listener was at work");
        };
        match tokio::time::timeout_at(deadline.min(lease_end).into(), &mut call).await {
            Ok(Ok(outcome)) => return Some(outcome),
            Ok(Err(panic)) => return Some(Outcome::Failed(Failure::broken(Cause::Panic, panic_text(&*panic)))),
            Err(_) if Instant::now() >= deadline => {
                let message = format!("the call took longer than {allowed:?} and was cut off");
                return Some(Outcome::Failed(Failure::broken(Cause::Deadline, message)));
            }
            // The lease may have been renewed meanwhile.
            Err(_) if delivery.mark.lease_end().is_some_and(|end| end > Instant::now()) => {}
            Err(_) => return lost(shared, delivery, "while its listener was at work"),
        }
    }
}

fn lost(shared: &Shared, delivery: &Delivery, when: &str) -> Option<Outcome> {
    shared.metrics.leases_lost.increment();
    tracing::warn!(event.id = %delivery.event.id(), route = %delivery.event.route(), "the lease of an event ended {when}; whoever holds it now delivers it");
    None
}

async fn before(shared: &Shared, event: &Event) -> Result<(), Failure> {
    for interceptor in &shared.interceptors {
        match AssertUnwindSafe(interceptor.before(event)).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(message)) => return Err(Failure::broken(Cause::Interceptor, message)),
            Err(panic) => return Err(Failure::broken(Cause::Interceptor, panic_text(&*panic))),
        }
    }
    Ok(())
}

async fn after(shared: &Shared, event: &Event, outcome: &Outcome) {
    for interceptor in shared.interceptors.iter().rev() {
        let error = match AssertUnwindSafe(interceptor.after(event, outcome)).catch_unwind().await {
            Ok(Ok(())) => continue,
            Ok(Err(message)) => message,
            Err(panic) => panic_text(&*panic),
        };
        tracing::error!(event.id = %event.id(), error, "an interceptor failed after an attempt; the outcome stands");
    }
}
