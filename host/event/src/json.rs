//! An envelope written as JSON: on the command line, in a file of lines, over HTTP.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::envelope::JSON;
use super::{Envelope, EnvelopeError, EventId, Headers};
use crate::time::Timestamp;
use crate::units::duration_option;
use crate::wording::{Misfit, in_words};

/// Why a JSON text is not an envelope.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeJsonError {
    /// Not JSON, or JSON of another kind than an object.
    #[error("the envelope is not valid JSON: {}", in_words(&.0.to_string()))]
    Json(#[source] serde_json::Error),
    /// An unknown field, a field that is missing, or one of the wrong kind.
    #[error("{field}: {why}")]
    Field {
        /// The field, such as `headers.source`.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// No payload, or two.
    #[error("the envelope needs exactly one of payload and payload_base64")]
    Payload,
    /// The payload is not base64.
    #[error("payload_base64 is not standard base64: {0}")]
    Base64(String),
    /// The text reads well, but breaks a rule of envelopes.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Json<'a> {
    event_id: Option<EventId>,
    event_type: String,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    tenant_id: Option<String>,
    occurred_at: Option<Timestamp>,
    available_at: Option<Timestamp>,
    #[serde(default, deserialize_with = "duration_option::deserialize")]
    deliver_after: Option<Duration>,
    expires_at: Option<Timestamp>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
    payload_base64: Option<String>,
    content_type: Option<String>,
}

impl EnvelopeJsonError {
    fn of(error: serde_json::Error, text: &[u8]) -> Self {
        if !error.is_data() {
            return Self::Json(error);
        }
        let Misfit { path: field, words: why } = Misfit::of_json::<Json<'_>>(text, &error);
        if field.is_empty() { Self::Json(error) } else { Self::Field { field, why } }
    }
}

/// Keeps `null` as a payload; an option alone would read it as none.
fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl Envelope {
    /// Reads an envelope from JSON: `event_type` (required), `event_id`, `aggregate_type`, `aggregate_id`, `tenant_id`,
    /// `occurred_at`, `headers`, `available_at` or `deliver_after`, `expires_at`, and `payload` (any JSON value; its bytes are
    /// kept as written) or `payload_base64` with `content_type`.
    ///
    /// # Errors
    /// When the text is not JSON of this shape, or a field breaks its rule; the message says which.
    pub fn from_json(text: &[u8]) -> Result<Self, EnvelopeJsonError> {
        let json: Json<'_> = serde_json::from_slice(text).map_err(|error| EnvelopeJsonError::of(error, text))?;
        let mut builder = Self::new(json.event_type).headers(json.headers);
        if let Some(id) = json.event_id {
            builder = builder.id(id);
        }
        if let Some(aggregate_type) = json.aggregate_type {
            builder = builder.aggregate_type(aggregate_type);
        }
        if let Some(aggregate_id) = json.aggregate_id {
            builder = builder.aggregate_id(aggregate_id);
        }
        if let Some(tenant_id) = json.tenant_id {
            builder = builder.tenant(tenant_id);
        }
        if let Some(time) = json.occurred_at {
            builder = builder.occurred_at(time);
        }
        if let Some(time) = json.available_at {
            builder = builder.available_at(time);
        }
        if let Some(time) = json.expires_at {
            builder = builder.expires_at(time);
        }
        if let Some(delay) = json.deliver_after {
            builder = builder.deliver_after(delay);
        }
        match (json.payload, json.payload_base64) {
            (Some(payload), None) => {
                let bytes = bytes::Bytes::copy_from_slice(payload.get().as_bytes());
                Ok(match json.content_type {
                    None => builder.json_text(bytes)?,
                    Some(content_type) => builder.bytes(content_type, bytes)?,
                })
            }
            (None, Some(base64)) => {
                let bytes = data_encoding::BASE64
                    .decode(base64.as_bytes())
                    .map_err(|error| EnvelopeJsonError::Base64(error.to_string()))?;
                Ok(builder.bytes(json.content_type.unwrap_or_else(|| "application/octet-stream".to_owned()), bytes)?)
            }
            _ => Err(EnvelopeJsonError::Payload),
        }
    }
}

/// An envelope as it is written.
#[derive(Serialize)]
struct Written<'a> {
    event_id: EventId,
    event_type: &'a str,
    aggregate_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregate_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_id: Option<&'a str>,
    occurred_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    available_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Headers::is_empty")]
    headers: &'a Headers,
    content_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

impl Envelope {
    /// Writes the envelope as [`from_json`](Self::from_json) reads it: the same event comes out, with every byte of its payload.
    #[must_use]
    pub fn to_json(&self) -> String {
        let bytes = self.payload_bytes();
        // White space around a JSON text would be lost.
        let raw = serde_json::from_slice::<&RawValue>(bytes).ok().filter(|raw| raw.get().len() == bytes.len());
        let payload = raw.filter(|_| self.content_type() == JSON);
        let written = Written {
            event_id: self.id(),
            event_type: self.event_type().as_str(),
            aggregate_type: self.aggregate_type().as_str(),
            aggregate_id: self.aggregate_id(),
            tenant_id: self.tenant_id(),
            occurred_at: self.occurred_at(),
            available_at: self.is_delayed().then(|| self.available_at()),
            expires_at: self.expires_at(),
            headers: self.headers(),
            content_type: self.content_type(),
            payload,
            payload_base64: payload.is_none().then(|| data_encoding::BASE64.encode(bytes)),
        };
        serde_json::to_string(&written).expect("texts and numbers are JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_read_and_the_payload_keeps_its_bytes() {
        let text =
            br#"{"event_id":"e-1","event_type":"OrderPlaced","aggregate_type":"Order","aggregate_id":"42","tenant_id":"t",
            "occurred_at":"2026-11-21T08:00:00Z","deliver_after":"30s","headers":{"k":"v"},"payload":{"b":1.0,  "a":[]}}"#;
        let envelope = Envelope::from_json(text).expect("valid");
        assert_eq!(envelope.id().as_str(), "e-1");
        assert_eq!(envelope.route().to_string(), "Order/OrderPlaced");
        assert_eq!((envelope.aggregate_id(), envelope.tenant_id()), (Some("42"), Some("t")));
        assert_eq!(envelope.available_at().to_string(), "2026-11-21T08:00:30.000000Z");
        assert_eq!(envelope.headers().get("k"), Some("v"));
        assert_eq!(&envelope.payload_bytes()[..], br#"{"b":1.0,  "a":[]}"#);
    }

    #[test]
    fn what_is_written_reads_back_as_the_same_event_to_the_byte() {
        let whole = Envelope::new("OrderPlaced").aggregate("Order", "42").tenant("t").header("k", "v");
        let whole = whole.deliver_after(std::time::Duration::from_secs(5));
        let payloads: [(&str, &[u8]); 5] = [
            ("application/json", b"{\"b\": 1.0,\n \"a\":[]}"),
            ("application/json", b" 1 "),
            ("application/json", b"not JSON at all"),
            ("text/plain", b"\xff\x00"),
            ("application/json", b"null"),
        ];
        for (content_type, payload) in payloads {
            let envelope = whole.clone().bytes(content_type, payload).expect("valid");
            let read = Envelope::from_json(envelope.to_json().as_bytes()).expect("its own text");
            assert_eq!(read, envelope);
        }
    }

    #[test]
    fn null_is_a_payload() {
        let envelope = Envelope::from_json(br#"{"event_type":"X","payload":null}"#).expect("valid");
        assert_eq!(&envelope.payload_bytes()[..], b"null");
    }

    #[test]
    fn bytes_come_as_base64_with_their_content_type() {
        let text = br#"{"event_type":"X","payload_base64":"AAEC","content_type":"application/x-protobuf"}"#;
        let envelope = Envelope::from_json(text).expect("valid");
        assert_eq!((&envelope.payload_bytes()[..], envelope.content_type()), (&[0, 1, 2][..], "application/x-protobuf"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |text: &str| Envelope::from_json(text.as_bytes()).expect_err("refused").to_string();
        assert!(refused("{").contains("not valid JSON"));
        let with = |field: &str| refused(&format!(r#"{{"payload":{{"a":[1]}},"event_type":"X",{field}}}"#));
        assert_eq!(
            with(r#""typ":2"#),
            "typ: there is no such field; write `event_id`, `event_type`, `aggregate_type`, `aggregate_id`, `tenant_id`, \
             `occurred_at`, `available_at`, `deliver_after`, `expires_at`, `headers`, `payload`, `payload_base64` or `content_type`"
        );
        assert_eq!(with(r#""tenantid":"t""#), "tenantid: there is no such field; did you mean `tenant_id`?");
        assert_eq!(with(r#""event_type":"Y""#), "event_type: it is written twice");
        assert_eq!(refused(r#"{"payload":1}"#), "event_type: it is missing");
        assert!(
            refused("7").starts_with("the envelope is not valid JSON: it is a number, but must be a group of named values")
        );
        assert!(refused(r#"{"event_type":"X"}"#).contains("exactly one of payload and payload_base64"));
        assert_eq!(with(r#""headers":{"a b":5}"#), "headers[\"a b\"]: it is a number, but must be text; put it in quotes");
        assert_eq!(with(r#""occurred_at":5"#), "occurred_at: it is a number, but must be a time like \"2026-11-21T08:30:00Z\"");
        assert!(with(r#""occurred_at":"now""#).starts_with("occurred_at: "), "{}", with(r#""occurred_at":"now""#));
        assert!(!with(r#""occurred_at":"now""#).contains(" column "), "{}", with(r#""occurred_at":"now""#));
        assert_eq!(
            with(r#""deliver_after":5"#),
            "deliver_after: `5` has no unit; write it like \"30s\", \"250ms\" or \"1h 30m\""
        );
        assert!(with(r#""deliver_after":"soon""#).starts_with("deliver_after: `soon` is not a duration; write it like"));
        assert!(refused(r#"{"event_type":"X","payload_base64":"?"}"#).contains("not standard base64"));
    }
}
