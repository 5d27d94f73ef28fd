//! Whether a host can do its work, and if not, why.
//!
//! Alive is every process that answers. Ready is one whose parts run, whose poller comes to the end of its turns, whose schema is the
//! one that it knows, and whose required plugins serve.

mod pulse;
mod schema;

pub(crate) use pulse::Pulse;
pub(crate) use schema::{SchemaFault, SchemaWatch};
use serde::Serialize;

/// Whether a host can do its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Readiness {
    ready: bool,
    reasons: Vec<Unready>,
}

/// One reason why a host cannot do its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unready {
    /// What kind of reason.
    pub code: UnreadyCode,
    /// What it is, for people.
    pub message: String,
}

/// What keeps a host from its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[cfg_attr(feature = "http", derive(utoipa::ToSchema))]
pub enum UnreadyCode {
    /// It was told to stop.
    Stopping,
    /// A part of it has broken by a panic.
    PartBroken,
    /// The poller has not come to the end of a turn for too long: the database does not answer, or does what it is asked too slowly.
    PollerStuck,
    /// The table is not there, or of another version than this program's.
    Schema,
    /// A plugin that must serve does not.
    Plugin,
}

impl Readiness {
    /// Ready when there is no reason against it.
    pub(crate) fn new(reasons: Vec<Unready>) -> Self {
        Self { ready: reasons.is_empty(), reasons }
    }

    /// Whether the host can do its work.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Why it cannot; empty when it can.
    #[must_use]
    pub fn reasons(&self) -> &[Unready] {
        &self.reasons
    }
}

impl Unready {
    pub(crate) fn new(code: UnreadyCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_as_json_with_a_code_for_programs_and_a_message_for_people() {
        let stopping = Unready::new(UnreadyCode::PollerStuck, "the poller is stuck");

        let told = serde_json::to_value(Readiness::new(vec![stopping])).expect("plain data");

        let expected =
            serde_json::json!({"ready": false, "reasons": [{"code": "poller_stuck", "message": "the poller is stuck"}]});
        assert_eq!(told, expected);
        let ready = serde_json::to_value(Readiness::new(Vec::new())).expect("plain data");
        assert_eq!(ready, serde_json::json!({"ready": true, "reasons": []}));
    }
}
