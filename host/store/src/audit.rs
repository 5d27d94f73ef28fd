//! The audit log: changes by operators, and by hosts themselves.

use async_trait::async_trait;
use outbox_event::EventId;
use outbox_event::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Index, Migration, StoreError};

/// The audit log: what operators did, and what hosts changed by themselves.
#[async_trait]
pub trait AuditStore: Send + Sync {
    /// Records a change that was made by other calls, or outside of the database: `action` such as `purge`, what it was done to, to how
    /// many.
    async fn note(&self, audit: &Audit, action: &str, selector: &serde_json::Value, count: u64) -> Result<(), StoreError>;

    /// Records that these steps of the schema were applied, and that this index was added; nothing if neither happened.
    async fn note_migration(&self, audit: &Audit, applied: &[Migration], index: Option<Index>) -> Result<(), StoreError> {
        let steps: Vec<String> = applied.iter().map(|step| format!("{} {}", step.version, step.name)).collect();
        let mut selector = serde_json::Map::new();
        if !steps.is_empty() {
            selector.insert("steps".to_owned(), steps.join(", ").into());
        }
        if let Some(index) = index {
            selector.insert("index".to_owned(), index.as_str().into());
        }
        let count = (steps.len() + usize::from(index.is_some())) as u64;
        self.note(audit, "migrate", &selector.into(), count).await
    }

    /// The changes, newest first, at most `limit`.
    async fn audit(&self, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
        self.list_audit(&AuditFilter::default(), limit).await
    }

    /// The changes that match, newest first, at most `limit`.
    async fn list_audit(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditRecord>, StoreError>;
}

/// The author of a change, and the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// A user, a token's name or a host's label. At most 200 characters are kept.
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

/// Which audit records to list; `None` means any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// By this actor. A host's name also finds its label: `web-1` finds `web-1 4711`.
    pub actor: Option<String>,
    /// Of this action, one of [`ACTIONS`](Self::ACTIONS).
    pub action: Option<String>,
    /// Of this very event: what was done by a filter that met it is left out.
    pub event_id: Option<EventId>,
    /// Of what may have touched this event: done to it alone, to routes, or to many events by a filter.
    pub touching: Option<EventId>,
    /// No earlier than this.
    pub since: Option<Timestamp>,
    /// No later than this.
    pub until: Option<Timestamp>,
    /// Before the record of this `id`: the next page.
    pub before: Option<u64>,
}

impl AuditFilter {
    /// Every action that is noted, as [`AuditRecord::action`] says it.
    pub const ACTIONS: [&'static str; 17] = [
        "replay",
        "retry_now",
        "discard",
        "skip",
        "pause",
        "resume",
        "forget_route",
        "purge",
        "delete_state",
        "refused_login",
        "start_host",
        "stop_host",
        "load_plugin",
        "swap_plugin",
        "unload_plugin",
        "rollback_plugin",
        "migrate",
    ];

    /// Which of three statements reads what matches: that for everything, for what was done to one event alone, or for what may
    /// have touched one event. `None` when nothing can match.
    pub(super) fn choose<S>(&self, [any, of_one, touching]: [S; 3]) -> Option<S> {
        match (self.event_id, self.touching) {
            (Some(one), Some(other)) if one != other => None,
            (Some(_), _) => Some(of_one),
            (None, Some(_)) => Some(touching),
            (None, None) => Some(any),
        }
    }

    /// The selector of actions on the one event alone, as it stands in the column.
    pub(super) fn selector(&self) -> Option<String> {
        self.event_id.or(self.touching).map(|id| serde_json::json!({ "event_id": id }).to_string())
    }

    /// The record that the page before ended with; `None` for the first page.
    pub(super) fn last(&self) -> Option<i64> {
        self.before.and_then(|id| i64::try_from(id).ok())
    }

    /// The times between which a page lies. `last` is the time of the record that the page before ended with, or of the one
    /// before it; `None` when there is none, so that no page is left.
    pub(super) fn span(&self, last: Option<Timestamp>) -> Option<Span> {
        const OPEN: (Timestamp, Timestamp) = (Timestamp::from_micros(i64::MIN), Timestamp::from_micros(i64::MAX));
        let (since, until) = (self.since.unwrap_or(OPEN.0), self.until.unwrap_or(OPEN.1));
        match (self.last(), last) {
            (Some(_), None) => None,
            (Some(before), Some(last)) if last <= until => Some(Span { since, until: last, before }),
            _ => Some(Span { since, until, before: i64::MAX }),
        }
    }
}

/// Where a page of audit records lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
    /// Of the records at `until` only those of a smaller number.
    pub(super) before: i64,
}

/// A change. Field names are column names.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[non_exhaustive]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct AuditRecord {
    /// Its number, larger than that of every record before it.
    pub id: u64,
    /// When, by the database's clock.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What was done, such as `replay`; a later version may name others.
    pub action: String,
    /// To what: an event's id, a route, a filter, a plugin, or the mode and version of a host.
    pub selector: serde_json::Value,
    /// To how many.
    pub count: u64,
    /// Why.
    pub reason: Option<String>,
}

impl AuditRecord {
    /// A change of one thing, without a reason; for tests, which change what they need.
    #[doc(hidden)] // for the host
    #[must_use]
    pub fn new(id: u64, at: Timestamp, actor: &str, action: &str, selector: serde_json::Value) -> Self {
        Self { id, at, actor: actor.to_owned(), action: action.to_owned(), selector, count: 1, reason: None }
    }
}
