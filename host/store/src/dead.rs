//! Events that failed.

use async_trait::async_trait;
use outbox_event::EventId;
use outbox_event::time::Timestamp;
use serde::Serialize;

use super::{Audit, StoreError};

/// Events that failed: count them, bring them back, let others pass, delete them. What an operator does is recorded in the
/// audit log, in the same transaction; nothing is noted when nothing was done.
#[async_trait]
pub trait DeadStore: Send + Sync {
    /// How many dead events match.
    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, StoreError>;

    /// Sets one dead event back to NEW with no attempts; its fence goes on. False when it is not there or not dead. What an
    /// operator does is recorded in the audit log, in the same transaction; nothing is noted when nothing was done.
    async fn replay(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError>;

    /// Sets matching dead events back to NEW, oldest first, at most `limit`. Returns how many. Noted as by
    /// [`replay`](Self::replay), with the filter and the number.
    async fn replay_batch(&self, filter: &DeadFilter, limit: u32, audit: &Audit) -> Result<u64, StoreError>;

    /// Lets events that wait for another attempt be due now: those that failed, and those whose listener asked for later; only
    /// those that failed no more than `max_attempts` times (`None`: any number), and of those only events after the `seq` `after`.
    /// In order of their `seq`, at most `limit`. Whoever goes on after the last one lets no event go twice, however fast it fails
    /// again. Noted as by [`replay`](Self::replay).
    async fn retry_now(
        &self,
        max_attempts: Option<u32>,
        after: u64,
        limit: u32,
        audit: &Audit,
    ) -> Result<RetriedNow, StoreError>;

    /// How many events [`retry_now`](Self::retry_now) would take of all events, without a limit.
    async fn count_waiting(&self, max_attempts: Option<u32>) -> Result<u64, StoreError>;

    /// Deletes one dead event. False when it is not there, not dead, or died after `dead_before` (`None`: any time). Noted as by
    /// [`replay`](Self::replay).
    async fn discard(&self, id: EventId, dead_before: Option<Timestamp>, audit: &Audit) -> Result<bool, StoreError>;

    /// Lets one dead event block its aggregate no longer; it stays dead. False when it is not there or blocks nothing. Noted as
    /// by [`replay`](Self::replay).
    async fn skip(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError>;
}

/// What [`DeadStore::retry_now`](super::DeadStore::retry_now) let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetriedNow {
    /// How many events.
    pub count: u64,
    /// The `seq` of the last of them; `None` when there was none.
    pub last: Option<u64>,
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
