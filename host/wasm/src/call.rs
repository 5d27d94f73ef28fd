//! One event's visit to a plugin: an instance, one call, one outcome.

mod batch;
mod computes_long;
mod guest_event;
mod no_room;
mod registrations;
mod warm;

use std::borrow::Cow;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use outbox_event::text::{cut, keepable};
use outbox_event::{Cause, Cost, DispatchResult, Failure, FailureKind, GuestCost, Outcome};
use outbox_listener::{Listener, Reply, Visit};

use self::batch::{Alone, BatchCalls};
use self::computes_long::ComputesLong;
use self::guest_event::GuestEvent;
use self::no_room::NoRoom;
use self::warm::WarmInstances;
use super::bindings::exports::outbox::listener::handler as wit;
use super::bindings::outbox::listener::types as wit_types;
use super::capability::{HostState, Identity};
use super::explain::{CallError, explain, late};
use super::limits::{INIT_FUEL, MAX_MESSAGE_BYTES, delay};
use super::load::plugin::{Instance, Linked, Plugin, refuel, used};
use super::manifest::Isolation;
use super::shares::KeptPlace;
use crate::turns::in_turns;

/// The most details of a failure that are kept.
const MAX_ATTRIBUTES: usize = 16;

/// A plugin as the listener of one route.
pub(super) struct PluginListener {
    plugin: Arc<Plugin>,
    warm: WarmInstances,
    /// Calls for many events; `None` for one at a time.
    batches: Option<BatchCalls>,
    /// The deadline as the guest is told it.
    deadline_ms: String,
    computes_long: ComputesLong,
    no_room: NoRoom,
    /// Whether it has emitted: then it waits while its plugin has emitted too much.
    emits: AtomicBool,
}

/// An instance that is ready for a call.
struct Ready {
    instance: Instance,
    /// How many calls it has answered.
    calls: u32,
    /// The place in which it was kept; `None` for a new one.
    place: Option<KeptPlace>,
    /// What making it took.
    init_fuel: u64,
}

impl PluginListener {
    pub(super) fn new(plugin: Arc<Plugin>) -> Self {
        let warm = WarmInstances::new(plugin.isolation());
        let deadline_ms = plugin.manifest.limits.deadline.as_millis().to_string();
        let function = plugin.on_events.filter(|_| plugin.isolation() == Isolation::Batch);
        let batches = function.map(|function| BatchCalls::new(plugin.clone(), function, deadline_ms.clone()));
        let (computes_long, no_room) = (ComputesLong::default(), NoRoom::default());
        Self { plugin, warm, batches, deadline_ms, computes_long, no_room, emits: AtomicBool::new(false) }
    }

    /// Drops kept instances that nobody came for.
    pub(super) fn sweep(&self, idle: Duration) {
        self.warm.sweep(idle);
    }
}

impl Listener for PluginListener {
    fn call<'a>(&'a self, visit: Visit<'a>) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            let Some(batches) = &self.batches else { return self.visit(&visit, visit.began).await };
            match batches.answer(&visit).await {
                Ok(reply) => {
                    if !matches!(reply.outcome, Outcome::Busy { .. }) {
                        self.no_room.over();
                    }
                    reply
                }
                Err(Alone { broken_call_cost }) => Reply { broken_call_cost, ..self.visit(&visit, Instant::now()).await },
            }
        })
    }
}

