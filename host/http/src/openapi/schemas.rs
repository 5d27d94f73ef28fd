//! The schemas of values that write themselves as JSON, where nothing can be derived from their fields.

use serde_json::{Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::written::written;

macro_rules! schemas {
    ($($type:ty, $name:literal, $schema:expr;)+) => {$(
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                written($schema)
            }
        }

        impl ToSchema for $type {
            fn name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }
        }
    )+};
}

schemas! {
    Envelope, "Envelope", envelope();
    CloudEvent, "CloudEvent", cloud_event();
    Payload, "Payload", json!({
        "type": "object", "description": "The payload: as JSON, as text, or as base64 where it is neither. Viewers get no payload, and nobody one of more than 8 MiB, which no host reads.",
        "properties": {
            "payload": any("Any JSON value, or a string for other text."),
            "payload_base64": { "type": "string", "contentEncoding": "base64" },
            "payload_hidden": { "type": "boolean", "description": "True when the caller's role may not see payloads." },
        },
    });
}

/// One event as its writer sends it.
pub(crate) struct Envelope;

/// One CloudEvent in the structured mode.
pub(crate) struct CloudEvent;

/// What a row that is shown alone has beside the fields of a list.
pub(crate) struct Payload;

fn any(description: &str) -> Value {
    json!({ "type": ["object", "array", "string", "number", "boolean", "null"], "description": description })
}

fn time(description: &str) -> Value {
    json!({ "type": ["string", "null"], "format": "date-time", "description": description })
}

fn envelope() -> Value {
    let text = |description: &str| json!({ "type": ["string", "null"], "description": description });
    json!({
        "type": "object",
        "required": ["event_type"],
        "additionalProperties": false,
        "description": "An event as its writer sends it. It has exactly one of `payload` and `payload_base64`.",
        "properties": {
            "event_id": { "oneOf": [{ "$ref": "#/components/schemas/EventId" }, { "type": "null" }] },
            "event_type": { "$ref": "#/components/schemas/EventType" },
            "aggregate_type": { "oneOf": [{ "$ref": "#/components/schemas/AggregateType" }, { "type": "null" }] },
            "aggregate_id": text("The one thing it happened to. Events of one aggregate may be delivered in order."),
            "tenant_id": text("The tenant that it belongs to."),
            "occurred_at": time("When it happened. Default now."),
            "available_at": time("No delivery before this time. Not together with `deliver_after`."),
            "deliver_after": text("No delivery before this span is over, such as `30s` or `1h 30m`."),
            "expires_at": time("The event is given up if it has not been delivered by then."),
            "headers": { "$ref": "#/components/schemas/Headers" },
            "payload": any("Any JSON value, at most 1 MiB; its bytes are kept as they were sent."),
            "payload_base64": text("A payload that is not JSON, as base64; set `content_type` too."),
            "content_type": text("What the payload's bytes are. Default `application/json`."),
        },
    })
}

fn cloud_event() -> Value {
    let value = |description: &str| json!({ "type": ["string", "integer", "boolean", "null"], "description": description });
    let text = |description: &str| json!({ "type": "string", "minLength": 1, "description": description });
    let extension = |description: &str| json!({ "type": ["string", "null"], "description": description });
    json!({
        "type": "object",
        "required": ["specversion", "id", "source", "type"],
        "description": "A CloudEvent 1.0. Attributes that are not named here are kept as headers, `source` as `ce-source`.",
        "properties": {
            "specversion": { "type": "string", "enum": ["1.0"] },
            "id": text("Names the event together with `source`. A UUID or a ULID becomes the event's id; any other text becomes the \
                        header `ce-id`, and the event's id is made from both."),
            "source": text("Where it comes from; becomes the header `ce-source`."),
            "type": { "$ref": "#/components/schemas/EventType" },
            "subject": extension("Becomes the aggregate's id."),
            "time": time("When it happened."),
            "datacontenttype": extension("What `data` is. Default `application/json`."),
            "data": any("The payload."),
            "data_base64": { "type": "string", "contentEncoding": "base64" },
            "aggregatetype": value("Becomes the aggregate type."),
            "tenantid": value("Becomes the tenant."),
            "traceparent": extension("The W3C trace context; becomes the header `traceparent`."),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_takes_every_field_that_is_told_and_no_other() {
        let told = envelope();
        let fields = told["properties"].as_object().expect("an object");
        assert_eq!(fields.len(), 13);
        for name in fields.keys() {
            let value = match name.as_str() {
                "occurred_at" | "available_at" | "expires_at" => json!("2126-11-21T08:30:00Z"),
                "deliver_after" => json!("30s"),
                "headers" => json!({ "source": "shop-a" }),
                "payload_base64" => json!("AAEC"),
                "payload" => json!({ "total": 1 }),
                _ => json!("Order"),
            };
            let mut whole = json!({ "event_type": "OrderPlaced" });
            if name == "occurred_at" {
                whole["available_at"] = value.clone();
            }
            if name != "payload_base64" {
                whole["payload"] = json!(1);
            }
            whole[name] = value;
            let read = outbox_event::Envelope::from_json(whole.to_string().as_bytes());
            assert!(read.is_ok(), "{name}: {read:?}");
        }
        let more = json!({ "event_type": "OrderPlaced", "payload": 1, "more": 1 });
        assert!(outbox_event::Envelope::from_json(more.to_string().as_bytes()).is_err());
    }
}
