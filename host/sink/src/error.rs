//! Why a message was not confirmed.

use std::time::Duration;

use outbox_event::deceptive::is_deceptive;

/// Why a message was not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The receiver, or a check of this host, refuses the message. Sent again, it will be refused again, unless somebody changes a
    /// configuration.
    #[error("{reason}")]
    Rejected {
        /// Why, for people. Nothing in it is secret.
        reason: String,
    },
    /// The receiver refuses every message: there is nothing at its address, or these credentials are not accepted.
    #[error("{reason}")]
    Denied {
        /// Why, for people. Nothing in it is secret.
        reason: String,
    },
    /// The receiver failed at this message, and may not fail again. It may have arrived all the same.
    #[error("{reason}")]
    Failed {
        /// Why, for people. Nothing in it is secret.
        reason: String,
    },
    /// The receiver is unavailable: it takes no message now, and the cause is not this message. The sink may have other receivers that
    /// work. The message may have arrived all the same.
    #[error("{reason}")]
    Unavailable {
        /// Why, for people. Nothing in it is secret.
        reason: String,
        /// After how long the receiver asks to get it again; `None` when it did not say.
        retry_after: Option<Duration>,
        /// How long ago the receiver was last tried, if this message was not sent. Zero if it was sent, or if the sink does not know.
        tried_ago: Duration,
    },
    /// The message's destination is closed to every host: it is missing or full, or this user may not write to it. Other destinations of
    /// the sink may work.
    #[error("{reason}")]
    Closed {
        /// Why, for people. Nothing in it is secret.
        reason: String,
    },
    /// There was no room for the message, which was not sent: nothing is wrong with it, nor with its receiver.
    #[error("{reason}")]
    Crowded {
        /// Why, for people. Nothing in it is secret.
        reason: String,
    },
    /// The whole sink is down: no message is sent before `retry_after` is over. This one may have arrived all the same.
    #[error("{reason}")]
    Down {
        /// Why, for people. Nothing in it is secret.
        reason: String,
        /// After how long the sink is tried again.
        retry_after: Duration,
        /// How long ago the sink was last tried, if this message was not sent. Zero if it was sent, or if the sink does not know.
        tried_ago: Duration,
    },
}

impl SinkError {
    /// A refusal.
    pub(super) fn rejected(reason: impl Into<String>) -> Self {
        Self::Rejected { reason: reason.into() }
    }

    /// Not confirmed this time, perhaps for a reason that is the message's.
    pub(super) fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into() }
    }

    /// Refused as every message would be.
    #[cfg(feature = "http")]
    pub(super) fn denied(reason: impl Into<String>) -> Self {
        Self::Denied { reason: reason.into() }
    }

    /// The receiver is unavailable; the cause is not the message.
    pub(super) fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into(), retry_after: None, tried_ago: Duration::ZERO }
    }

    /// The same, and not to be sent again before this rest is over.
    #[cfg(any(feature = "http", feature = "kafka", feature = "redis"))]
    pub(super) fn unavailable_for(rest: Duration, reason: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into(), retry_after: Some(rest), tried_ago: Duration::ZERO }
    }

    /// The destination takes no message, whichever host sends it.
    #[cfg(any(feature = "amqp", feature = "kafka", feature = "nats", feature = "redis"))]
    pub(super) fn closed(reason: impl Into<String>) -> Self {
        Self::Closed { reason: reason.into() }
    }

    /// There was no room for the message, which is nobody's fault: it is sent again soon, and that is no failed attempt.
    pub(super) fn crowded(reason: impl Into<String>) -> Self {
        Self::Crowded { reason: reason.into() }
    }

    /// The sink as a whole does not work. The [breaker](super::breaker) says when it is tried again.
    pub(super) fn down(reason: impl Into<String>) -> Self {
        Self::down_for(Duration::ZERO, reason)
    }

    /// The same, and not to be tried before this rest is over.
    pub(super) fn down_for(rest: Duration, reason: impl Into<String>) -> Self {
        Self::Down { reason: reason.into(), retry_after: rest, tried_ago: Duration::ZERO }
    }

    /// The answer for a message that its sink forgot to answer: nothing says that the message was confirmed.
    ///
    /// # Errors
    /// Always.
    #[doc(hidden)] // for the host
    pub fn unanswered() -> Result<(), Self> {
        Err(Self::failed("the sink gave no answer"))
    }

    /// Whether the message may be confirmed when it is sent again as it is.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::Rejected { .. } | Self::Denied { .. })
    }

    /// Whether the whole sink is down.
    #[must_use]
    pub fn is_down(&self) -> bool {
        matches!(self, Self::Down { .. })
    }
}

/// A text from outside, made safe for an error message: one line of bounded length without control characters.
pub(super) fn quoted(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    let mut safe = String::new();
    for (number, c) in text.trim().chars().enumerate() {
        if number == MAX_CHARS {
            safe.push('…');
            break;
        }
        if is_deceptive(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_other_side_says_is_cut_and_cannot_steer_a_terminal() {
        assert_eq!(
            quoted("  no\r\n\u{1b}[31m such\u{202e} k\u{2028}ey\u{61c} "),
            "no\\r\\n\\u{1b}[31m such\\u{202e} k\\u{2028}ey\\u{61c}"
        );
        let long = quoted(&"x".repeat(10_000));
        assert_eq!(long.chars().count(), 301);
        assert!(long.ends_with('…'));
    }
}
