//! CloudEvents into envelopes: structured and in binary mode. Source: CloudEvents 1.0.2, JSON format 1.0.2, HTTP binding 1.0.2.
//!
//! `id` becomes the event's id where it is unique by itself, and else one made from it and `source`. `type` becomes the event's
//! type, `subject` the aggregate's id, `time` when it happened; the extensions `aggregatetype`, `tenantid` and `traceparent`,
//! as the sinks of this host write them, become what they are called. All other attributes are kept as headers, `source` as
//! `ce-source`.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, header};
use data_encoding::HEXLOWER;
use outbox_event::{Envelope, EnvelopeBuilder, EventId, TRACEPARENT};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::fault::{Fault, of_envelope};

/// One CloudEvent as a JSON object.
pub(super) fn structured(text: &str) -> Result<Envelope, Fault> {
    let members: BTreeMap<String, &RawValue> =
        serde_json::from_str(text).map_err(|error| Fault::new("body", error.to_string()))?;
    let (mut attributes, mut data, mut base64) = (BTreeMap::new(), None, None);
    for (name, value) in members {
        match name.as_str() {
            "data" => data = Some(value),
            "data_base64" => base64 = Some(value),
            _ => {
                if let Some(value) = attribute(&name, value)? {
                    attributes.insert(name, value);
                }
            }
        }
    }
    let content_type = attributes.remove("datacontenttype");
    let builder = builder(attributes)?;
    let kind = content_type.unwrap_or_else(|| JSON.to_owned());
    let built = match (data, base64) {
        (Some(_), Some(_)) => return Err(Fault::new("data", "data and data_base64 exclude each other")),
        (None, Some(base64)) => {
            let text: String = serde_json::from_str(base64.get()).map_err(|_| Fault::new("data_base64", "it is not base64"))?;
            let bytes = data_encoding::BASE64.decode(text.as_bytes());
            payload(builder, &kind, bytes.map_err(|error| Fault::new("data_base64", error.to_string()))?)
        }
        // Of JSON the bytes as they are; any other kind of text stands in a JSON string.
        (Some(data), None) if is_json(&kind) => payload(builder, &kind, data.get().as_bytes().to_vec()),
        (Some(data), None) => {
            let text = serde_json::from_str::<String>(data.get()).map(String::into_bytes);
            payload(builder, &kind, text.unwrap_or_else(|_| data.get().as_bytes().to_vec()))
        }
        (None, None) if is_json(&kind) => payload(builder, &kind, b"null".to_vec()),
        (None, None) => payload(builder, &kind, Vec::new()),
    };
    built.map_err(|error| of_cloud_event(of_envelope(&error)))
}

/// One CloudEvent whose attributes are headers and whose data is the body.
pub(super) fn binary(headers: &HeaderMap, body: &[u8]) -> Result<Envelope, Fault> {
    let mut attributes = BTreeMap::new();
    for (name, value) in headers {
        let Some(attribute) = name.as_str().strip_prefix("ce-") else { continue };
        let unreadable = || Fault::new(name.as_str(), "it is not percent-encoded UTF-8");
        let value = std::str::from_utf8(value.as_bytes()).map_err(|_| unreadable())?;
        let value = percent_decode_str(value).decode_utf8().map_err(|_| unreadable())?.into_owned();
        if attributes.insert(attribute.to_owned(), value).is_some() {
            return Err(Fault::new(name.as_str(), "it is there twice"));
        }
    }
    let kind = headers.get(header::CONTENT_TYPE).map_or(Ok(JSON), |kind| kind.to_str());
    let kind = kind.map_err(|_| Fault::new("content-type", "it cannot be read"))?;
    let body = if body.is_empty() && is_json(kind) { b"null" } else { body };
    payload(builder(attributes)?, kind, body.to_vec()).map_err(|error| of_cloud_event(of_envelope(&error)))
}

