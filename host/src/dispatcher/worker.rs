//! A worker takes an event from the queue, calls its listener, and hands the outcome to the settler.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::alone::{self, Start};
use super::attempt::{self, Attempt};
use super::presence::{Held, Presence};
use super::{Shared, inside};
use crate::listener::{Outcome, RegistryEntry, Reply, waits_for_one};
use crate::queue::{Admitted, Delivery, Via};
use crate::settlement::{Policy, given_back, given_back_for};
use crate::settler::{Conclusion, IfNotTaken, SettlerHandle};
use crate::store::{AttemptCost, Settlement};
use crate::telemetry::ProcessSpan;

/// Takes deliveries until the queue is closed and empty, or the listener is cut off.
pub(super) async fn work(worker: usize, shared: Arc<Shared>, settler: SettlerHandle, mut cut_off: watch::Receiver<bool>) {
    // Made once: starting this wait again for each event would cost more than some calls.
    let mut cut_off = std::pin::pin!(cut_off.wait_for(|cut_off| *cut_off));
    let presence = Presence::new();
    while let Some(delivery) = shared.queue.take().await {
        let (mut delivery, answer) = match admit(&shared, delivery) {
            Readiness::Starts(delivery, answer) => (delivery, answer),
            Readiness::Waits => continue,
            Readiness::Back(delivery, after) => {
                settler.send(delivery, given_back_for(after)).await;
                continue;
            }
        };
        let span = begin_span(&shared, &answer, &mut delivery);
        let mut progress = Progress { start: delivery.alone.then(Start::default), said: OnceLock::new(), span };
        let place = Held::new(delivery.place.take());
        let ended = {
            let visit = go(&shared, worker, &delivery, &answer, &progress, &place);
            let mut visit = pin!(inside::within(&shared.queue, visit));
            let visit = poll_fn(|context| {
                let _entered = progress.span.enter();
                visit.as_mut().poll(context)
            });
            tokio::select! {
                biased;
                conclusion = presence.watch(&shared.queue, &place, visit) => Some(conclusion),
                _ = &mut cut_off => None,
            }
        };
        let is_cut_off = ended.is_none();
        let conclusion = ended.unwrap_or_else(|| Some(progress.said.take().unwrap_or_else(|| given_back().into())));
        progress.span.end(conclusion.as_ref().map(|conclusion| &conclusion.settlement));
        if let Some(conclusion) = &conclusion {
            count(&shared, &answer, &delivery, conclusion);
        }
        // Effects wait for room at the place of their call: so no more of them lie in memory than their listener may make at once, and
        // there are workers left for others. Meanwhile other calls of it may compute. An event that was alone has no place any more.
        let effects =
            conclusion.as_ref().filter(|_| progress.start.is_none()).and_then(|conclusion| conclusion.effects.as_deref());
        let room = place.wait(&shared.queue, settler.room_for(effects)).await;
        // Before the outcome is sent, since other events wait for the place.
        place.let_go();
        match (conclusion, progress.start) {
            (Some(conclusion), None) => settler.send_with(room, delivery, conclusion).await,
            (conclusion, Some(start)) => start.end(&shared, &settler, delivery, conclusion).await,
            (None, None) => {}
        }
        if is_cut_off {
            return;
        }
        // A worker whose listeners never wait would otherwise never let other tasks use its thread.
        tokio::task::coop::consume_budget().await;
    }
}

/// How far a visit has come, for when it is cut off.
struct Progress {
    /// `None` for an event that is delivered beside others.
    start: Option<Start>,
    /// The listener's answer, once it is known; interceptors may still be running.
    said: OnceLock<Conclusion>,
    /// The span of the delivery.
    span: ProcessSpan,
}

/// What answers an event.
enum Answer {
    Listener(Arc<RegistryEntry>),
    /// Its route is paused, for this reason.
    Paused(String),
    Nobody,
}

/// Whether a worker can begin with an event.
enum Readiness {
    Starts(Delivery, Answer),
    /// The queue keeps it until its listener has a place.
    Waits,
    /// It goes back to the table, to be claimed after this time.
    Back(Delivery, Duration),
}

