//! The settings that every kind of sink has.

use std::time::Duration;

/// The default time within which a message must be confirmed: below the deadline of a call.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// The settings that every kind of sink has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonConfig {
    /// The time within which a message must be confirmed. Default 10 s; above zero.
    pub timeout: Duration,
    /// Which subjects a message may choose for itself, as patterns in which `*` stands for any text. The default depends on the
    /// kind. Subjects that the operator chose, for the sink or for a relay, are always allowed.
    pub subjects: Vec<String>,
    /// How long an event may wait for a receiver that is unavailable; `None` for as long as it takes. The default depends on the kind.
    pub max_age: Option<Duration>,
}

impl CommonConfig {
    /// Whether a message may have this subject.
    pub(super) fn allows(&self, subject: &str) -> bool {
        self.subjects.iter().any(|pattern| matches(pattern, subject))
    }
}

/// The patterns that allow a message any subject.
pub(super) fn any_subject() -> Vec<String> {
    vec!["*".to_owned()]
}

/// Whether a text matches a pattern in which each `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text_and_all_else_for_itself() {
        let cases = [
            ("*", "anything", true),
            ("orders.*", "orders.paid", true),
            ("orders.*", "order.paid", false),
            ("orders", "orders", true),
            ("orders", "orders.paid", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "a1c2b", false),
            ("ab*ba", "aba", false),
            ("", "", true),
            ("", "x", false),
        ];
        for (pattern, text, wanted) in cases {
            assert_eq!(matches(pattern, text), wanted, "{pattern} and {text}");
        }
    }
}
