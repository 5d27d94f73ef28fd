//! A message in the format of CloudEvents 1.0: structured, as one JSON object.

use data_encoding::BASE64;
use outbox_event::time::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Message, SinkError};

/// The media type of the structured form.
#[cfg_attr(not(feature = "http"), allow(dead_code, reason = "only some kinds of sinks need it"))]
pub(super) const STRUCTURED: &str = "application/cloudevents+json; charset=utf-8";

/// The `source` unless a sink says otherwise.
pub(super) const SOURCE: &str = "outbox";

/// The attributes; those behind `traceparent` are extensions of ours. Source: CloudEvents 1.0.2, JSON format 1.0.2.
#[derive(Serialize)]
pub(super) struct CloudEvent<'m> {
    pub(super) specversion: &'static str,
    pub(super) id: &'m str,
    pub(super) source: &'m str,
    #[serde(rename = "type")]
    pub(super) kind: &'m str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subject: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) time: Option<Timestamp>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) datacontenttype: &'m str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) traceparent: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) partitionkey: Option<&'m str>,
    pub(super) eventid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) aggregatetype: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tenantid: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Data<'m>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data_base64: Option<String>,
}

/// A body that JSON can hold.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Data<'m> {
    Json(&'m RawValue),
    OneLine(Box<RawValue>),
    Text(&'m str),
}

impl<'m> CloudEvent<'m> {
    /// The attributes of a message, without its data.
    pub(super) fn attributes(message: &'m Message, source: &'m str) -> Self {
        let event = message.event.as_deref();
        let header = |wanted: &str| {
            message.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.as_str())
        };
        Self {
            specversion: "1.0",
            id: &message.id,
            source,
            kind: event.map_or("outbox.message", |event| event.event_type().as_str()),
            subject: event.and_then(|event| event.aggregate_id()).filter(|id| !id.is_empty()),
            time: event.map(|event| event.occurred_at()),
            datacontenttype: &message.content_type,
            traceparent: header(outbox_event::TRACEPARENT),
            partitionkey: message.key.as_deref().filter(|key| !key.is_empty()),
            eventid: message.event_id.to_string(),
            aggregatetype: event.map(|event| event.aggregate_type().as_str()),
            tenantid: event.and_then(|event| event.tenant_id()).filter(|id| !id.is_empty()),
            data: None,
            data_base64: None,
        }
    }

    /// The whole message as one JSON object on one line.
    pub(super) fn structured(message: &'m Message, source: &'m str) -> Result<Vec<u8>, SinkError> {
        let mut whole = Self::attributes(message, source);
        whole.data = data(message);
        if whole.data.is_none() && !message.body.is_empty() {
            whole.data_base64 = Some(BASE64.encode(&message.body));
        }
        serde_json::to_vec(&whole)
            .map_err(|error| SinkError::rejected(format!("the message cannot be written as JSON: {error}")))
    }
}

/// The body as JSON, or as text; `None` when it is neither.
fn data(message: &Message) -> Option<Data<'_>> {
    let media_type = message.content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let text = std::str::from_utf8(&message.body).ok()?;
    if media_type.ends_with("/json") || media_type.ends_with("+json") {
        let value: &RawValue = serde_json::from_str(text).ok()?;
        if !value.get().contains(['\n', '\r']) {
            return Some(Data::Json(value));
        }
        // Within JSON strings line breaks are escaped, so these stand between values, where a space does as well.
        return RawValue::from_string(value.get().replace(['\n', '\r'], " ")).ok().map(Data::OneLine);
    }
    media_type.starts_with("text/").then_some(Data::Text(text))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use outbox_event::{Envelope, Event};

    use super::*;

    fn written(envelope: Envelope) -> serde_json::Value {
        let message = Message::of_event(&Arc::new(Event::of(envelope).build()));
        let bytes = CloudEvent::structured(&message, "shop").expect("can be written");
        serde_json::from_slice(&bytes).expect("is JSON")
    }

    #[test]
    fn json_stays_json_text_stays_text_and_all_else_is_base64() {
        let order = Envelope::new("OrderPlaced").aggregate("Order", "42");
        let json = written(order.clone().json(&serde_json::json!({"total": 7})).expect("valid"));
        assert_eq!(json["data"]["total"], 7);
        assert_eq!((&json["type"], &json["subject"], &json["source"]), (&"OrderPlaced".into(), &"42".into(), &"shop".into()));
        assert_eq!((&json["specversion"], &json["id"]), (&"1.0".into(), &json["eventid"]));
        let text = written(order.clone().bytes("text/plain", "a\nb").expect("valid"));
        assert_eq!(text["data"], "a\nb");
        let bytes = written(order.bytes("application/octet-stream", vec![0xff, 0]).expect("valid"));
        assert_eq!((&bytes["data_base64"], bytes.get("data")), (&"/wA=".into(), None));
    }

    #[test]
    fn a_message_is_one_line_whatever_its_body() {
        let envelope = Envelope::new("OrderPlaced").json_text("{\n\"total\": 7\r\n}").expect("valid");
        let message = Message::of_event(&Arc::new(Event::of(envelope).build()));
        let bytes = CloudEvent::structured(&message, "shop").expect("can be written");
        assert!(!bytes.contains(&b'\n') && !bytes.contains(&b'\r'), "{}", String::from_utf8_lossy(&bytes));
    }
}
