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
    /// Deliver it again after this delay, in whole milliseconds. Not counted as an attempt. See [`retry_after`].
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
/// Any error turns into a retryable failure with `?`, its causes included: `sending the mail: connection refused`. To make
/// another failure of it, say so: `.map_err(Failure::unrecoverable)?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong, for people; kept with the event.
    pub message: String,
    /// A short constant for metrics and filters, such as `payment-declined`: 1 to 64 of a-z, 0-9 and dashes.
    pub code: Option<String>,
    /// Details for people; the host keeps up to 16 with the message.
    pub details: Vec<(String, String)>,
    /// What follows.
    pub kind: FailureKind,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Counted; delivered again when the host's retry policy says, until its last attempt.
    Retryable,
    /// Counted; delivered again after this delay, in whole milliseconds.
    RetryableAfter(Duration),
    /// It will never work: the event is dead.
    Unrecoverable,
}

impl Failure {
    /// A failure that is counted and tried again when the host's retry policy says.
    #[must_use]
    pub fn retryable(message: impl Display) -> Self {
        Self::new(message, FailureKind::Retryable)
    }

    /// A failure that is counted and tried again after `delay`.
    #[must_use]
    pub fn retryable_after(delay: Duration, message: impl Display) -> Self {
        Self::new(message, FailureKind::RetryableAfter(delay))
    }

    /// A failure that will never become a success: the event is dead.
    #[must_use]
    pub fn unrecoverable(message: impl Display) -> Self {
        Self::new(message, FailureKind::Unrecoverable)
    }

    /// With a short constant for metrics and filters.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// With one detail more.
    #[must_use]
    pub fn detail(mut self, key: impl Into<String>, value: impl Display) -> Self {
        self.details.push((key.into(), value.to_string()));
        self
    }

    fn new(message: impl Display, kind: FailureKind) -> Self {
        Self { message: message.to_string(), code: None, details: Vec::new(), kind }
    }
}

/// Retryable: an error that nobody looked at is more often a passing one, and a retry loses nothing. Takes whatever can be boxed
/// as an error: any [`Error`], `anyhow::Error`, `Box<dyn Error>`, a text.
impl<E: Into<Box<dyn Error>>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
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

    #[test]
    fn an_error_that_was_boxed_and_a_text_become_failures_as_well() {
        let boxed = || -> Result<(), Box<dyn Error>> { Err("no port".into()) };
        let answer = || -> Answer { boxed().map(|()| DispatchResult::Done).map_err(Failure::from) };

        assert_eq!(answer().unwrap_err(), Failure::retryable("no port"));
        assert_eq!(Failure::from("x").code("no-port").detail("port", 7).details, [("port".to_owned(), "7".to_owned())]);
    }
}
