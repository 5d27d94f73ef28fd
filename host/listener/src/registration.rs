//! A registered listener, and how it is called.

use std::sync::Arc;
use std::time::Duration;

use outbox_event::{Owner, Route};

use super::{BreakerConfig, Listener, RetryPolicy};

/// The most concurrent calls, at least 1. Further events wait without occupying a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrency {
    /// This many calls of this listener.
    OfListener(usize),
    /// This many calls of all listeners together that the same owner registers with this limit.
    OfOwner(usize),
}

/// A listener, and how it is called.
#[derive(Clone)]
pub struct Registration {
    /// The route that it answers.
    pub route: Route,
    /// The code.
    pub listener: Arc<dyn Listener>,
    /// Its own retry policy; `None` for the dispatcher's.
    pub retry: Option<Arc<dyn RetryPolicy>>,
    /// Its own bound on counted attempts; `None` for the dispatcher's.
    pub max_attempts: Option<u32>,
    /// The longest that one call may take; `None` for the dispatcher's bound.
    pub deadline: Option<Duration>,
    /// The most calls at once; `None` for as many as there are workers.
    pub concurrency: Option<Concurrency>,
    /// Its own circuit breaker; `None` for the host's.
    pub breaker: Option<BreakerConfig>,
}

impl Registration {
    /// A listener with the default settings.
    pub fn new(route: Route, listener: impl Listener) -> Self {
        Self {
            route,
            listener: Arc::new(listener),
            retry: None,
            max_attempts: None,
            deadline: None,
            concurrency: None,
            breaker: None,
        }
    }

    /// Sets its own retry policy.
    #[must_use]
    pub fn retry(mut self, policy: impl RetryPolicy) -> Self {
        self.retry = Some(Arc::new(policy));
        self
    }

    /// Sets its own bound on counted attempts.
    #[must_use]
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = Some(max_attempts);
        self
    }

    /// Sets its own circuit breaker.
    #[must_use]
    pub fn breaker(mut self, config: BreakerConfig) -> Self {
        self.breaker = Some(config);
        self
    }

    /// Limits it to this many concurrent calls.
    #[must_use]
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = Some(Concurrency::OfListener(calls));
        self
    }

    /// Sets its own deadline.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

/// A limit on concurrent calls, and the name under which they are counted. Listeners with the same name share the limit, also after they
/// are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)] // for the host
pub struct CallLimit {
    /// The name.
    pub name: Arc<str>,
    /// The most concurrent calls.
    pub calls: usize,
}

impl CallLimit {
    pub(super) fn of(registration: &Registration, owner: &Owner) -> Option<Self> {
        Some(match registration.concurrency? {
            Concurrency::OfListener(calls) => Self { name: Arc::from(registration.route.to_string()), calls: calls.max(1) },
            Concurrency::OfOwner(calls) => Self { name: Arc::from(owner.to_string()), calls: calls.max(1) },
        })
    }
}
