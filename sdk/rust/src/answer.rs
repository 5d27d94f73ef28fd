//! How a listener ends a delivery.

use std::error::Error;
use std::fmt::Display;
use std::time::Duration;

/// What every listener function returns.
pub type Answer = Result<DispatchResult, Failure>;

/// How a listener ends an event, or puts it off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DispatchResult {
    /// The event is finished.
    Done,
    /// Deliver it again after so long, in whole milliseconds. Not counted as an attempt. See [`retry_after`].
    RetryAfter(Duration),
    /// Never deliver it again, for this reason. See [`dead`].
    Dead(Option<String>),
}

/// Not now: deliver the event again after `delay`. Nothing failed, so this is not counted as an attempt.
#[must_use]
pub fn retry_after(delay: Duration) -> DispatchResult {
    DispatchResult::RetryAfter(delay)
}

/// Never deliver the event again. The reason is kept with it, for people.
#[must_use]
pub fn dead(reason: impl Display) -> DispatchResult {
    DispatchResult::Dead(Some(reason.to_string()))
}

/// The listener could not do it.
///
/// Any [`Error`] turns into a retryable failure with `?`, its causes included: `sending the mail: connection refused`. To make
/// another failure of it, say so: `.map_err(Failure::unrecoverable)?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong, for people; kept with the event.
    pub message: String,
    /// What follows.
    pub kind: FailureKind,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Counted; delivered again when the host's retry policy says, until its last attempt.
    Retryable,
    /// Counted; delivered again after so long, in whole milliseconds.
    RetryableAfter(Duration),
    /// It will never work: the event is dead.
    Unrecoverable,
}

impl Failure {
    /// A failure that is counted and tried again when the host's retry policy says.
    #[must_use]
    pub fn retryable(message: impl Display) -> Self {
        Self { message: message.to_string(), kind: FailureKind::Retryable }
    }

    /// A failure that is counted and tried again after `delay`.
    #[must_use]
    pub fn retryable_after(delay: Duration, message: impl Display) -> Self {
        Self { message: message.to_string(), kind: FailureKind::RetryableAfter(delay) }
    }

    /// A failure that will never become a success: the event is dead.
    #[must_use]
    pub fn unrecoverable(message: impl Display) -> Self {
        Self { message: message.to_string(), kind: FailureKind::Unrecoverable }
    }
}

/// Retryable: an error that nobody looked at is more often a passing one, and a retry loses nothing.
impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::retryable(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct MailError(std::num::ParseIntError);

    impl Display for MailError {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("reading the port")
        }
    }

    impl Error for MailError {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    fn port(text: &str) -> Result<u16, Failure> {
        Ok(text.parse().map_err(MailError)?)
    }

    #[test]
    fn any_error_becomes_a_retryable_failure_that_names_its_causes() {
        let failure = port("x").unwrap_err();

        assert_eq!(failure, Failure::retryable("reading the port: invalid digit found in string"));
    }
}
