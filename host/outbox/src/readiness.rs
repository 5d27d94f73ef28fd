//! Whether a host can do its work, and if not, why.
//!
//! A process is alive if it answers. It is ready if its parts run, its poller completes its turns, its outcomes are stored, its
//! heartbeat is written, its schema is the one that this program needs, and its required plugins serve.

mod pulse;
mod schema;

use outbox_event::SinkStatus;
pub(crate) use pulse::Pulse;
pub(crate) use schema::{SchemaFault, SchemaWatch};
use serde::Serialize;

use crate::store::StalledRoute;

/// Whether a host can do its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Readiness {
    ready: bool,
    reasons: Vec<Unready>,
    stalled: Vec<StalledRoute>,
    sinks_down: Vec<SinkStatus>,
}

/// One reason why a host cannot do its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unready {
    /// What kind of reason.
    pub code: UnreadyCode,
    /// The reason, for people.
    pub message: String,
}

/// What keeps a host from its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub enum UnreadyCode {
    /// The host was told to stop.
    Stopping,
    /// A part of the host has panicked.
    PartBroken,
    /// No turn of the poller has succeeded for too long: the database does not answer, is too slow, or refuses its statements.
    PollerStuck,
    /// Outcomes have waited to be stored for too long: the database refuses or delays them. No more events are read.
    SettlerStuck,
    /// The heartbeat could not be written for too long: the database refuses it, does not answer, or is too slow. Other hosts take
    /// over.
    HeartbeatStuck,
    /// The table is missing, or of another version than this program needs.
    Schema,
    /// A required plugin does not serve.
    Plugin,
}

impl Readiness {
    /// Ready when there is no reason against it.
    pub(crate) fn new(reasons: Vec<Unready>) -> Self {
        Self { ready: reasons.is_empty(), reasons, stalled: Vec::new(), sinks_down: Vec::new() }
    }

    /// Adds stalled routes. They do not make the host unready: a restart would not help.
    pub(crate) fn with_stalled(self, stalled: Vec<StalledRoute>) -> Self {
        Self { stalled, ..self }
    }

    /// Adds sinks that are down. They do not make the host unready: a restart would not help.
    pub(crate) fn with_sinks_down(self, sinks_down: Vec<SinkStatus>) -> Self {
        Self { sinks_down, ..self }
    }

    /// Whether the host can do its work.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Why the host is not ready; empty when it is.
    #[must_use]
    pub fn reasons(&self) -> &[Unready] {
        &self.reasons
    }

    /// The routes whose events the host gives back, since their sink is down or the breaker of their listener is open. It is
    /// ready all the same: it stands aside where another host can deliver them.
    #[must_use]
    pub fn stalled(&self) -> &[StalledRoute] {
        &self.stalled
    }

    /// The sinks that are down, as this host sees them. It is ready all the same: their events wait. Empty unless the readiness
    /// was read with its sinks.
    #[must_use]
    pub fn sinks_down(&self) -> &[SinkStatus] {
        &self.sinks_down
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

        let expected = serde_json::json!({"ready": false, "reasons": [{"code": "poller_stuck", "message": "the poller is stuck"}], "stalled": [], "sinks_down": []});
        assert_eq!(told, expected);
        let ready = serde_json::to_value(Readiness::new(Vec::new())).expect("plain data");
        assert_eq!(ready, serde_json::json!({"ready": true, "reasons": [], "stalled": [], "sinks_down": []}));
    }
}
