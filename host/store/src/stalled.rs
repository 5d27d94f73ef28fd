//! Routes whose events a host cannot deliver, as it lists them in its row.

use std::fmt;

use outbox_event::text::shorten;
use outbox_event::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::refused::ERROR_BYTES;

/// A route or pattern of which a host gives back every event: the breaker of its listener is open, or its sink takes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct StalledRoute {
    /// The route or pattern; empty for all events, when the host cannot read the table.
    pub route: String,
    /// Who answers it there: the plugin's name, `the sink NAME`, or `native code`; empty for all events.
    pub listener: String,
    /// Why the last event was given back, at most 500 bytes.
    pub reason: String,
    /// Since when no event was answered, by the host's clock.
    pub since: Timestamp,
}

/// The route with its listener: `Order/* (the sink orders)`; `any event` for all of them.
impl fmt::Display for StalledRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("any event");
        }
        write!(f, "{} ({})", self.route, self.listener)
    }
}

impl StalledRoute {
    /// The most routes that a host names.
    pub const NAMED: usize = 20;

    /// Whether it stands for all events, since the host cannot read the table.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.route.is_empty()
    }

    /// Whether both are the same route of the same listener, for whatever reason and since whenever.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.route, &self.listener) == (&other.route, &other.listener)
    }

    /// As JSON; `None` without any.
    pub(super) fn column(stalled: &[Self]) -> Option<String> {
        let named: Vec<Self> = stalled.iter().take(Self::NAMED).cloned().map(Self::bounded).collect();
        (!named.is_empty()).then(|| serde_json::to_string(&named).expect("texts are JSON"))
    }

    /// Reads what a host wrote; empty if it cannot be read, because the host may be of another version.
    pub(super) fn read(column: Option<&str>) -> Vec<Self> {
        let read: Vec<Self> = column.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        read.into_iter().take(Self::NAMED).map(Self::bounded).collect()
    }

    fn bounded(mut self) -> Self {
        for text in [&mut self.route, &mut self.listener, &mut self.reason] {
            shorten(text, ERROR_BYTES);
        }
        self
    }
}
