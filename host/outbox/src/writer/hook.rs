//! What an application does around every write: extract, transform, suppress, count.

use crate::event::Envelope;

/// Any error of a hook.
pub type HookError = Box<dyn std::error::Error + Send + Sync>;

/// Called around every write: `before_write` → insert → `after_write` → commit or rollback → `after_commit` or
/// `after_rollback`. Errors and panics of the last three are logged and swallowed: the write stands whatever they say.
///
/// When nobody knows how a transaction ended (a receipt was dropped, or the database did not answer the commit), neither of the
/// last two is called. An event is changed by [`Envelope::with`], which keeps its payload, or [`Envelope::to_builder`]:
/// ```
/// use outbox::Envelope;
/// use outbox::writer::{HookError, WriterHook};
///
/// struct Region;
///
/// impl WriterHook for Region {
///     fn before_write(&self, events: Vec<Envelope>) -> Result<Vec<Envelope>, HookError> {
///         Ok(events.iter().map(|event| event.with(|event| event.header("region", "eu"))).collect::<Result<_, _>>()?)
///     }
/// }
/// ```
pub trait WriterHook: Send + Sync + 'static {
    /// May change the events, add some, or leave some out; an empty list suppresses the write.
    ///
    /// # Errors
    /// Fails the write; nothing is inserted.
    fn before_write(&self, events: Vec<Envelope>) -> Result<Vec<Envelope>, HookError> {
        Ok(events)
    }

    /// The rows are in the open transaction.
    ///
    /// # Errors
    /// Logged.
    fn after_write(&self, events: &[&Envelope]) -> Result<(), HookError> {
        let _ = events;
        Ok(())
    }

    /// The transaction was committed.
    ///
    /// # Errors
    /// Logged.
    fn after_commit(&self, events: &[&Envelope]) -> Result<(), HookError> {
        let _ = events;
        Ok(())
    }

    /// The transaction was rolled back.
    ///
    /// # Errors
    /// Logged.
    fn after_rollback(&self, events: &[&Envelope]) -> Result<(), HookError> {
        let _ = events;
        Ok(())
    }
}
