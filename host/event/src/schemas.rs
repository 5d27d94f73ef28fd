//! The schemas of types that write their own JSON, for the description of the HTTP API.

use serde_json::{Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::{AggregateType, Cost, EventId, EventType, Headers};
use crate::time::Timestamp;

macro_rules! schemas {
    ($($type:ty, $name:literal, $schema:expr;)+) => {$(
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                serde_json::from_value($schema).expect("it is written as a schema")
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
    Timestamp, "Timestamp", json!({
        "type": "string", "format": "date-time", "examples": ["2026-11-21T08:30:00.000000Z"],
        "description": "A point in time, UTC, with six digits after the point.",
    });
    EventId, "EventId", json!({
        "type": "string", "minLength": 1, "maxLength": 36, "pattern": ID_PATTERN, "examples": ["01J9ZC4M1T2V3W4X5Y6Z7A8B9C"],
        "description": "The id of one event: 1 to 36 visible ASCII characters. Ids that a host makes are ULIDs.",
    });
    EventType, "EventType", name(128, "OrderPlaced", "What happened.");
    AggregateType, "AggregateType", name(64, "Order", "The kind of thing it happened to; `__GLOBAL__` when the writer named none.");
    Headers, "Headers", json!({
        "type": "object", "additionalProperties": { "type": "string" }, "examples": [{ "source": "shop-a" }],
        "description": "Texts that travel beside the payload: at most 256 KiB in all, no empty key, no control characters.",
    });
    Cost, "Cost", json!({
        "type": "object", "required": ["took_us"], "description": "What one call of a listener cost: this event's share of it.",
        "properties": {
            "took_us": count("Elapsed time in microseconds."),
            "events": count("How many events the call delivered; left out for one."),
            "digest": { "type": "string", "description": "The first 12 hex digits of the component's SHA-256. Plugins only, as are the fields below." },
            "fuel": count("Fuel that the call used."),
            "memory_bytes": count("The sum of memories and tables when the call ended."),
            "host_calls": count("Calls from the plugin to the host."),
            "host_bytes": count("Bytes that those calls carried, in both directions."),
        },
    });
}

/// A regular expression that every [`EventId`] matches: visible ASCII.
pub const ID_PATTERN: &str = "^[!-~]{1,36}$";

fn name(most: u32, example: &str, description: &str) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": most, "examples": [example], "description": description })
}

fn count(description: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "description": description })
}
