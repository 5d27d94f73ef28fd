//! What happens around every attempt, whatever its listener: audit, logging, tracing.

use async_trait::async_trait;

use crate::event::Event;
use crate::listener::Outcome;

/// Called around every attempt. All that are called before it have the dispatcher's deadline together, and so have all that are
/// called after it. Source: specification 9.3, 9.5.
#[async_trait]
pub trait Interceptor: Send + Sync + 'static {
    /// Before the listener, in the order of registration; before it is known whether anybody answers the event, or may now.
    ///
    /// # Errors
    /// A text ends the attempt as a counted failure; the listener is not called.
    async fn before(&self, event: &Event) -> Result<(), String> {
        let _ = event;
        Ok(())
    }

    /// After the listener, in reverse order, also when it failed, and when nobody was there to answer ([`Outcome::Unroutable`]) or
    /// nobody could now ([`Outcome::Busy`]). Not called when an earlier `before` ended the attempt, or the claim was lost.
    ///
    /// # Errors
    /// A text is logged; the outcome stands.
    async fn after(&self, event: &Event, outcome: &Outcome) -> Result<(), String> {
        let _ = (event, outcome);
        Ok(())
    }
}

/// An interceptor that calls a function before every attempt. A text ends the attempt as a counted failure.
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

/// An interceptor that calls a function after every attempt. A text is logged; the outcome stands.
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
