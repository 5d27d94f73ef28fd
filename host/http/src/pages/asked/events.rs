//! Which events a page lists. Pure.

use outbox_event::Status;
use outbox_event::time::Timestamp;
use outbox_event::units::When;
use outbox_store::{DeadFilter, Filter, SetAside};

use super::fields::Fields;
use crate::pages::words::visible;

/// The events that an address asks for, as it was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WantedEvents {
    /// `new`, `retry`, `delayed`, `claimed`, `parked`, `blocked`, `dead`, `done`; anything else for all.
    pub(crate) status: String,
    pub(crate) event_type: String,
    pub(crate) aggregate_type: String,
    pub(crate) aggregate_id: String,
    pub(crate) tenant_id: String,
    /// `key=value`.
    pub(crate) header: String,
    /// A text of the last error.
    pub(crate) error: String,
    /// Written no earlier than this: a time, or how long ago.
    pub(crate) since: String,
    /// Written no later than this.
    pub(crate) until: String,
    /// Inserted before this row.
    pub(crate) before: Option<u64>,
    /// Inserted after this row.
    pub(crate) after: Option<u64>,
}

impl WantedEvents {
    pub(crate) fn of(asked: &Fields) -> Self {
        let text = |name: &str| asked.text(name).to_owned();
        Self {
            // The earlier word, which `GET /v1/stats` keeps: old links still work.
            status: if asked.text("status") == "in_flight" { "claimed".to_owned() } else { text("status") },
            event_type: text("event_type"),
            aggregate_type: text("aggregate_type"),
            aggregate_id: text("aggregate_id"),
            tenant_id: text("tenant_id"),
            header: text("header"),
            error: text("error"),
            since: text("since"),
            until: text("until"),
            before: asked.number("before"),
            after: asked.number("after"),
        }
    }

    /// The parameters of the filter, without those that choose a page.
    pub(crate) fn pairs(&self) -> [(&'static str, &str); 9] {
        [
            ("status", &self.status),
            ("aggregate_type", &self.aggregate_type),
            ("event_type", &self.event_type),
            ("aggregate_id", &self.aggregate_id),
            ("tenant_id", &self.tenant_id),
            ("header", &self.header),
            ("error", &self.error),
            ("since", &self.since),
            ("until", &self.until),
        ]
    }

    /// Whether it filters by more than the state.
    pub(crate) fn is_narrow(&self) -> bool {
        self.pairs().iter().skip(1).any(|(_, value)| !value.is_empty())
    }

    /// The parameters that cannot be read, a sentence each: a mistyped filter must not match everything.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.header.is_empty() && self.header_pair().is_none() {
            faults.push(format!("The header is “{}”; write key=value.", visible(&self.header)));
        }
        for (name, text) in [("Written after", &self.since), ("Written before", &self.until)] {
            if !text.is_empty() && text.parse::<When>().is_err() {
                faults.push(format!("{name} is “{}”; {}.", visible(text), When::HINT));
            }
        }
        if self.pairs().iter().any(|(_, value)| value.contains('\0')) {
            faults.push("A filter contains a NUL character, which no text of an event can contain.".to_owned());
        }
        faults
    }

    fn header_pair(&self) -> Option<(String, String)> {
        self.header.split_once('=').map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
    }

    /// The rows to list; spans count back from `now`.
    pub(crate) fn filter(&self, now: Timestamp) -> Filter {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let time = |text: &str| text.parse::<When>().ok().map(|when| when.from(now));
        let status = match self.status.as_str() {
            "new" => Some(Status::New),
            "retry" => Some(Status::Retry),
            "dead" => Some(Status::Dead),
            "done" => Some(Status::Done),
            _ => None,
        };
        let set_aside = match self.status.as_str() {
            "parked" => Some(SetAside::Parked),
            "blocked" => Some(SetAside::Blocked),
            "delayed" => Some(SetAside::Delayed),
            "claimed" => Some(SetAside::Claimed),
            _ => None,
        };
        Filter {
            status,
            set_aside,
            event_type: some(&self.event_type),
            aggregate_type: some(&self.aggregate_type),
            aggregate_id: some(&self.aggregate_id),
            tenant_id: some(&self.tenant_id),
            header: self.header_pair(),
            error: some(&self.error),
            created_after: time(&self.since),
            created_before: time(&self.until),
            before: self.before,
            after: self.after,
            newest_first: self.after.is_none(),
            ..Filter::default()
        }
    }

    /// The dead events to count or replay, dead by `dead_before`.
    pub(crate) fn dead_filter(&self, dead_before: Timestamp) -> DeadFilter {
        let Filter { event_type, aggregate_type, aggregate_id, tenant_id, error, .. } = self.filter(dead_before);
        DeadFilter {
            event_type,
            aggregate_type,
            aggregate_id,
            tenant_id,
            error,
            dead_before: Some(dead_before),
            ..DeadFilter::default()
        }
    }

    /// The filter in words: `of Order/Paid, with “deadline” in the last error`; empty for all events.
    pub(crate) fn in_words(&self) -> String {
        let mut parts = Vec::new();
        match (self.aggregate_type.as_str(), self.event_type.as_str()) {
            ("", "") => {}
            (aggregate, "") => parts.push(format!("of aggregates {aggregate}")),
            ("", event) => parts.push(format!("of type {event}")),
            (aggregate, event) => parts.push(format!("of {aggregate}/{event}")),
        }
        let named = [(&self.aggregate_id, "of aggregate"), (&self.tenant_id, "of tenant")];
        parts.extend(named.iter().filter(|(value, _)| !value.is_empty()).map(|(value, what)| format!("{what} {value}")));
        if !self.error.is_empty() {
            parts.push(format!("with “{}” in the last error", self.error));
        }
        visible(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_in_words_says_what_a_replay_would_take() {
        let wanted = WantedEvents {
            aggregate_type: "Order".into(),
            event_type: "Paid".into(),
            error: "deadline".into(),
            ..WantedEvents::default()
        };
        assert_eq!(wanted.in_words(), "of Order/Paid, with “deadline” in the last error");
        assert_eq!(WantedEvents::default().in_words(), "");
        let filter = wanted.dead_filter(Timestamp::from_micros(5));
        assert_eq!(
            (filter.event_type.as_deref(), filter.error.as_deref(), filter.dead_before),
            (Some("Paid"), Some("deadline"), Some(Timestamp::from_micros(5)))
        );
    }
}
