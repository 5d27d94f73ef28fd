//! One event's visit to a plugin: an instance, one call, one outcome.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::bindings::exports::outbox::listener::handler as wit;
use super::bindings::outbox::listener::types as wit_types;
use super::call_error::{CallError, explain};
use super::engine::KeptPlace;
use super::limits::{INIT_FUEL, MAX_MESSAGE_BYTES, delay};
use super::manifest::Isolation;
use super::plugin::{Instance, Plugin};
use super::text::keepable;
use super::warm::WarmInstances;
use crate::event::Event;
use crate::listener::{Cause, DispatchResult, Failure, FailureKind, Listener, Outcome, Visit};

/// How long a call waits when all slots of the pool are taken.
const NO_SLOT: Duration = Duration::from_millis(100);

/// A plugin as the listener of one route.
pub(super) struct PluginListener {
    plugin: Arc<Plugin>,
    warm: WarmInstances,
}

impl PluginListener {
    pub(super) fn new(plugin: Arc<Plugin>) -> Self {
        let warm = match plugin.isolation() {
            Isolation::Event => WarmInstances::new(0),
            Isolation::Batch | Isolation::Worker { .. } => WarmInstances::new(plugin.linked.engine.workers),
        };
        Self { plugin, warm }
    }

    /// Drops kept instances that nobody came for.
    pub(super) fn sweep(&self, idle: Duration) {
        self.warm.sweep(idle);
    }
}

impl Listener for PluginListener {
    fn call<'a>(&'a self, visit: Visit<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let deadline = self.plugin.manifest.limits.deadline;
            match tokio::time::timeout(deadline, self.visit(&visit)).await {
                Ok(outcome) => outcome,
                Err(_) => Outcome::Failed(Failure::broken(
                    Cause::Deadline,
                    format!(
                        "took longer than {}; to allow more, set limits.deadline in {}.toml",
                        humantime::format_duration(deadline),
                        self.plugin.linked.identity.name
                    ),
                )),
            }
        })
    }
}

impl PluginListener {
    async fn visit(&self, visit: &Visit<'_>) -> Outcome {
        let linked = &self.plugin.linked;
        let (mut instance, calls, place) = match self.warm.take(visit, self.plugin.isolation()) {
            Some(kept) => {
                let (instance, calls, place) = kept.into_parts();
                (instance, calls, Some(place))
            }
            None => match linked.instantiate(linked.store(INIT_FUEL)).await {
                Ok(instance) => (instance, 0, None),
                Err((error, mut store)) => return self.broken(&error, &mut store),
            },
        };
        match call(&mut instance, visit.event, linked.limits.fuel).await {
            Ok(outcome) => {
                instance.store.data_mut().end();
                self.keep(visit, instance, calls + 1, place);
                outcome
            }
            Err(error) => self.broken(&error, &mut instance.store),
        }
    }

    /// Keeps an instance after a clean end, unless it has grown large or there is no room.
    fn keep(&self, visit: &Visit<'_>, instance: Instance, calls: u32, place: Option<KeptPlace>) {
        let may_stay = match self.plugin.isolation() {
            Isolation::Event => return,
            Isolation::Batch => true,
            Isolation::Worker { max_calls } => calls < max_calls,
        };
        let large = instance.store.data().limiter.used() > self.plugin.manifest.limits.memory.as_usize() / 2;
        if !may_stay || large || instance.store.data().limiter.denied {
            return;
        }
        if let Some(place) = place.or_else(|| self.plugin.linked.engine.keep()) {
            self.warm.put(visit, instance, calls, place);
        }
    }

    fn broken(&self, error: &wasmtime::Error, store: &mut wasmtime::Store<super::capability::State>) -> Outcome {
        match explain(error, store, &self.plugin.manifest.limits, &self.plugin.linked.identity.name) {
            CallError::NoSlot => Outcome::Busy { after: NO_SLOT },
            CallError::Broken(failure) => Outcome::Failed(failure),
        }
    }
}

/// Calls `on-event`. Everything that goes in is borrowed from the event.
async fn call(instance: &mut Instance, event: &Event, fuel: u64) -> wasmtime::Result<Outcome> {
    let Instance { store, guest } = instance;
    store.data_mut().begin(Some(event.id()));
    store.set_fuel(fuel)?;
    store.set_epoch_deadline(1);
    let (id, delivery_id) = (event.id(), event.delivery_id());
    let headers: Vec<(&str, &str)> = event.headers().iter().collect();
    let param = wit::Event {
        id: id.as_str(),
        delivery_id: &delivery_id,
        route: wit_route(event),
        aggregate_id: event.aggregate_id(),
        tenant_id: event.tenant_id(),
        sequence: event.sequence(),
        occurred_at_ms: event.occurred_at().as_millis_unsigned(),
        attempt: event.attempt(),
        content_type: event.content_type(),
        payload: event.payload_bytes(),
        headers: &headers,
        attributes: &[],
    };
    let answer = guest.outbox_listener_handler().call_on_event(store, param).await?;
    Ok(outcome(answer))
}

fn wit_route(event: &Event) -> wit_types::RouteParam<'_> {
    wit_types::RouteParam { aggregate_type: event.aggregate_type().as_str(), event_type: event.event_type().as_str() }
}

/// The guest's answer in our words, with its delays and texts within bounds.
fn outcome(answer: Result<wit::DispatchResult, wit::Failure>) -> Outcome {
    let answer = match answer {
        Ok(wit::DispatchResult::Done) => Ok(DispatchResult::Done),
        Ok(wit::DispatchResult::RetryAfter(millis)) => Ok(DispatchResult::RetryAfter(delay(millis))),
        Ok(wit::DispatchResult::Dead(reason)) => {
            Ok(DispatchResult::Dead(reason.map(|reason| keepable(&reason, MAX_MESSAGE_BYTES))))
        }
        Err(failure) => Err(Failure {
            message: keepable(&failure.message, MAX_MESSAGE_BYTES),
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