impl PluginListener {
    /// One call for one event, whose time began at `began`.
    async fn visit(&self, visit: &Visit<'_>, began: Instant) -> Reply {
        // Asked before the call: what a call has done outside is not done again for this.
        if let Some(after) = self.rest_of_rate() {
            let reason = "its plugin has emitted as much as emit.per_second or emit.bytes_per_second allow".into();
            return Outcome::Busy { after, reason }.into();
        }
        let ends = began + self.plugin.manifest.limits.deadline;
        let reply = |outcome, used| Reply::with_cost(outcome, Cost { guest: Some(used), ..Cost::of_time(began.elapsed()) });
        let Ready { mut instance, calls, place, init_fuel } = match self.ready(visit, ends).await {
            Ok(ready) => ready,
            // Without a slot there was no call.
            Err((busy @ Outcome::Busy { .. }, _)) => return busy.into(),
            Err((outcome, used)) => return reply(outcome, used),
        };
        // The instance outlives a call that is cut off: it knows what that used.
        let entered = {
            let step = pin!(self.enter(&mut instance, visit, ends));
            tokio::time::timeout_at(ends.into(), self.in_turns(step)).await
        };
        let used = used(&instance.store);
        self.computes_long.learn(init_fuel.saturating_add(used.fuel));
        let (outcome, is_clean) = match entered {
            Ok(Ok(outcome)) if !instance.store.data().limiter.starved => {
                self.no_room.over();
                (outcome, true)
            }
            Ok(Ok(outcome)) if holds_without_memory(&outcome) => (outcome, true),
            Ok(Ok(_)) => (self.without_room(), false),
            Ok(Err(error)) => (self.broken(&error, &mut instance.store), false),
            Err(_) => {
                self.no_room.over();
                (Outcome::Failed(self.late()), false)
            }
        };
        let state = instance.store.data_mut();
        let effects = state.take_effects(&outcome);
        if effects.as_ref().is_some_and(|effects| !effects.emitted.is_empty()) && !self.emits.load(Ordering::Relaxed) {
            self.emits.store(true, Ordering::Relaxed);
        }
        if is_clean {
            state.end();
            self.keep(visit, instance, calls + 1, place);
        }
        Reply { effects, ..reply(outcome, used) }
    }

    /// How long to wait, since the plugin has emitted more than it may; `None` when it has not, or this listener never emits.
    fn rest_of_rate(&self) -> Option<Duration> {
        let identity = &self.plugin.linked.identity;
        let emit = identity.grants.emit.as_ref().filter(|_| self.emits.load(Ordering::Relaxed))?;
        emit.rest(identity)
    }

    /// An instance that was kept, or a new one. `Err` when there is none: what becomes of the event, and what trying used.
    async fn ready(&self, visit: &Visit<'_>, ends: Instant) -> Result<Ready, (Outcome, GuestCost)> {
        if let Some(kept) = self.warm.take(visit) {
            let (instance, calls, place) = kept.into_parts();
            return Ok(Ready { instance, calls, place: Some(place), init_fuel: 0 });
        }
        let linked = &self.plugin.linked;
        let step = pin!(linked.instantiate(linked.store(INIT_FUEL)));
        match tokio::time::timeout_at(ends.into(), self.in_turns(step)).await {
            Ok(Ok(instance)) => {
                let init_fuel = used(&instance.store).fuel;
                Ok(Ready { instance, calls: 0, place: None, init_fuel })
            }
            Ok(Err((error, mut store))) => {
                let used = used(&store);
                self.computes_long.learn(used.fuel);
                Err((self.broken(&error, &mut store), used))
            }
            Err(_) => {
                let unknown = GuestCost { digest: linked.identity.short, ..GuestCost::default() };
                Err((Outcome::Failed(self.late()), unknown))
            }
        }
    }

    /// `step` is pinned by its caller: passed by value, each wrapper would keep a copy of it in the future of the call.
    async fn in_turns<T>(&self, step: Pin<&mut impl Future<Output = T>>) -> T {
        in_turns(&self.plugin.linked.identity.name, self.computes_long.get(), step).await
    }

    /// Keeps an instance after a clean end, unless it has grown large or there is no room.
    fn keep(&self, visit: &Visit<'_>, mut instance: Instance, calls: u32, place: Option<KeptPlace>) {
        let may_stay = match self.plugin.isolation() {
            Isolation::Event | Isolation::Strict => return,
            Isolation::Batch => true,
            Isolation::Worker { max_calls } => calls < max_calls,
        };
        let large = instance.store.data().limiter.used() > self.plugin.manifest.limits.memory.as_usize() / 2;
        let was_refused = instance.store.data().limiter.was_refused();
        if !may_stay || large || was_refused || !instance.store.data_mut().may_wait() {
            return;
        }
        let Linked { engine, share, weight, .. } = &self.plugin.linked;
        let place = place.or_else(|| engine.keep(share, *weight));
        // An instance of this listener that waits longer, for another tenant perhaps, makes room for this one.
        let place = place.or_else(|| if self.warm.evict() { engine.keep(share, *weight) } else { None });
        if let Some(place) = place {
            instance.store.data_mut().limiter.rest();
            self.warm.put(visit, instance, calls, place);
        }
    }

