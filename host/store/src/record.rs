//! What people and tools ask of the table.

use outbox_event::time::Timestamp;
use outbox_event::{AttemptCost, AttemptEnd, Envelope, EventId, Headers, Status};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// One row, whole. Field names are column names.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Record {
    /// The order of insertion.
    pub seq: u64,
    /// The event's key.
    pub event_id: EventId,
    /// The event type.
    pub event_type: String,
    /// The aggregate type.
    pub aggregate_type: String,
    /// The ID of the aggregate; `None` when it has none.
    pub aggregate_id: Option<String>,
    /// The tenant that the event belongs to.
    pub tenant_id: Option<String>,
    /// What travels beside the payload; none where that cannot be read, or is larger than 1 MiB.
    pub headers: Headers,
    /// What the payload's bytes are.
    pub content_type: String,
    /// The payload's size in bytes.
    pub payload_bytes: u64,
    /// The payload; left out of lists, and where it is larger than what hosts read (8 MiB).
    #[serde(skip)]
    pub payload: Option<bytes::Bytes>,
    /// Its status.
    pub status: Status,
    /// Counted failures; the one at which a listener gives an event up is not counted.
    pub attempts: u32,
    /// Times the listener asked for later.
    pub deferrals: u32,
    /// Claims since the last outcome.
    pub claims: u32,
    /// Times since the last outcome that it was started alone, because its hosts had gone while they held it.
    pub starts: u32,
    /// Claims and outcomes in all.
    pub claim_seq: u64,
    /// Times it was brought back from DEAD.
    pub replays: u32,
    /// When it happened, by its writer's clock.
    pub occurred_at: Timestamp,
    /// When it was inserted.
    pub created_at: Timestamp,
    /// When its writer allowed the first delivery.
    pub available_at: Timestamp,
    /// When it was or will be ready; `None` when it is finished, parked or behind another.
    pub due_at: Option<Timestamp>,
    /// When it is given up.
    pub expires_at: Option<Timestamp>,
    /// When it became DONE or DEAD.
    pub done_at: Option<Timestamp>,
    /// Why it was parked, as the host that did it saw it then; `None` when it is not parked.
    pub parked: Option<String>,
    /// The `seq` of the earlier event of its aggregate that it waits behind.
    pub behind: Option<u64>,
    /// Whether it is dead and later events of its aggregate wait for it.
    pub blocks: bool,
    /// Who holds it; whoever it was, once `lease_end` is over.
    pub locked_by: Option<String>,
    /// When it was claimed.
    pub locked_at: Option<Timestamp>,
    /// When the claim ends, unless it is renewed. After that the event may be claimed again.
    pub lease_end: Option<Timestamp>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// Why a host gave it back, without counting a failure, although it was due; `None` after any other outcome but success.
    pub wait_reason: Option<String>,
    /// Since when hosts have given it back without an attempt.
    pub wait_since: Option<Timestamp>,
    /// What the attempt cost that wrote `last_error`, or a later one that ended well where that is kept too. `None` when no
    /// listener was called for it.
    pub last_cost: Option<AttemptCost>,
    /// The columns that cannot be read, and why. Their fields are 0, empty, or, for the id, `?` and the `seq`. `None` if all can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

impl Record {
    /// The row of an event that was inserted now and that nobody has claimed; for tests, which change what they need.
    #[must_use]
    pub fn inserted(seq: u64, envelope: &Envelope, now: Timestamp) -> Self {
        // What is not put off is due at once, even when its writer's clock is ahead.
        let available_at = if envelope.is_delayed() { envelope.available_at() } else { envelope.available_at().min(now) };
        Self {
            seq,
            event_id: envelope.id(),
            event_type: envelope.event_type().to_string(),
            aggregate_type: envelope.aggregate_type().to_string(),
            aggregate_id: envelope.aggregate_id().map(str::to_owned),
            tenant_id: envelope.tenant_id().map(str::to_owned),
            headers: envelope.headers().clone(),
            content_type: envelope.content_type().to_owned(),
            payload_bytes: envelope.payload_bytes().len() as u64,
            payload: Some(envelope.payload_bytes().clone()),
            status: Status::New,
            attempts: 0,
            deferrals: 0,
            claims: 0,
            starts: 0,
            claim_seq: 0,
            replays: 0,
            occurred_at: envelope.occurred_at(),
            created_at: now,
            available_at,
            due_at: Some(available_at),
            expires_at: envelope.expires_at(),
            done_at: None,
            parked: None,
            behind: None,
            blocks: false,
            locked_by: None,
            locked_at: None,
            lease_end: None,
            last_error: None,
            wait_reason: None,
            wait_since: None,
            last_cost: None,
            unreadable: None,
        }
    }

    /// How many attempts failed: those counted in `attempts`, and the one at which its listener gave the event up, which is
    /// not.
    #[must_use]
    pub fn failures(&self) -> u32 {
        failures(self.status, self.attempts, self.last_error.as_deref(), self.last_cost.as_ref())
    }

    /// Why it waits although its time has come, if a host gave it back for a reason and nothing has come of it since.
    #[must_use]
    pub fn waits_for(&self) -> Option<&str> {
        self.wait_reason.as_deref().filter(|_| matches!(self.status, Status::New | Status::Retry))
    }

    /// The payload read as JSON.
    ///
    /// # Errors
    /// When the bytes are not JSON of this shape, or the payload was left out.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(self.payload.as_deref().unwrap_or_default())
    }
}

/// How the last error begins of an event whose listener asked for later once too often. No attempt of it failed.
#[doc(hidden)] // for the host
pub const ASKED_FOR_LATER: &str = "the listener asked for later ";

/// [`Record::failures`], of these columns.
#[doc(hidden)] // for the host
#[must_use]
pub fn failures(status: Status, attempts: u32, last_error: Option<&str>, last_cost: Option<&AttemptCost>) -> u32 {
    let is_failure = status == Status::Dead && !last_error.is_some_and(|error| error.starts_with(ASKED_FOR_LATER));
    let last = last_cost.filter(|cost| is_failure && cost.outcome == AttemptEnd::Dead);
    last.map_or(0, |cost| cost.attempt).max(attempts)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use outbox_event::Cost;

    use super::*;

    #[test]
    fn the_attempt_at_which_its_listener_gave_an_event_up_is_a_failure_though_the_row_does_not_count_it() {
        let envelope = Envelope::new("Paid").json(&42).expect("valid");
        let row = |status, attempts, attempt, outcome, error: &str| Record {
            status,
            attempts,
            last_error: Some(error.to_owned()),
            last_cost: Some(AttemptCost { attempt, outcome, cost: Cost::of_time(Duration::from_millis(3)) }),
            ..Record::inserted(1, &envelope, Timestamp::from_micros(0))
        };
        let failures = [
            row(Status::Dead, 0, 1, AttemptEnd::Dead, "no such customer"),
            row(Status::Dead, 2, 3, AttemptEnd::Dead, "no such customer"),
            row(Status::Dead, 3, 3, AttemptEnd::Dead, "the last of three"),
            row(Status::Dead, 2, 2, AttemptEnd::Retry, "expired"),
            row(Status::Dead, 0, 1, AttemptEnd::Dead, "the listener asked for later 100 times, which is the limit"),
            row(Status::New, 0, 3, AttemptEnd::Dead, "replayed since"),
            row(Status::Done, 0, 1, AttemptEnd::Done, "nothing"),
        ]
        .map(|row| row.failures());
        assert_eq!(failures, [1, 3, 3, 2, 0, 0, 0]);
    }
}
