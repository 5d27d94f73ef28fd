//! All the ways a visit to a listener can end.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// What a listener function returns.
pub type Answer = Result<DispatchResult, Failure>;

/// How a listener ends an event, or puts it off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DispatchResult {
    /// The event is finished.
    Done,
    /// Deliver it again after this delay. Not counted as an attempt.
    RetryAfter(Duration),
    /// Never deliver it again, for this reason.
    Dead(Option<String>),
}

/// Done: what a function returns that has nothing else to say.
impl From<()> for DispatchResult {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// Not now: deliver the event again after `delay`. Nothing failed, so this is not counted as an attempt.
#[must_use]
pub fn retry_after(delay: Duration) -> DispatchResult {
    DispatchResult::RetryAfter(delay)
}

/// Never deliver the event again. The reason is kept with it, for people.
#[must_use]
pub fn dead(reason: impl fmt::Display) -> DispatchResult {
    DispatchResult::Dead(Some(reason.to_string()))
}

/// The listener could not do it.
///
/// Any error turns into a retryable failure with `?`, its causes included: `sending the mail: connection refused`. To make
/// another failure of it, say so: `.map_err(Failure::unrecoverable)?`, or by `OrFail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong, for people; kept with the event.
    pub message: String,
    /// What follows from the failure.
    pub kind: FailureKind,
    /// Who says so.
    pub cause: Cause,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Counted; tried again when the retry policy says.
    Retryable,
    /// Counted; tried again after this delay.
    RetryableAfter(Duration),
    /// Not counted; dead at once.
    Unrecoverable,
}

/// Who ended an attempt, by a stable code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The listener itself answered with a failure.
    Listener,
    /// A native listener or an interceptor panicked.
    Panic,
    /// An interceptor refused the event.
    Interceptor,
    /// Used up its instructions.
    Fuel,
    /// Took too long.
    Deadline,
    /// Asked for more memory than it may have.
    Memory,
    /// Recursed too deep.
    Stack,
    /// Executed an instruction that stops it: a panic, `unreachable`, a division by zero.
    Trap,
    /// Answered or wrote more than it may.
    Output,
    /// Called the host too often.
    HostCalls,
    /// A sink did not confirm the event.
    Sink,
}

impl Cause {
    const ALL: [Self; 11] = [
        Self::Listener,
        Self::Panic,
        Self::Interceptor,
        Self::Fuel,
        Self::Deadline,
        Self::Memory,
        Self::Stack,
        Self::Trap,
        Self::Output,
        Self::HostCalls,
        Self::Sink,
    ];

    /// The cause with this code.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.code() == code)
    }

    /// The code in logs, metrics and stored errors.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Listener => "listener",
            Self::Panic => "panic",
            Self::Interceptor => "interceptor",
            Self::Fuel => "fuel",
            Self::Deadline => "deadline",
            Self::Memory => "memory",
            Self::Stack => "stack",
            Self::Trap => "trap",
            Self::Output => "output",
            Self::HostCalls => "host-calls",
            Self::Sink => "sink",
        }
    }

    /// Whether it tells of a broken listener, rather than of a piece of work that did not succeed.
    #[must_use]
    pub const fn is_breakage(self) -> bool {
        !matches!(self, Self::Listener | Self::Interceptor)
    }
}

impl Failure {
    /// A failure that is counted and tried again when the retry policy says.
    #[must_use]
    pub fn retryable(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), kind: FailureKind::Retryable, cause: Cause::Listener }
    }

    /// A failure that is counted and tried again after `delay`.
    #[must_use]
    pub fn retryable_after(delay: Duration, message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), kind: FailureKind::RetryableAfter(delay), cause: Cause::Listener }
    }

    /// A failure that will never become a success: the event is dead.
    #[must_use]
    pub fn unrecoverable(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), kind: FailureKind::Unrecoverable, cause: Cause::Listener }
    }

    /// A retryable failure that the host found, not the listener.
    #[must_use]
    pub fn broken(cause: Cause, message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), kind: FailureKind::Retryable, cause }
    }
}

/// The message, with its code in front when the host found the failure: `fuel: used up 200000000 …`.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::Listener => f.write_str(&self.message),
            cause => write!(f, "{}: {}", cause.code(), self.message),
        }
    }
}

/// Retryable: an error that nobody looked at is more often a passing one, and a retry loses nothing. Takes whatever can be boxed
/// as an error: any [`Error`], `anyhow::Error`, a boxed error, a text.
impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failure {
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

/// What one attempt came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Finished.
    Done,
    /// Later, not counted.
    RetryAfter(Duration),
    /// Given up by the listener, for this reason.
    Dead(String),
    /// It did not work.
    Failed(Failure),
    /// Nobody answers this route.
    Unroutable(String),
    /// It cannot be done now, for no fault of the event: the breaker is open, or what it needs is used up or away. Nothing is
    /// counted.
    Busy {
        /// When to look again.
        after: Duration,
        /// Why: a clause that completes "it waits because …", without payload or secret. It is stored in the row, cut to 300 characters.
        reason: Cow<'static, str>,
    },
}

impl Outcome {
    /// Whether the listener did what it wanted to do: what it did beside is committed then.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::Done | Self::RetryAfter(_) | Self::Dead(_))
    }
}

impl From<Result<DispatchResult, Failure>> for Outcome {
    fn from(answer: Result<DispatchResult, Failure>) -> Self {
        match answer {
            Ok(DispatchResult::Done) => Self::Done,
            Ok(DispatchResult::RetryAfter(delay)) => Self::RetryAfter(delay),
            Ok(DispatchResult::Dead(reason)) => Self::Dead(reason.unwrap_or_else(|| "the listener gave no reason".to_owned())),
            Err(failure) => Self::Failed(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_can_be_boxed_as_an_error_becomes_a_retryable_failure_that_names_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("reading the port")]
        struct Port(#[source] std::num::ParseIntError);
        let port = || -> Answer {
            "x".parse::<u16>().map_err(Port)?;
            Ok(().into())
        };
        let boxed = || -> Result<(), Box<dyn Error + Send + Sync>> { Err("no port".into()) };

        assert_eq!(port(), Err(Failure::retryable("reading the port: invalid digit found in string")));
        assert_eq!(boxed().map_err(Failure::from), Err(Failure::retryable("no port")));
        assert_eq!(Failure::from("no port"), Failure::retryable("no port"));
        assert_eq!(Failure::from(anyhow_like()), Failure::retryable("outer: inner"));
    }

    /// As `anyhow::Error`: no error itself, and boxed as one.
    fn anyhow_like() -> impl Into<Box<dyn Error + Send + Sync>> {
        struct Opaque;
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] std::io::Error);
        impl From<Opaque> for Box<dyn Error + Send + Sync> {
            fn from(_: Opaque) -> Self {
                Box::new(Outer(std::io::Error::other("inner")))
            }
        }
        Opaque
    }

    #[test]
    fn each_cause_is_known_by_its_code() {
        let mut codes: Vec<&str> = Cause::ALL.iter().map(|cause| cause.code()).collect();
        assert!(Cause::ALL.into_iter().all(|cause| Cause::from_code(cause.code()) == Some(cause)), "{codes:?}");
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Cause::ALL.len());
        assert_eq!(Cause::from_code("another"), None);
    }
}
