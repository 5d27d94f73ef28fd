//! Which requests and messages must come of a case's event, and how they differ from those that came.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::essence::text;
use super::report::Finding;
use super::written::{Url, WrittenBytes};
use crate::Outside;

/// One respect in which something differs from what is expected.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// In which respect.
    pub(super) what: String,
    pub(super) expected: String,
    pub(super) found: String,
}

/// A request; what is left out is not looked at.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    method: Option<String>,
    url: Option<Url>,
    /// In any case of letters.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<WrittenBytes>,
}

/// A message; what is left out is not looked at.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Message {
    sink: Option<String>,
    id: Option<String>,
    subject: Option<String>,
    key: Option<String>,
    content_type: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<WrittenBytes>,
}

/// All requests among `sent`, in order, against all that are expected.
pub(super) fn compare_requests(expected: &[Request], sent: &[Outside]) -> Vec<Finding> {
    let found: Vec<_> = sent.iter().filter(|sent| matches!(sent, Outside::HttpRequest { .. })).collect();
    compare_each("request", expected, &found, |wanted, got| wanted.differences(got))
}

/// All messages among `sent`, in order, against all that are expected.
pub(super) fn compare_messages(expected: &[Message], sent: &[Outside]) -> Vec<Finding> {
    let found: Vec<_> = sent.iter().filter(|sent| matches!(sent, Outside::Message { .. })).collect();
    compare_each("message", expected, &found, |wanted, got| wanted.differences(got))
}

/// What is expected or was found, in a line.
pub(super) trait Summary {
    fn summary(&self) -> String;
}

/// Each thing that was found against the one that is expected in its place.
pub(super) fn compare_each<E: Summary, F: Summary>(
    what: &str,
    expected: &[E],
    found: &[F],
    differences: impl Fn(&E, &F) -> Vec<Difference>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for index in 0..expected.len().max(found.len()) {
        let at = format!("{what} {}", index + 1);
        match (expected.get(index), found.get(index)) {
            (Some(wanted), Some(got)) => {
                findings.extend(differences(wanted, got).into_iter().map(|Difference { what, expected, found }| {
                    Finding::new(format!("{at}, {what}"), found).instead_of(expected)
                }))
            }
            (Some(wanted), None) => findings.push(Finding::new(at, "none").instead_of(wanted.summary())),
            (None, Some(got)) => findings.push(Finding::new(at, got.summary()).instead_of("none")),
            (None, None) => {}
        }
    }
    findings
}

impl Summary for &Outside {
    fn summary(&self) -> String {
        match self {
            Outside::HttpRequest { method, url, body, .. } => format!("{method} {url} {}", text(body)),
            Outside::Message { sink, subject, body, .. } => format!("to {sink}: {subject} {}", text(body)),
            Outside::StateRead { .. } | Outside::StateUsage => String::new(),
        }
    }
}

impl Summary for Request {
    fn summary(&self) -> String {
        let url = self.url.as_ref().map_or("any URL", Url::as_str);
        format!("{} {url}", self.method.as_deref().unwrap_or("any method"))
    }
}

impl Request {
    fn differences(&self, sent: &Outside) -> Vec<Difference> {
        let Outside::HttpRequest { method, url, headers, body } = sent else { return Vec::new() };
        let mut differences = Differences::default();
        differences.compare("method", self.method.as_deref(), Some(method));
        differences.compare("url", self.url.as_ref().map(Url::as_str), Some(url));
        differences.compare_headers(&self.headers, headers, |wanted, name| wanted.eq_ignore_ascii_case(name));
        differences.compare_body(self.body.as_ref(), body);
        differences.0
    }
}

impl Summary for Message {
    fn summary(&self) -> String {
        let subject = self.subject.as_deref().unwrap_or("any subject");
        format!("to {}: {subject}", self.sink.as_deref().unwrap_or("any sink"))
    }
}

impl Message {
    fn differences(&self, sent: &Outside) -> Vec<Difference> {
        let Outside::Message { sink, id, subject, key, content_type, headers, body } = sent else { return Vec::new() };
        let mut differences = Differences::default();
        differences.compare("sink", self.sink.as_deref(), Some(sink));
        differences.compare("id", self.id.as_deref(), Some(id));
        differences.compare("subject", self.subject.as_deref(), Some(subject));
        differences.compare("key", self.key.as_deref(), key.as_deref());
        differences.compare("content_type", self.content_type.as_deref(), Some(content_type));
        differences.compare_headers(&self.headers, headers, |wanted, name| wanted == name);
        differences.compare_body(self.body.as_ref(), body);
        differences.0
    }
}

