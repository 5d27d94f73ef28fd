//! The events that were written to an outbox.

use std::sync::Arc;

use crate::outbox::Outbox;
use crate::store::{Filter, Record, SharedStore, Store, StoreError};

/// More events of one kind than any test writes.
const MOST: u32 = 100_000;

/// Asks for the events of a type that were committed to the table, whatever their status is now: events of this outbox, of
/// another, of a plugin, or of a plain INSERT. Events that are never stored, or were purged, are not among them.
pub fn written<S: SharedStore>(outbox: &Outbox<S>, event_type: impl AsRef<str>) -> Written {
    let filter = Filter { event_type: Some(event_type.as_ref().to_owned()), ..Filter::default() };
    Written { store: outbox.store().clone(), filter }
}

/// A question for written events. Ask it with [`one`](Self::one) or [`all`](Self::all).
#[must_use = "ask for one() or all()"]
pub struct Written {
    store: Arc<dyn Store>,
    filter: Filter,
}

/// Why a question for written events has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WrittenError {
    /// None was written, or more than one.
    #[error("one event of {asked} was expected, and {found} were written{}", among(others))]
    NotOne {
        /// What was asked for.
        asked: String,
        /// How many there are.
        found: usize,
        /// The routes of all events in the table, each once.
        others: Vec<String>,
    },
    /// The database's own.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn among(routes: &[String]) -> String {
    if routes.is_empty() { "; the table is empty".to_owned() } else { format!("; in the table are {}", routes.join(", ")) }
}

impl Written {
    /// Only the events of this aggregate.
    pub fn aggregate(mut self, aggregate_type: impl AsRef<str>, aggregate_id: impl Into<String>) -> Self {
        self.filter.aggregate_type = Some(aggregate_type.as_ref().to_owned());
        self.filter.aggregate_id = Some(aggregate_id.into());
        self
    }

    /// All of them as they are now, with their payloads, in the order of insertion.
    ///
    /// # Errors
    /// The database's own.
    pub async fn all(self) -> Result<Vec<Record>, StoreError> {
        self.read().await
    }

    /// The only one, as it is now, with its payload.
    ///
    /// # Errors
    /// When there is none or more than one; the message says what there is instead.
    pub async fn one(self) -> Result<Record, WrittenError> {
        let mut records = self.read().await?;
        match (records.pop(), records.len()) {
            (Some(record), 0) => Ok(record),
            (last, others) => {
                let all = self.store.list(&Filter::default(), MOST).await?;
                let mut routes: Vec<String> =
                    all.iter().map(|record| format!("{}/{}", record.aggregate_type, record.event_type)).collect();
                routes.sort();
                routes.dedup();
                Err(WrittenError::NotOne { asked: self.asked(), found: others + usize::from(last.is_some()), others: routes })
            }
        }
    }

    async fn read(&self) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        for listed in self.store.list(&self.filter, MOST).await? {
            records.extend(self.store.get(listed.event_id).await?);
        }
        Ok(records)
    }

    fn asked(&self) -> String {
        let Filter { event_type, aggregate_type, aggregate_id, .. } = &self.filter;
        let event_type = event_type.as_deref().unwrap_or("any type");
        match (aggregate_type, aggregate_id) {
            (Some(aggregate_type), Some(id)) => format!("type {event_type} of {aggregate_type} {id}"),
            _ => format!("type {event_type}"),
        }
    }
}