/// Begins the span of a delivery, if tracing is on and a listener answers. From here on the event carries the span's trace context,
/// which the requests and messages of its listener continue.
fn begin_span(shared: &Shared, answer: &Answer, delivery: &mut Delivery) -> ProcessSpan {
    let Answer::Listener(entry) = answer else { return ProcessSpan::none() };
    let span = shared.spans.process(&delivery.event, &entry.owner);
    if let Some(trace) = span.trace_parent() {
        Arc::make_mut(&mut delivery.event).set_trace(trace);
    }
    span
}

/// Counts the outcome of an event for its route. Routes without a listener are counted together, so that a writer cannot fill the
/// metrics with made-up names.
fn count(shared: &Shared, answer: &Answer, delivery: &Delivery, conclusion: &Conclusion) {
    let totals = match answer {
        Answer::Listener(entry) => entry.route_totals(),
        Answer::Paused(_) | Answer::Nobody => shared.metrics.routes.other(),
    };
    totals.count(&delivery.event, &conclusion.settlement);
}

/// Finds what answers an event, and whether that has a place: no worker waits for a place. Nothing is counted yet.
fn admit(shared: &Shared, delivery: Delivery) -> Readiness {
    let route = delivery.event.route();
    if let Some(reason) = shared.listeners.paused(route) {
        return Readiness::Starts(delivery, Answer::Paused(reason));
    }
    let Some(entry) = shared.listeners.find(route) else {
        // The poller looks in the table for hosts that answer a route before it hands on an event without a listener here. This
        // event came straight from its commit, so the poller must see it first.
        let unasked = delivery.via == Via::Hot && delivery.fence().is_some() && shared.listeners.awaited(route).is_none();
        return if unasked { Readiness::Back(delivery, Duration::ZERO) } else { Readiness::Starts(delivery, Answer::Nobody) };
    };
    let admitted = if delivery.alone && !entry.is_paused(route, Instant::now()) {
        alone::admit(shared, delivery)
    } else if let Some(limit) = &entry.call_limit {
        shared.queue.admit(&limit.name, limit.calls, delivery)
    } else {
        Admitted::Starts(delivery)
    };
    match admitted {
        Admitted::Starts(delivery) => Readiness::Starts(delivery, Answer::Listener(entry)),
        Admitted::Waits => Readiness::Waits,
        Admitted::Full(delivery, after) => Readiness::Back(delivery, after),
    }
}

/// Calls the listener of a delivery, beside others or alone. `None` when the claim was lost before the end, so that nothing may be
/// written.
async fn go(
    shared: &Shared,
    worker: usize,
    delivery: &Delivery,
    answer: &Answer,
    progress: &Progress,
    place: &Held,
) -> Option<Conclusion> {
    // Without a listener there is no call to keep others away from.
    let alone = progress.start.as_ref().filter(|_| matches!(answer, Answer::Listener(_)));
    // Dropped before the outcome is sent: the settler writes at once when no worker is calling a listener.
    let _work = if alone.is_some() {
        // Checked here too, before all other workers are kept waiting.
        if let Err(instead) = check(shared, delivery, answer) {
            return instead.map(Conclusion::from);
        }
        let entered = alone::enter(shared).await;
        // The next event that must be alone may wait now.
        place.let_go();
        match entered {
            Ok(work) => work,
            Err(settlement) => return Some(settlement.into()),
        }
    } else {
        shared.at_work.enter().await
    };
    if let Err(instead) = check(shared, delivery, answer) {
        return instead.map(Conclusion::from);
    }
    if let Some(start) = alone
        && let Err(instead) = start.count(shared, delivery).await
    {
        return instead.map(Conclusion::from);
    }
    visit(shared, worker, delivery, answer, progress).await
}