#[derive(Default)]
pub(super) struct Differences(pub(super) Vec<Difference>);

impl Differences {
    pub(super) fn add(&mut self, what: impl Into<String>, expected: impl Into<String>, found: impl Into<String>) {
        self.0.push(Difference { what: what.into(), expected: expected.into(), found: found.into() });
    }

    /// Nothing is wanted where `wanted` is `None`.
    pub(super) fn compare(&mut self, what: &str, wanted: Option<&str>, got: Option<&str>) {
        if let Some(wanted) = wanted
            && got != Some(wanted)
        {
            self.add(what, wanted, got.unwrap_or("none"));
        }
    }

    /// A header that came several times has one of its values as wanted.
    fn compare_headers(
        &mut self,
        wanted: &BTreeMap<String, String>,
        got: &[(String, String)],
        is: impl Fn(&str, &str) -> bool,
    ) {
        for (name, value) in wanted {
            let values: Vec<&str> = got.iter().filter(|(other, _)| is(name, other)).map(|(_, value)| value.as_str()).collect();
            if !values.contains(&value.as_str()) {
                let got = (!values.is_empty()).then(|| values.join(", "));
                self.compare(&format!("header {name}"), Some(value), got.as_deref());
            }
        }
    }

    /// JSON has at least what is wanted of it; anything else is the same byte by byte.
    fn compare_body(&mut self, wanted: Option<&WrittenBytes>, got: &[u8]) {
        match wanted {
            Some(WrittenBytes::Json(wanted)) => match serde_json::from_slice::<Value>(got) {
                Ok(got) => self.compare_json("", wanted, &got),
                Err(_) => self.add("body", wanted.to_string(), text(got)),
            },
            Some(WrittenBytes::Plain(wanted)) if wanted != got => self.add("body", text(wanted), text(got)),
            Some(WrittenBytes::Plain(_)) | None => {}
        }
    }

    /// An object may have more keys than are wanted, at any depth; a list has as many elements.
    fn compare_json(&mut self, at: &str, wanted: &Value, got: &Value) {
        match (wanted, got) {
            (Value::Object(wanted), Value::Object(got)) => {
                for (key, wanted) in wanted {
                    let at = format!("{at}.{key}");
                    match got.get(key) {
                        Some(got) => self.compare_json(&at, wanted, got),
                        None => self.add(format!("body{at}"), wanted.to_string(), "nothing"),
                    }
                }
            }
            (Value::Array(wanted), Value::Array(got)) if wanted.len() == got.len() => {
                for (index, (wanted, got)) in wanted.iter().zip(got).enumerate() {
                    self.compare_json(&format!("{at}[{index}]"), wanted, got);
                }
            }
            _ if wanted == got || same_number(wanted, got) => {}
            _ => self.add(format!("body{at}"), wanted.to_string(), got.to_string()),
        }
    }
}

/// Whether these are one number, written with a fraction and without.
fn same_number(wanted: &Value, got: &Value) -> bool {
    (wanted.is_f64() || got.is_f64()) && wanted.as_f64().is_some_and(|wanted| got.as_f64() == Some(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn differences(wanted: Value, got: &Value) -> Vec<Difference> {
        let mut differences = Differences::default();
        differences.compare_body(Some(&WrittenBytes::Json(wanted)), got.to_string().as_bytes());
        differences.0
    }

    #[test]
    fn a_json_body_has_at_least_what_is_expected_at_every_depth_and_each_difference_is_told_with_its_place() {
        let got = json!({ "id": 7, "total": 9.0, "items": [{ "sku": "a", "n": 1 }, { "sku": "b", "n": 2 }], "note": null });

        assert_eq!(differences(json!({ "total": 9, "items": [{ "n": 1 }, { "sku": "b" }], "note": null }), &got), []);
        let difference = |what: &str, expected: &str, found: &str| {
            let [what, expected, found] = [what, expected, found].map(str::to_owned);
            Difference { what, expected, found }
        };
        assert_eq!(
            differences(json!({ "id": "7", "items": [{ "n": 1 }, { "sku": "c", "price": 3 }], "more": 1 }), &got),
            [
                difference("body.id", "\"7\"", "7"),
                difference("body.items[1].price", "3", "nothing"),
                difference("body.items[1].sku", "\"c\"", "\"b\""),
                difference("body.more", "1", "nothing"),
            ]
        );
        assert_eq!(differences(json!({ "items": [{ "n": 1 }] }), &got).len(), 1, "a list is no part of a longer one");
        assert_eq!(differences(json!([]), &got).len(), 1);
        assert_eq!(differences(json!({ "note": false }), &got), [difference("body.note", "false", "null")]);
    }
}
