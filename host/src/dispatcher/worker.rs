//! What a worker does: it takes an event from the queue, goes to its listener, and hands what came of it to the settler.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::attempt::{self, Attempt};
use super::{Policy, Shared, Unroutable, settle};
use crate::listener::{Found, Outcome};
use crate::queue::{Admitted, Delivery, Path};
use crate::settler::SettlerHandle;
use crate::store::{EXPIRED, Settlement};

/// How long an event steps back that must be delivered alone, when a listener that blocks its thread keeps it from that.
const NOT_ALONE: Duration = Duration::from_secs(30);

/// Takes deliveries until the queue is closed and empty, or the listener is cut off.
pub(super) async fn work(worker: usize, shared: Arc<Shared>, settler: SettlerHandle, mut cut_off: watch::Receiver<bool>) {
    // Made once: a wait that is begun anew for each event would cost more than many a call.
    let mut cut_off = std::pin::pin!(cut_off.wait_for(|cut_off| *cut_off));
    while let Some(delivery) = shared.queue.take().await {
        let (mut delivery, answer) = match admit(&shared, delivery) {
            Readiness::Starts(delivery, answer) => (delivery, answer),
            Readiness::Waits => continue,
            Readiness::Back(delivery, after) => {
                settler.send(delivery, Settlement::Released { after }).await;
                continue;
            }
        };
        let ended = tokio::select! {
            biased;
            settlement = go(&shared, worker, &delivery, &answer) => Some(settlement),
            _ = &mut cut_off => None,
        };
        // Before the sending: others wait for the place.
        delivery.place = None;
        let is_cut_off = ended.is_none();
        if let Some(settlement) = ended.unwrap_or(Some(Settlement::Released { after: Duration::ZERO })) {
            settler.send(delivery, settlement).await;
        }
        if is_cut_off {
            return;
        }
        // A worker whose listeners never wait would keep its thread from everybody else.
        tokio::task::coop::consume_budget().await;
    }
}

/// Who answers an event.
enum Answer {
    Listener(Arc<Found>),
    /// Its route is paused, for this reason.
    Paused(String),
    Nobody,
}

/// Whether a worker can begin with an event.
enum Readiness {
    Starts(Delivery, Answer),
    /// It waits for a place with its listener.
    Waits,
    /// It goes back to the table for so long.
    Back(Delivery, Duration),
}

/// Finds out who answers an event, and whether there is a place for it: no worker waits for one. Nothing is counted before.
fn admit(shared: &Shared, delivery: Delivery) -> Readiness {
    let route = delivery.event.route();
    if let Some(reason) = shared.listeners.paused(route) {
        return Readiness::Starts(delivery, Answer::Paused(reason));
    }
    let Some(found) = shared.listeners.find(route) else {
        // The poller asks the table for routes before it hands on an event that would be given up. This one came straight from
        // its commit, so nobody has asked.
        let unasked = delivery.path == Path::Hot && delivery.fence().is_some() && shared.listeners.awaited(route).is_none();
        return if unasked { Readiness::Back(delivery, Duration::ZERO) } else { Readiness::Starts(delivery, Answer::Nobody) };
    };
    let Some(places) = &found.places else { return Readiness::Starts(delivery, Answer::Listener(found)) };
    match shared.queue.admit(&places.name, places.calls, delivery) {
        Admitted::Starts(delivery) => Readiness::Starts(delivery, Answer::Listener(found)),
        Admitted::Waits => Readiness::Waits,
        Admitted::Full(delivery, after) => Readiness::Back(delivery, after),
    }
}

/// Goes to the listener of a delivery, when that is allowed: beside others, or alone.
async fn go(shared: &Shared, worker: usize, delivery: &Delivery, answer: &Answer) -> Option<Settlement> {
    // Let go before the outcome is sent: the settler stores at once when nobody is with a listener any more.
    let _at_work = if delivery.alone {
        let deadline = shared.config.deadline;
        match shared.at_work.enter_alone(deadline, deadline * 2).await {
            Some(at_work) => at_work,
            None => return Some(Settlement::Released { after: NOT_ALONE }),
        }
    } else {
        shared.at_work.enter().await
    };
    visit(shared, worker, delivery, answer).await
}

/// One delivery's visit to its listener; `None` when the claim was lost on the way, and nothing may be written.
async fn visit(shared: &Shared, worker: usize, delivery: &Delivery, answer: &Answer) -> Option<Settlement> {
    if delivery.mark.lease_end().is_none_or(|end| end <= Instant::now()) {
        return attempt::lost(shared, delivery, "before its listener was called");
    }
    if matches!(answer, Answer::Listener(_)) && attempt::expired(&delivery.event) {
        return Some(Settlement::Dead { error: EXPIRED.to_owned(), counted: false, blocks: false });
    }
    if delivery.alone
        && let Answer::Listener(found) = answer
        && !found.breaker.is_open(Instant::now())
        && let Err(instead) = attempt::count_start(shared, delivery).await
    {
        return instead.map(|after| Settlement::Released { after });
    }
    let watched = shared.visits.begin(worker, delivery.event.id());
    let attempt = Attempt { shared, worker, delivery, watched: &watched };
    let mut waits = shared.config.unroutable == Unroutable::Park;
    let outcome = match attempt.before().await {
        Err(failure) => Outcome::Failed(failure),
        Ok(()) => {
            let outcome = match answer {
                Answer::Listener(found) => attempt.ask(found).await?,
                Answer::Paused(reason) => {
                    waits = true;
                    Outcome::Unroutable(reason.clone())
                }
                Answer::Nobody => {
                    let awaited = shared.listeners.awaited(delivery.event.route());
                    waits |= awaited.is_some();
                    unroutable(shared, delivery, awaited.as_deref())
                }
            };
            attempt.after(&outcome).await;
            outcome
        }
    };
    let registration = match answer {
        Answer::Listener(found) => Some(&found.registration),
        Answer::Paused(_) | Answer::Nobody => None,
    };
    let policy = Policy {
        retry: registration.and_then(|own| own.retry.as_deref()).unwrap_or(&*shared.retry),
        max_attempts: match (&shared.order, registration.and_then(|own| own.max_attempts)) {
            // Where all events stand in one line each has one attempt, whatever its listener allows.
            (Some(order), _) if order.is_one_for_all() => 1,
            (_, own) => own.unwrap_or(shared.config.max_attempts),
        },
        max_deferrals: shared.config.max_deferrals,
        park_unroutable: waits,
    };
    Some(settle(outcome, delivery.attempts(), delivery.deferrals, &policy))
}

/// What becomes of an event that nobody answers here; `awaited` is why it waits for a listener.
fn unroutable(shared: &Shared, delivery: &Delivery, awaited: Option<&str>) -> Outcome {
    let reason = shared.listeners.unroutable(delivery.event.route());
    Outcome::Unroutable(match awaited {
        Some(why) => format!("{reason}; it waits for one: {why}"),
        None => reason,
    })
}