/// Whether a delivery is still wanted. `Err` when it is not: what becomes of it, or `None` when the claim was lost.
fn check(shared: &Shared, delivery: &Delivery, answer: &Answer) -> Result<(), Option<Settlement>> {
    if !delivery.mark.may_begin() {
        // Another host may have taken its partition over; else it is read again once the session is proven.
        return Err(Some(given_back()));
    }
    if delivery.mark.lease_end().is_none_or(|end| end <= Instant::now()) {
        return Err(attempt::lost(shared, delivery, "before its listener was called"));
    }
    let Answer::Listener(entry) = answer else { return Ok(()) };
    if delivery.is_expired() {
        // A hot event was compared with this host's clock only. The database's clock decides, at the next claim.
        return Err(Some(match delivery.via {
            Via::Hot if delivery.fence().is_some() => given_back(),
            Via::Hot | Via::Cold => shared.rules.expired(),
        }));
    }
    if delivery.alone
        && let Err(after) = entry.breaker(delivery.event.route(), Instant::now()).admit(Instant::now())
    {
        return Err(Some(given_back_for(after)));
    }
    Ok(())
}

/// One delivery's visit to its listener; `None` when the claim was lost on the way, and nothing may be written.
async fn visit(
    shared: &Shared,
    worker: usize,
    delivery: &Delivery,
    answer: &Answer,
    progress: &Progress,
) -> Option<Conclusion> {
    let watched = shared.visits.begin(worker, delivery.event.id(), delivery.fence());
    let attempt = Attempt { shared, worker, delivery, watched: &watched };
    let mut awaits_listener = false;
    let before = attempt.before().await;
    let asked = before.is_ok();
    let registration = match answer {
        Answer::Listener(entry) => Some(&entry.registration),
        Answer::Paused(_) | Answer::Nobody => None,
    };
    let max_attempts = match (&shared.order, registration.and_then(|own| own.max_attempts)) {
        // Where all events are in one order, each has one attempt, whatever its listener allows.
        (Some(order), _) if order.is_one_for_all() => 1,
        (_, own) => own.unwrap_or(shared.config.max_attempts),
    };
    let Reply { outcome, effects, cost, .. } = match (before, answer) {
        (Err(failure), _) => Outcome::Failed(failure).into(),
        (Ok(()), Answer::Listener(entry)) => attempt.ask(entry, max_attempts).await?,
        (Ok(()), Answer::Paused(reason)) => {
            awaits_listener = true;
            Outcome::Unroutable(reason.clone()).into()
        }
        (Ok(()), Answer::Nobody) => {
            let awaited = shared.listeners.awaited(delivery.event.route());
            awaits_listener = awaited.is_some();
            unroutable(shared, delivery, awaited.as_deref()).into()
        }
    };
    progress.span.outcome(&outcome);
    let effects = effects.filter(|_| outcome.is_answer());
    let policy = Policy {
        retry: registration.and_then(|own| own.retry.as_deref()).unwrap_or(&*shared.retry),
        max_attempts,
        awaits_listener,
    };
    let concluded = |outcome| {
        let settlement = shared.rules.settle(outcome, delivery.attempts(), delivery.deferrals, &policy);
        let is_recorded = shared.rules.records_cost(&settlement);
        // An answer with effects may yet become a failure, when they are not taken.
        let cost = cost.filter(|_| is_recorded || effects.is_some());
        let cost = cost.and_then(|cost| AttemptCost::new(delivery.event.attempt(), &settlement, cost)).map(Box::new);
        let (cost, spare) = if is_recorded { (cost, None) } else { (None, cost) };
        let if_not_taken = IfNotTaken { is_last: policy.is_last(delivery.attempts()), cost: spare };
        Conclusion { settlement, effects, cost, if_not_taken }
    };
    if !asked || shared.interceptors.is_empty() {
        return Some(concluded(outcome));
    }
    // Kept before interceptors run: a stop that cuts them off must not deliver the event a second time.
    let conclusion = concluded(outcome.clone());
    let conclusion = progress.said.get_or_init(|| conclusion).clone();
    attempt.after(&outcome).await;
    Some(conclusion)
}

/// The outcome of an event without a listener here; `awaited` is why the event waits for one.
fn unroutable(shared: &Shared, delivery: &Delivery, awaited: Option<&str>) -> Outcome {
    let reason = shared.listeners.unroutable(delivery.event.route());
    Outcome::Unroutable(match awaited {
        Some(why) => waits_for_one(&reason, why),
        None => reason,
    })
}
