//! Why the host did not do what it was asked for.

use std::fmt;

use crate::Failure;

/// Why the host did not do what it was asked for. `?` makes a failure of it, with the kind as its code: an unrecoverable one
/// when the request itself was wrong, else a retryable one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of refusal.
    pub kind: RefusalKind,
    /// What was refused, why, and what to do; for people.
    pub message: String,
}

/// What kind of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The operator has not granted it; the message has the line to add to the plugin's manifest.
    NotGranted,
    /// The request itself is wrong; it will be wrong again.
    Invalid,
    /// A limit or a quota is used up.
    OverLimit,
    /// It did not work now, and may work later.
    Unavailable,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl RefusalKind {
    /// The kind as the code of a failure, such as `not-granted`.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::NotGranted => "not-granted",
            Self::Invalid => "invalid",
            Self::OverLimit => "over-limit",
            Self::Unavailable => "unavailable",
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let code = refusal.kind.code();
        let failure = match refusal.kind {
            RefusalKind::Invalid => Self::unrecoverable(refusal),
            RefusalKind::NotGranted | RefusalKind::OverLimit | RefusalKind::Unavailable => Self::retryable(refusal),
        };
        failure.code(code)
    }
}

#[cfg(target_family = "wasm")]
impl From<crate::bindings::outbox::listener::types::Refusal> for Refusal {
    fn from(refusal: crate::bindings::outbox::listener::types::Refusal) -> Self {
        use crate::bindings::outbox::listener::types::RefusalKind as Kind;

        let kind = match refusal.kind {
            Kind::NotGranted => RefusalKind::NotGranted,
            Kind::Invalid => RefusalKind::Invalid,
            Kind::OverLimit => RefusalKind::OverLimit,
            Kind::Unavailable => RefusalKind::Unavailable,
        };
        Self { kind, message: refusal.message }
    }
}
