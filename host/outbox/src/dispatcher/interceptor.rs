//! Interceptors: code that runs around every attempt of every listener, such as an audit or logging.

use async_trait::async_trait;

use crate::event::Event;
use crate::listener::Outcome;

/// Called around every attempt. All calls of `before` for one attempt share the dispatcher's deadline, and so do all calls of
/// `after`.
#[async_trait]
pub trait Interceptor: Send + Sync + 'static {
    /// Called before the listener, in the order of registration; also for events without a listener, or with one that is paused.
    ///
    /// # Errors
    /// Ends the attempt as a counted failure with this text; the listener is not called.
    async fn before(&self, event: &Event) -> Result<(), String> {
        let _ = event;
        Ok(())
    }

    /// Called after the listener, in reverse order, also when it failed, when there was none ([`Outcome::Unroutable`]), or when
    /// it had no room ([`Outcome::Busy`]). Not called when an earlier `before` ended the attempt, or the claim was lost.
    ///
    /// # Errors
    /// The text is logged; the outcome does not change.
    async fn after(&self, event: &Event, outcome: &Outcome) -> Result<(), String> {
        let _ = (event, outcome);
        Ok(())
    }
}

/// An interceptor that calls a function before every attempt. An error ends the attempt as a counted failure.
///
/// ```
/// use outbox::dispatcher::before;
/// use outbox::Event;
///
/// let tenants_only =
///     before(|event: &Event| event.tenant_id().map(|_| ()).ok_or_else(|| "an event without a tenant".to_owned()));
/// ```
pub fn before<F>(call: F) -> impl Interceptor
where
    F: Fn(&Event) -> Result<(), String> + Send + Sync + 'static,
{
    Before(call)
}

/// An interceptor that calls a function after every attempt. An error is logged; the outcome does not change.
///
/// ```
/// use outbox::dispatcher::after;
/// use outbox::listener::Outcome;
/// use outbox::Event;
///
/// let audit = after(|event: &Event, outcome: &Outcome| {
///     println!("{}: {outcome:?}", event.id());
///     Ok(())
/// });
/// ```
pub fn after<F>(call: F) -> impl Interceptor
where
    F: Fn(&Event, &Outcome) -> Result<(), String> + Send + Sync + 'static,
{
    After(call)
}

struct Before<F>(F);

#[async_trait]
impl<F: Fn(&Event) -> Result<(), String> + Send + Sync + 'static> Interceptor for Before<F> {
    async fn before(&self, event: &Event) -> Result<(), String> {
        self.0(event)
    }
}

struct After<F>(F);

#[async_trait]
impl<F: Fn(&Event, &Outcome) -> Result<(), String> + Send + Sync + 'static> Interceptor for After<F> {
    async fn after(&self, event: &Event, outcome: &Outcome) -> Result<(), String> {
        self.0(event, outcome)
    }
}
