//! What happens around every attempt, whatever its listener: audit, logging, tracing.

use async_trait::async_trait;

use crate::event::Event;
use crate::listener::Outcome;

/// Called around every attempt. Source: specification 9.5.
#[async_trait]
pub trait Interceptor: Send + Sync + 'static {
    /// Before the listener, in the order of registration.
    ///
    /// # Errors
    /// A text ends the attempt as a counted failure; the listener is not called.
    async fn before(&self, event: &Event) -> Result<(), String> {
        let _ = event;
        Ok(())
    }

    /// After the listener, in reverse order, also when it failed. Not called when an earlier `before` ended the attempt.
    ///
    /// # Errors
    /// A text is logged; the outcome stands.
    async fn after(&self, event: &Event, outcome: &Outcome) -> Result<(), String> {
        let _ = (event, outcome);
        Ok(())
    }
}
