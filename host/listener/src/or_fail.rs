//! Turns an error into a failure of the kind that its author means.

use std::error::Error;
use std::fmt::Display;
use std::time::Duration;

use outbox_event::{Failure, FailureKind};

/// Turns an error into a failure. The message begins with what the listener was doing, and ends with the error's causes.
///
/// ```
/// # mod outbox { pub use outbox_listener::OrFail; }
/// use outbox::OrFail;
///
/// let port = "x".parse::<u16>().or_unrecoverable("reading the port");
/// assert_eq!(port.unwrap_err().message, "reading the port: invalid digit found in string");
/// ```
///
/// A plain `?` turns any error into a retryable failure, with its causes as well.
pub trait OrFail<T>: Sized {
    /// Retryable: counted, and tried again when the retry policy says.
    ///
    /// # Errors
    /// The failure, when there was an error.
    fn or_retryable(self, doing: impl Display) -> Result<T, Failure>;

    /// Counted, and tried again after `delay`.
    ///
    /// # Errors
    /// The failure, when there was an error.
    fn or_retryable_after(self, delay: Duration, doing: impl Display) -> Result<T, Failure> {
        self.or_retryable(doing).map_err(|failure| Failure { kind: FailureKind::RetryableAfter(delay), ..failure })
    }

    /// Unrecoverable: the event is dead.
    ///
    /// # Errors
    /// The failure, when there was an error.
    fn or_unrecoverable(self, doing: impl Display) -> Result<T, Failure> {
        self.or_retryable(doing).map_err(|failure| Failure { kind: FailureKind::Unrecoverable, ..failure })
    }
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> OrFail<T> for Result<T, E> {
    fn or_retryable(self, doing: impl Display) -> Result<T, Failure> {
        self.map_err(|error| {
            let failure = Failure::from(error);
            Failure { message: format!("{doing}: {}", failure.message), ..failure }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_becomes_the_failure_that_was_asked_for_with_all_of_its_causes() {
        let failed = || Err::<(), _>(std::io::Error::other("the disk is gone"));
        let minute = Duration::from_secs(60);

        assert_eq!(failed().or_retryable("saving"), Err(Failure::retryable("saving: the disk is gone")));
        assert_eq!(failed().or_unrecoverable("saving"), Err(Failure::unrecoverable("saving: the disk is gone")));
        let later = failed().or_retryable_after(minute, "saving");
        assert_eq!(later, Err(Failure::retryable_after(minute, "saving: the disk is gone")));
        assert_eq!("7".parse::<u8>().or_unrecoverable("reading"), Ok(7));
    }
}
