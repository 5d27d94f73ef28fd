//! What is registered: one listener, and how it wants to be called.

use std::sync::Arc;
use std::time::Duration;

use outbox_event::{Owner, Route};

use super::{BreakerConfig, Listener, RetryPolicy};

/// The most calls at once. At least 1; events beyond that wait, and keep no worker from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrency {
    /// This many calls of this listener.
    OfListener(usize),
    /// This many calls of all listeners together that the same owner registers with this.
    OfOwner(usize),
}

/// One listener and how it wants to be called.
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
    /// When it is paused; `None` for the host's rule.
    pub breaker: Option<BreakerConfig>,
}

impl Registration {
    /// A listener that wants nothing special.
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

    /// With a retry policy of its own.
    #[must_use]
    pub fn retry(mut self, policy: impl RetryPolicy) -> Self {
        self.retry = Some(Arc::new(policy));
        self
    }

    /// With a bound of its own on counted attempts.
    #[must_use]
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = Some(max_attempts);
        self
    }

    /// With a rule of its own for when it is paused.
    #[must_use]
    pub fn breaker(mut self, config: BreakerConfig) -> Self {
        self.breaker = Some(config);
        self
    }

    /// With at most this many calls at once.
    #[must_use]
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = Some(Concurrency::OfListener(calls));
        self
    }

    /// With a deadline of its own.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

/// How many calls at once, and by which name they are counted: listeners with the same name share the limit, and so does what
/// replaces them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)] // for the host
pub struct CallLimit {
    /// The name.
    pub name: Arc<str>,
    /// How many.
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
