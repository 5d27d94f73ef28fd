//! The document that describes the API.

use std::collections::{BTreeMap, BTreeSet};

use super::super::api::endpoints;
use super::*;

const METHODS: [&str; 6] = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];

/// Every value under this key, however deep.
fn found<'v>(value: &'v Value, key: &str, into: &mut Vec<&'v Value>) {
    match value {
        Value::Object(fields) => {
            into.extend(fields.get(key));
            fields.values().for_each(|value| found(value, key, into));
        }
        Value::Array(values) => values.iter().for_each(|value| found(value, key, into)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_of_the_document_is_there_with_its_methods_and_no_other() {
    let served = Served::start().await;
    let document = served.get("/openapi.json").await;
    assert_eq!((document.status, document.header("content-type")), (200, "application/json"), "{}", document.text);
    let document = document.json();
    assert_eq!(document["openapi"], "3.1.0");
    let about = document["info"]["description"].as_str().expect("text");
    assert!(about.contains("is refused when a browser sends it for a page of another site, unless it is a link"), "{about}");
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() > 15, "{paths:#?}");
    for (path, item) in paths {
        let told: BTreeSet<String> = item.as_object().expect("operations").keys().map(|name| name.to_uppercase()).collect();
        let real = path.replace("{id}", "none").replace("{aggregate_type}", "A").replace("{event_type}", "B");
        for method in METHODS {
            // A stream does not end; its route is that of the document as all are.
            if path == "/v1/stream" && method == "GET" {
                continue;
            }
            let answer = served.send(&format!("{method} {real}"), "", b"").await;
            let is_known = answer.status != 405 && !answer.text.contains("there is nothing at this path");
            assert_eq!(is_known, told.contains(method), "{method} {path}: {} {}", answer.status, answer.text);
        }
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_document_refers_to_nothing_that_it_does_not_hold() {
    let served = Served::start().await;
    let document = served.get("/openapi.json").await.json();
    let mut references = Vec::new();
    found(&document, "$ref", &mut references);
    assert!(references.len() > 50, "{}", references.len());
    for reference in references {
        let pointer = reference.as_str().expect("text").strip_prefix('#').expect("within the document");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    let mut names = Vec::new();
    found(&document, "operationId", &mut names);
    let unique: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
    assert_eq!(unique.len(), names.len(), "each operation has a name of its own: {names:?}");
    served.stop().await;
}

#[test]
fn no_two_schemas_share_a_name() {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for endpoint in endpoints() {
        for (name, schema) in endpoint.operation().1 {
            let schema = serde_json::to_string(&schema).expect("JSON");
            let before = known.entry(name.clone()).or_insert_with(|| schema.clone());
            assert_eq!(before, &schema, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_tells_its_role_and_what_it_refuses() {
    let (served, [viewer, ..]) = Served::with_tokens().await;
    assert_eq!(served.get("/openapi.json").await.status, 401);
    let document = served.send("GET /openapi.json", &format!("Authorization: Bearer {viewer}\r\n"), b"").await.json();
    let operation = |path: &str, method: &str| document["paths"][path][method].clone();
    let codes = |path: &str, method: &str, status: &str| {
        let schema = &operation(path, method)["responses"][status]["content"]["application/problem+json"]["schema"];
        schema["allOf"][1]["properties"]["code"]["enum"].clone()
    };
    assert_eq!(codes("/v1/purge", "post", "403"), serde_json::json!(["forbidden", "cross_site", "foreign_host"]));
    assert_eq!(codes("/v1/stats", "get", "403"), serde_json::json!(["cross_site", "foreign_host"]));
    assert_eq!(codes("/v1/stats", "get", "401"), serde_json::json!(["unauthorized", "token_expired"]));
    assert_eq!(codes("/v1/dead/{id}/replay", "post", "409"), serde_json::json!(["wrong_state"]));
    assert_eq!(codes("/livez", "get", "401"), Value::Null);
    for (path, method, status) in
        [("/v1/events", "post", "413"), ("/v1/events/{id}", "get", "404"), ("/v1/stream", "get", "503")]
    {
        assert!(codes(path, method, status).is_array(), "{method} {path} {status}");
    }
    assert_eq!(operation("/livez", "get")["security"], serde_json::json!([{}]));
    assert_eq!(operation("/v1/purge", "post")["security"], serde_json::json!([{ "token": [] }]));
    assert!(operation("/v1/purge", "post")["description"].as_str().is_some_and(|text| text.contains("role admin")));
    served.stop().await;
}
