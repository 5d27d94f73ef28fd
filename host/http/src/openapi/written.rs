//! Schemas that are written by hand.

use serde_json::Value;
use utoipa::openapi::{RefOr, Schema};

/// A schema as it stands in the document.
pub(super) fn written(schema: Value) -> RefOr<Schema> {
    serde_json::from_value(schema).expect("it is written as a schema")
}
