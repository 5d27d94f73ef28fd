//! The answers that say no, made from the kinds of problems.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use serde_json::{Value, json};
use utoipa::openapi::ContentBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::response::{Response, ResponseBuilder};

use super::super::problem::{Kind, PROBLEM, Problem};
use super::written::written;

/// One answer for each status that these kinds have: the codes that it may carry, each with an example.
pub(super) fn by_status(kinds: &[Kind]) -> BTreeMap<u16, Response> {
    let mut by_status: BTreeMap<u16, BTreeSet<Kind>> = BTreeMap::new();
    for kind in kinds {
        by_status.entry(kind.status().as_u16()).or_default().insert(*kind);
    }
    by_status.into_iter().map(|(status, kinds)| (status, answer(status, &kinds))).collect()
}

fn answer(status: u16, kinds: &BTreeSet<Kind>) -> Response {
    let titles: Vec<String> = kinds.iter().map(|kind| format!("`{}`: {}", kind.code(), kind.title())).collect();
    let codes: Vec<&str> = kinds.iter().map(|kind| kind.code()).collect();
    let schema = json!({ "allOf": [
        { "$ref": "#/components/schemas/Problem" },
        { "type": "object", "properties": {
            "status": { "type": "integer", "enum": [status] },
            "code": { "type": "string", "enum": codes },
        } },
    ] });
    let example = kinds.first().map(|kind| json!(Problem::new(*kind, kind.title()).document()));
    let content = ContentBuilder::new().schema(Some(written(schema))).example(example).build();
    let mut answer = ResponseBuilder::new().description(titles.join("; ")).content(PROBLEM, content).build();
    let mut header = |name: &str, schema: Value, description: &str| {
        let header = HeaderBuilder::new().schema(Some(written(schema))).description(Some(description)).build();
        answer.headers.insert(name.to_owned(), header.into());
    };
    if status == StatusCode::UNAUTHORIZED.as_u16() {
        header("WWW-Authenticate", json!({ "type": "string" }), "How to send a token: `Bearer realm=\"outbox\"`.");
    }
    if status == StatusCode::SERVICE_UNAVAILABLE.as_u16() {
        header("Retry-After", json!({ "type": "integer", "minimum": 0 }), "How many seconds to wait before the next request.");
    }
    answer
}