    /// What becomes of a call that found no room. An instance that only waits makes some for its next try.
    fn without_room(&self) -> Outcome {
        self.warm.evict();
        self.no_room.busy()
    }

    /// The failure of a call that was cut off at its deadline.
    pub(super) fn late(&self) -> Failure {
        let linked = &self.plugin.linked;
        Failure::broken(Cause::Deadline, late(&linked.limits, &linked.identity.name))
    }

    /// Calls `on-event`. Everything that goes in is borrowed from the event.
    pub(super) async fn enter(&self, instance: &mut Instance, visit: &Visit<'_>, ends: Instant) -> wasmtime::Result<Outcome> {
        let Instance { store, guest } = instance;
        let event = visit.event;
        store.data_mut().begin(Some(event.clone()), ends);
        refuel(store, self.plugin.linked.limits.fuel)?;
        store.set_epoch_deadline(1);
        let event = GuestEvent::new(event, visit.max_attempts, visit.deferrals);
        let lists = event.lists(&self.deadline_ms);
        let param = event.param(&lists);
        let answer = guest.outbox_listener_handler().call_on_event(store, param).await?;
        Ok(outcome(answer, &self.plugin.linked.identity))
    }

    pub(super) fn broken(&self, error: &wasmtime::Error, store: &mut wasmtime::Store<HostState>) -> Outcome {
        match explain(error, store, &self.plugin.manifest.limits, &self.plugin.linked.identity.name) {
            CallError::NoSlot | CallError::NoMemory => self.without_room(),
            CallError::Broken(failure) => {
                self.no_room.over();
                Outcome::Failed(failure)
            }
        }
    }
}

/// Whether an answer counts although the host refused the guest memory that its limit allows. `Done` does: the guest coped, and another call
/// would repeat its requests. Any other answer may be due to the refusal, and leads to another call anyway.
pub(super) fn holds_without_memory(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Done)
}

/// The guest's answer in our words, with its delays and texts within bounds and its secrets blanked out.
pub(super) fn outcome(answer: Result<wit::DispatchResult, wit::Failure>, identity: &Identity) -> Outcome {
    let text = |text: &str| keepable(&identity.grants.hide(text), MAX_MESSAGE_BYTES);
    let answer = match answer {
        Ok(wit::DispatchResult::Done) => Ok(DispatchResult::Done),
        Ok(wit::DispatchResult::RetryAfter(millis)) => Ok(DispatchResult::RetryAfter(delay(millis))),
        Ok(wit::DispatchResult::Dead(reason)) => Ok(DispatchResult::Dead(reason.map(|reason| text(&reason)))),
        Err(failure) => Err(Failure {
            message: keepable(&message(&failure, identity), MAX_MESSAGE_BYTES),
            kind: match failure.kind {
                wit_types::FailureKind::Retryable => FailureKind::Retryable,
                wit_types::FailureKind::RetryableAfter(millis) => FailureKind::RetryableAfter(delay(millis)),
                wit_types::FailureKind::Unrecoverable => FailureKind::Unrecoverable,
            },
            cause: Cause::Listener,
        }),
    };
    Outcome::from(answer)
}

/// `[code] message (key=value, …)`, each part where the guest gave it.
fn message<'f>(failure: &'f wit::Failure, identity: &Identity) -> Cow<'f, str> {
    // Before anything is cut: half a secret is not found.
    let hide = |text: &'f str| identity.grants.hide(text);
    let code = failure.code.as_deref().filter(|code| is_code(code));
    if code.is_none() && failure.attributes.is_empty() {
        return hide(&failure.message);
    }
    let mut message = code.map_or_else(String::new, |code| format!("[{}] ", hide(code)));
    message.push_str(cut(&hide(&failure.message), MAX_MESSAGE_BYTES));
    for (index, (key, value)) in failure.attributes.iter().take(MAX_ATTRIBUTES).enumerate() {
        let gap = if index == 0 { " (" } else { ", " };
        message.push_str(&format!("{gap}{}={}", cut(&hide(key), 64), cut(&hide(value), 256)));
    }
    if !failure.attributes.is_empty() {
        message.push(')');
    }
    Cow::Owned(message)
}

fn is_code(code: &str) -> bool {
    (1..=64).contains(&code.len()) && code.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}
