//! A part of [`outbox`](https://docs.rs/outbox): the [`Listener`] trait, and the registry that finds the one listener of a route. Use it
//! through `outbox`; alone it promises nothing.
//!
//! A listener may be a Rust closure, a plugin or a relay; its caller cannot tell which. Beside the registry are the rules for calling a
//! listener: retry policies, circuit breakers and limits. [`Calls`] and [`Routes`] count the costs and the results of calls.
//!
//! This package knows events; it knows neither tables nor queues nor plugins.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod breaker;
mod breakers;
mod error_kind;
mod health;
mod or_fail;
mod progress;
mod registration;
mod registry;
mod reminder;
mod reply;
mod retry;
mod totals;
mod typed;
mod unroutable;
mod waiting;

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use outbox_event::{DispatchResult, Event, Failure, Outcome};

pub use breaker::BreakerConfig;
#[doc(hidden)] // for the host
pub use breaker::{Admittance, Breaker, BreakerPause};
#[doc(hidden)] // for the host
pub use breakers::BreakerOf;
pub use error_kind::error_kind;
#[doc(hidden)] // for the host
pub use health::Health;
pub use or_fail::OrFail;
#[doc(hidden)] // for the host
pub use progress::{Progress, Stall};
#[doc(hidden)] // for the host
pub use registration::CallLimit;
pub use registration::{Concurrency, Registration};
pub use registry::{Listeners, RegistryEntry, RouteConflict};
#[doc(hidden)] // for the host
pub use reminder::Reminder;
pub use reply::Reply;
pub use retry::{Exponential, Fixed, Jittered, RetryPolicy};
pub use totals::{CallCounts, CallTotals, Calls, Counter, Histogram, RouteTotals, Routes};
#[doc(hidden)] // for the host
pub use totals::{Lags, Swap};
pub use typed::{Context, JsonListener};
#[doc(hidden)] // for the host
pub use unroutable::{HAD_LISTENER, NO_LISTENER_AT_ALL, NoListener, waits_for_one};
pub use unroutable::{awaited, is_unroutable};
#[doc(hidden)] // for the host and the sandbox
pub use waiting::{noticing_turns, wait_for_turn};

/// One visit of an event to its listener.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    /// The event.
    pub event: &'a Arc<Event>,
    /// The number of the worker that calls, from 0. A worker makes one call at a time, so an application's listener can keep state per
    /// worker without sharing it. Plugins and relays ignore it.
    pub worker: usize,
    /// The number of the event's batch. Events of one batch share it.
    pub batch: u64,
    /// How often the listener has deferred this event before.
    pub deferrals: u32,
    /// Counted failures after which the event is dead.
    pub max_attempts: u32,
    /// When the visit began; the claim was held then. Deadlines count from here, so that nothing comes between the look at the
    /// claim and the clock: not even a process that is stopped for longer than its leases.
    pub began: Instant,
}

/// Reacts to the events of its route.
///
/// Implemented by closures from `Arc<Event>` to a future of `Result<DispatchResult, Failure>`. A listener is called at least
/// once for each event; it may be cut off at any await when its deadline or its lease ends.
pub trait Listener: Send + Sync + 'static {
    /// Handles one event. A listener without effects turns its outcome into a [`Reply`] by `into()`.
    fn call<'a>(&'a self, visit: Visit<'a>) -> BoxFuture<'a, Reply>;
}

impl<F, R> Listener for F
where
    F: Fn(Arc<Event>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<DispatchResult, Failure>> + Send + 'static,
{
    fn call<'a>(&'a self, visit: Visit<'a>) -> BoxFuture<'a, Reply> {
        let answer = self(visit.event.clone());
        Box::pin(async move { Outcome::from(answer.await).into() })
    }
}
