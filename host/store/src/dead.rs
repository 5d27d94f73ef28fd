//! Events that failed.

use async_trait::async_trait;
use outbox_event::EventId;
use outbox_event::time::Timestamp;
use serde::Serialize;

use super::{Audit, RowId, StoreError};

/// Events that failed: count them, bring them back, let others pass, delete them. What an operator does is recorded in the
/// audit log, in the same transaction; nothing is noted when nothing was done.
#[async_trait]
pub trait DeadStore: Send + Sync {
    /// How many dead events match.
    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, StoreError>;

    /// Sets one dead event back to NEW with no attempts; its fence goes on. False when it is not there or not dead. What an
    /// operator does is recorded in the audit log, in the same transaction; nothing is noted when nothing was done.
    async fn replay(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError>;

    /// The dead events that match, with a `seq` above `after`, in the order of their `seq`: at most `limit`.
    async fn dead_rows(&self, filter: &DeadFilter, after: u64, limit: u32) -> Result<Vec<RowId>, StoreError>;

    /// Sets these events back to NEW if they are still dead and died no later than the filter says. Returns how many the database
    /// changed: fewer if another transaction was faster, or a trigger or a policy of the table suppressed the change. Noted as by
    /// [`replay`](Self::replay), with the filter and the number.
    async fn replay_rows(&self, rows: &[u64], filter: &DeadFilter, audit: &Audit) -> Result<u64, StoreError>;

    /// The events that wait for another attempt, with a `seq` above `after`, in the order of their `seq`: at most `limit`. Those that
    /// failed, at most `max_attempts` times (`None`: any number), and those whose listener asked for later.
    async fn waiting_rows(&self, max_attempts: Option<u32>, after: u64, limit: u32) -> Result<Vec<RowId>, StoreError>;

    /// Makes these events due now if they still wait. Returns how many the database changed, as [`replay_rows`](Self::replay_rows).
    /// Noted as by [`replay`](Self::replay), with `max_attempts` and the number.
    async fn retry_rows_now(&self, rows: &[u64], max_attempts: Option<u32>, audit: &Audit) -> Result<u64, StoreError>;

    /// How many events wait for another attempt, as [`waiting_rows`](Self::waiting_rows) without a limit.
    async fn count_waiting(&self, max_attempts: Option<u32>) -> Result<u64, StoreError>;

    /// Deletes one dead event. False when it is not there, not dead, or died after `dead_before` (`None`: any time). Noted as by
    /// [`replay`](Self::replay).
    async fn discard(&self, id: EventId, dead_before: Option<Timestamp>, audit: &Audit) -> Result<bool, StoreError>;

    /// Lets one dead event block its aggregate no longer; it stays dead. False when it is not there or blocks nothing. Noted as
    /// by [`replay`](Self::replay).
    async fn skip(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError>;
}

/// Which dead events to replay or count; `None` means any.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DeadFilter {
    /// Of this event type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// Of this aggregate type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate_type: Option<String>,
    /// Of this aggregate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate_id: Option<String>,
    /// Of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Whose last error holds this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// That failed no more often than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Dead no earlier than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_after: Option<Timestamp>,
    /// Dead no later than this; keeps what dies again out of a replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_before: Option<Timestamp>,
}
