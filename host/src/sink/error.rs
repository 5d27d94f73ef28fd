//! Why a message was not confirmed.

use std::time::Duration;

use crate::deceptive::is_deceptive;

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
    /// The message was not confirmed this time, but may be later. It may have arrived all the same.
    #[error("{reason}")]
    Unavailable {
        /// Why, for people. Nothing in it is secret.
        reason: String,
        /// After how long the receiver asks to get it again; `None` when it did not say.
        retry_after: Option<Duration>,
    },
    /// The whole sink is down: no message is sent before `retry_after` is over. This one may have arrived all the same.
    #[error("{reason}")]
    Down {
        /// Why, for people. Nothing in it is secret.
        reason: String,
        /// After how long the sink is tried again.
        retry_after: Duration,
    },
}

impl SinkError {
    /// A refusal.
    pub(super) fn rejected(reason: impl Into<String>) -> Self {
        Self::Rejected { reason: reason.into() }
    }

    /// Not confirmed this time, for a reason that concerns this message alone.
    pub(super) fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into(), retry_after: None }
    }

    /// The sink as a whole does not work. The [breaker](super::breaker) says when it is tried again.
    pub(super) fn down(reason: impl Into<String>) -> Self {
        Self::Down { reason: reason.into(), retry_after: Duration::ZERO }
    }

    /// The answer for a message that its sink forgot to answer: nothing says that the message was confirmed.
    ///
    /// # Errors
    /// Always.
    pub(crate) fn unanswered() -> Result<(), Self> {
        Err(Self::unavailable("the sink gave no answer"))
    }

    /// Whether the message may be confirmed when it is sent again as it is.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::Rejected { .. })
    }

    /// What a plugin is told of it: the kind of failure, and the status that an HTTP endpoint answered with. The reason is for the
    /// operator: it names the sink's address and repeats what the other side said.
    pub(crate) fn for_guests(&self) -> String {
        let what = match self {
            Self::Rejected { .. } => "refused the message",
            Self::Unavailable { .. } => "did not confirm the message",
            Self::Down { .. } => "is down",
        };
        self.http_status().map_or_else(|| what.to_owned(), |status| format!("{what}: it answered {status}"))
    }

    /// An HTTP endpoint's status stands in the reason, and no reason of another sink is written like that.
    fn http_status(&self) -> Option<u16> {
        let text = self.to_string();
        text.split_once(" answered ")?.1.get(..3)?.parse().ok()
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
    fn a_plugin_is_told_the_kind_of_failure_and_the_status_alone() {
        let told = [
            SinkError::rejected("https://a answered 422: s3cret").for_guests(),
            SinkError::unavailable("https://a did not answer within 10s").for_guests(),
            SinkError::down("NATS at nats://a cannot be connected to").for_guests(),
        ];
        assert_eq!(told, ["refused the message: it answered 422", "did not confirm the message", "is down"]);
    }

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
