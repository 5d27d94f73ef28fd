//! Who did what by hand.

use serde::Serialize;

use crate::time::Timestamp;

/// Who does something by hand, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Who: a user, a token's name. At most 200 characters are kept.
    pub actor: String,
    /// Why; at most 1,000 characters are kept.
    pub reason: Option<String>,
}

impl Audit {
    /// By this actor, without a reason.
    pub fn by(actor: impl Into<String>) -> Self {
        Self { actor: actor.into(), reason: None }
    }

    /// The actor and the reason as they are kept: cut, without NUL, which SQL text cannot carry everywhere.
    pub(super) fn stored(&self) -> (String, Option<String>) {
        let cut = |text: &str, most: usize| text.chars().filter(|c| *c != '\0').take(most).collect::<String>();
        (cut(&self.actor, 200), self.reason.as_deref().map(|reason| cut(reason, 1_000)))
    }
}

/// Something that was done by hand. Field names are column names.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
#[cfg_attr(feature = "http", derive(utoipa::ToSchema))]
pub struct AuditRecord {
    /// When, by the database's clock.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What: `replay`, `retry_now`, `discard`, `skip`, `pause`, `resume`, `forget_route`, `refused_login`,
    /// `purge`, `delete_state`.
    pub action: String,
    /// To what: an event's id, a route, a filter, or a plugin with or without a key of its state.
    pub selector: serde_json::Value,
    /// To how many.
    pub count: u64,
    /// Why.
    pub reason: Option<String>,
}