const JSON: &str = "application/json";
/// The attributes of the specification and of its tracing extension, which are texts; those of other extensions may be numbers and
/// truth values as well.
const TEXTS: [&str; 10] =
    ["specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "traceparent", "tracestate"];

fn payload(builder: EnvelopeBuilder, kind: &str, bytes: Vec<u8>) -> Result<Envelope, outbox_event::EnvelopeError> {
    if kind == JSON { builder.json_text(bytes) } else { builder.bytes(kind, bytes) }
}

fn is_json(kind: &str) -> bool {
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.ends_with("/json") || essence.ends_with("+json")
}

/// The text of an attribute; `None` for `null`, which stands for none.
fn attribute(name: &str, value: &RawValue) -> Result<Option<String>, Fault> {
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if !is_name {
        return Err(Fault::new(name, "the name of an attribute has lower-case letters and digits only"));
    }
    match serde_json::from_str(value.get()) {
        Ok(Value::String(text)) => Ok(Some(text)),
        Ok(Value::Null) => Ok(None),
        _ if TEXTS.contains(&name) => Err(Fault::new(name, "it is no text")),
        Ok(Value::Bool(value)) => Ok(Some(value.to_string())),
        Ok(Value::Number(number)) if number.is_i64() => Ok(Some(number.to_string())),
        _ => Err(Fault::new(name, "an attribute is a string, an integer or a boolean")),
    }
}

/// What the attributes say of the event.
fn builder(mut attributes: BTreeMap<String, String>) -> Result<EnvelopeBuilder, Fault> {
    let mut required = |name: &str| match attributes.remove(name) {
        Some(value) if !value.is_empty() => Ok(value),
        _ => Err(Fault::new(name, "a CloudEvent needs this attribute")),
    };
    let version = required("specversion")?;
    if version != "1.0" {
        return Err(Fault::new("specversion", format!("it is `{version}`; this host reads 1.0")));
    }
    let (id, source) = (required("id")?, required("source")?);
    let mut builder = Envelope::new(required("type")?);
    builder = match unique(&id) {
        Some(unique) => builder.id(unique),
        None => builder.id(made_of(&source, &id)).header("ce-id", id),
    };
    builder = builder.header("ce-source", source);
    if let Some(time) = attributes.remove("time") {
        builder = builder.occurred_at(time.parse().map_err(|error| Fault::new("time", format!("{error}")))?);
    }
    for (name, value) in attributes {
        builder = match name.as_str() {
            "subject" => builder.aggregate_id(value),
            "aggregatetype" => builder.aggregate_type(value),
            "tenantid" => builder.tenant(value),
            "traceparent" => builder.header(TRACEPARENT, value),
            _ => builder.header(format!("ce-{name}"), value),
        };
    }
    Ok(builder)
}

/// An `id` that no other source has by accident: a UUID or a ULID.
fn unique(id: &str) -> Option<EventId> {
    let is_hyphen = |place: usize| matches!(place, 8 | 13 | 18 | 23);
    let digit = |(place, byte): (usize, u8)| if is_hyphen(place) { byte == b'-' } else { byte.is_ascii_hexdigit() };
    let is_uuid = id.len() == 36 && id.bytes().enumerate().all(digit);
    (is_uuid || ulid::Ulid::from_string(id).is_ok()).then(|| id.parse().ok()).flatten()
}

/// The id of an event whose own `id` another source may use as well: always the same for the same two, whatever the table holds, so
/// that a repeat is known and two events are never one.
fn made_of(source: &str, id: &str) -> EventId {
    // Each with its length, so that no other pair makes the same text.
    let digest = Sha256::digest(format!("{}:{source}{id}", source.len()).as_bytes());
    format!("ce-{}", HEXLOWER.encode(&digest[..16])).parse().expect("35 visible characters are an id")
}

/// A fault under the name that the CloudEvent has for the field.
fn of_cloud_event(fault: Fault) -> Fault {
    let field = match fault.field.as_str() {
        "event_type" => "type",
        "aggregate_type" => "aggregatetype",
        "aggregate_id" => "subject",
        "tenant_id" => "tenantid",
        "content_type" => "datacontenttype",
        "payload" => "data",
        other => other,
    };
    Fault { field: field.to_owned(), ..fault }
}
