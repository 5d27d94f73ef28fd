//! One delivery of one event.

use std::fmt::Display;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Failure;
use crate::content_type::{is_json, other_charset};
use crate::misfit::{misfit, of_field, without_place};

/// The pair that picks the listener of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The aggregate type: what kind of thing it happened to; `__GLOBAL__` if the writer gave none.
    pub aggregate_type: String,
    /// What happened.
    pub event_type: String,
}

/// One delivery of one event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// A ULID, the same on every delivery: the key for deduplication.
    pub id: String,
    /// `id:fence`, with a larger fence on every delivery: lets a downstream refuse a late one.
    pub delivery_id: String,
    /// The aggregate type and the event type.
    pub route: Route,
    /// The aggregate's id: which thing it happened to, if the writer gave one.
    pub aggregate_id: Option<String>,
    /// The tenant that the event belongs to, if the writer gave one.
    pub tenant_id: Option<String>,
    /// The order in which the database took the events in; 0 for an event that was never stored.
    pub sequence: u64,
    /// When it happened, in milliseconds since 1970-01-01T00:00:00Z. See [`Event::occurred_at`].
    pub occurred_at_ms: u64,
    /// 1 on the first attempt; one more after each counted failure.
    pub attempt: u32,
    /// `application/json` unless the writer said otherwise.
    pub content_type: String,
    /// The bytes exactly as the writer wrote them.
    pub payload: Vec<u8>,
    /// The writer's headers, in the writer's order. See [`Event::header`].
    pub headers: Vec<(String, String)>,
    /// The host's own notes. Later hosts may add keys. See [`Event::attribute`].
    pub attributes: Vec<(String, String)>,
}

/// What a message or a request says with it, where it is for one of many events.
#[cfg(target_family = "wasm")]
pub(crate) fn attributes_for(event_id: Option<String>) -> Vec<(String, String)> {
    event_id.into_iter().map(|id| ("event-id".to_owned(), id)).collect()
}

impl Event {
    /// The payload, parsed as JSON.
    ///
    /// # Errors
    /// An unrecoverable failure that names the field that is missing or wrong, such as `items[1].price`, or that the
    /// content type says something else: the same bytes will never parse.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        if !is_json(&self.content_type) {
            return Err(self.unread(format_args!("its content type is `{}`, which is not JSON", self.content_type)));
        }
        let mut reader = serde_json::Deserializer::from_slice(&self.payload);
        let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let said = error.inner().to_string();
            if !error.inner().is_data() {
                return self.unread(said);
            }
            let (field, words) = misfit(error.path(), 0, without_place(&said).0, |_, _| None);
            self.unread(of_field(&field, &words))
        })?;
        reader.end().map_err(|error| self.unread(error))?;
        Ok(read)
    }

    /// The payload as text.
    ///
    /// # Errors
    /// An unrecoverable failure when it is not UTF-8, or when the content type names another character set.
    pub fn text(&self) -> Result<&str, Failure> {
        if let Some(charset) = other_charset(&self.content_type) {
            return Err(self.unread(format_args!("its character set is {charset}, not UTF-8")));
        }
        std::str::from_utf8(&self.payload).map_err(|error| self.unread(format_args!("it is not UTF-8: {error}")))
    }

    fn unread(&self, why: impl Display) -> Failure {
        Failure::unrecoverable(format_args!("invalid payload: {why}")).code("bad-payload")
    }

    /// When it happened.
    #[must_use]
    pub fn occurred_at(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.occurred_at_ms)
    }

    /// The first header of this name, written exactly so; `None` if there is none.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// The host's note under this key; `None` if there is none.
    #[must_use]
    pub fn attribute(&self, key: &str) -> Option<&str> {
        find(&self.attributes, key)
    }
}

/// For tests of listeners: an event that no host delivered. Every field is public, so what has no method here is simply set.
impl Event {
    /// A first delivery on this route, with the payload `null` and neither headers nor attributes.
    #[must_use]
    pub fn for_test(aggregate_type: &str, event_type: &str) -> Self {
        Self {
            id: "01JD7ZS0000000000000000000".to_owned(),
            delivery_id: "01JD7ZS0000000000000000000:1".to_owned(),
            route: Route { aggregate_type: aggregate_type.to_owned(), event_type: event_type.to_owned() },
            aggregate_id: None,
            tenant_id: None,
            sequence: 0,
            occurred_at_ms: 1_732_000_000_000,
            attempt: 1,
            content_type: "application/json".to_owned(),
            payload: b"null".to_vec(),
            headers: Vec::new(),
            attributes: Vec::new(),
        }
    }

    /// With this payload, as JSON.
    ///
    /// # Panics
    /// When the value cannot be written as JSON, such as a map whose keys are not strings.
    #[must_use]
    pub fn with_json(mut self, payload: &impl Serialize) -> Self {
        self.payload = serde_json::to_vec(payload).expect("a test's payload can be written as JSON");
        self
    }

    /// With exactly this text as its payload.
    #[must_use]
    pub fn with_text(mut self, payload: &str) -> Self {
        self.payload = payload.as_bytes().to_vec();
        self
    }

    /// With exactly these bytes as its payload, of this content type.
    #[must_use]
    pub fn with_bytes(mut self, content_type: &str, payload: impl Into<Vec<u8>>) -> Self {
        (self.content_type, self.payload) = (content_type.to_owned(), payload.into());
        self
    }

    /// On this attempt.
    #[must_use]
    pub fn with_attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// With one more header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

fn find<'a>(pairs: &'a [(String, String)], key: &str) -> Option<&'a str> {
    pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FailureKind;

    #[test]
    fn a_payload_that_does_not_parse_is_unrecoverable_and_says_why() {
        let event = Event::for_test("Order", "OrderPlaced").with_text(r#"{"id": 1,}"#);

        let failure = event.json::<serde_json::Value>().unwrap_err();

        assert_eq!(failure.kind, FailureKind::Unrecoverable);
        assert_eq!(failure.message, "invalid payload: trailing comma at line 1 column 10");
    }

    #[test]
    fn a_payload_of_another_shape_names_the_field() {
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "only read")]
        struct Order {
            items: Vec<Item>,
        }
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "only read")]
        struct Item {
            price: f64,
        }
        let order = |text: &str| Event::for_test("Order", "OrderPlaced").with_text(text).json::<Order>();

        for (text, why) in [
            (
                r#"{"items": [{"price": 1}, {"price": "free"}]}"#,
                "invalid payload: `items[1].price` is the text \"free\", but must be a number",
            ),
            (r#"{"items": [{}]}"#, "invalid payload: `items[0].price` is missing"),
            (r#"{"items": 7}"#, "invalid payload: `items` is a number, but must be a list; put it in brackets: [ ]"),
            ("{}", "invalid payload: `items` is missing"),
            ("[", "invalid payload: EOF while parsing"),
            (r#"{"items": []} 7"#, "invalid payload: trailing characters"),
        ] {
            let failure = order(text).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Unrecoverable, "{text}");
            assert!(failure.message.contains(why), "{text}: {}", failure.message);
        }
        assert!(order(r#"{"items": []}"#).is_ok());
    }

    #[test]
    fn a_header_is_found_by_its_exact_name() {
        let event =
            Event::for_test("Order", "OrderPlaced").with_header("traceparent", "00-1").with_header("traceparent", "00-2");

        assert_eq!(event.header("traceparent"), Some("00-1"));
        assert_eq!(event.header("Traceparent"), None);
    }
}
