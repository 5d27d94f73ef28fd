//! The conformance suite: what it says of honest plugins, and of plugins that break one rule.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use outbox::conformance::{self, Case, Report, Verdict};
use outbox::wasm::{Manifest, MemoryState, PluginHost, PluginsConfig, Resolve};
use support::{Guest, breakers, honest, sample_languages, sample_plugins};

use crate::common::sample;

pub(crate) async fn host(component: Vec<u8>, manifest: &str) -> PluginHost {
    let manifest: Manifest = toml::from_str(manifest).expect("a valid manifest");
    PluginHost::from_bytes("guest", component, manifest).await.expect("it loads")
}

async fn checked(guest: &Guest, manifest: &str) -> Report {
    conformance::check(&host(guest.build(), manifest).await, &[]).await
}

fn failed(report: &Report) -> Vec<&str> {
    let failed = report.rules.iter().filter(|rule| rule.verdict == Verdict::Failed);
    failed.map(|rule| rule.id).collect()
}

#[tokio::test]
async fn an_honest_plugin_keeps_every_rule_and_is_told_what_could_not_be_tried() {
    let report = checked(&honest(), "state = true\nemit = true").await;

    assert!(report.passed(), "{report}");
    assert_eq!((report.count(Verdict::Passed), report.count(Verdict::Skipped)), (17, 0), "{report}");
    let report = checked(&Guest::new("(call $done)"), "").await;
    assert!(report.passed(), "{report}");
    let skipped: Vec<_> = report.rules.iter().filter(|rule| rule.verdict == Verdict::Skipped).map(|rule| rule.id).collect();
    assert_eq!(skipped, ["host-call-refused", "host-call-fails", "host-call-cut"]);
    assert!(report.rules.iter().all(|rule| rule.verdict != Verdict::Skipped || rule.note.is_some()));
}

#[tokio::test]
async fn a_plugin_that_breaks_one_rule_fails_that_rule_and_no_other() {
    let mut tried = Vec::new();
    for (rule, guest, manifest) in breakers() {
        let report = checked(&guest, manifest).await;
        assert_eq!(failed(&report), [rule], "{report}");
        let broken = report.rules.iter().find(|one| one.id == rule).expect("it is there");
        assert!(broken.advice.is_some() && !broken.findings.is_empty(), "{broken:?}");
        tried.push(rule);
    }
    let report = checked(&Guest::new("(call $done)"), "").await;
    let mut all: Vec<_> = report.rules.iter().map(|rule| rule.id).collect();
    all.sort_unstable();
    tried.sort_unstable();
    assert_eq!(tried, all, "every rule has its breaker");
}

const CASES: &str = r#"
    [[case]]
    name = "counts and emits"
    state = { n = "41" }
    event = { aggregate_type = "Effects", event_type = "Do", payload = { emit = 1, count = "n", then = "done" } }
    expect = { answer = "done", state = { n = 42 }, emitted = [{ aggregate_type = "Effects", event_type = "Emitted", payload = 0 }] }

    [[case]]
    name = "fails for good and keeps nothing"
    state = { n = "41" }
    event = { aggregate_type = "Effects", event_type = "Do", payload_text = '{"emit":1,"count":"n","then":"fail"}' }
    expect = { answer = "unrecoverable", text = "as asked", state = { n = 41 }, emitted = [] }

    [[case]]
    name = "tells its setting"
    config = { greeting = "hello" }
    secrets = { token = "s3cr3t-t0ken" }
    event = { aggregate_type = "Effects", event_type = "Tell", payload = 1 }
    expect = { answer = "failure", code = "told-you", text = "hello", log = [{ level = "info", text = "the token is ***" }] }
"#;

#[tokio::test]
async fn cases_are_compared_with_the_answer_and_every_effect_that_they_name() {
    let host = host(sample("effects"), "state = true\nemit = true").await;
    let report = conformance::check(&host, &Case::from_toml(CASES).expect("cases")).await;
    assert!(report.cases.iter().all(|case| case.verdict == Verdict::Passed), "{report}");
    assert_eq!(report.count(Verdict::Skipped), 0, "the cases make it call the outside: {report}");
    assert!(!report.junit().contains("s3cr3t"));

    let differing = [
        ("answer = \"done\", state = { n = 42 }", "answer = \"dead\", state = { n = 42 }", "answer: done (expected: dead)"),
        ("state = { n = 42 }", "state = { n = 43 }", "state under \"n\": 42 (expected: 43)"),
        ("state = { n = 42 }", "state = {}", "state under \"n\": 42 (expected: nothing)"),
        ("payload = 0 }]", "payload = 1 }]", "emitted event 1, payload: 0 (expected: 1)"),
        ("text = \"as asked\"", "text = \"as told\"", "(expected: unrecoverable with the text \"as told\")"),
        (
            "emitted = [{ aggregate_type = \"Effects\", event_type = \"Emitted\", payload = 0 }]",
            "emitted = []",
            "(expected: none)",
        ),
        ("emitted = [] }", "emitted = [{ event_type = \"X\" }] }", "emitted event 1: none (expected: X)"),
        ("code = \"told-you\"", "code = \"other\"", "with the code \"other\""),
        ("level = \"info\", text", "level = \"error\", text", "(expected: a line Error with"),
        ("event_type = \"Tell\"", "event_type = \"Tall\"", "which the plugin does not answer"),
    ];
    for (right, wrong, told) in differing {
        assert!(CASES.contains(right), "{right}");
        let cases = Case::from_toml(&CASES.replacen(right, wrong, 1)).expect("cases");
        let report = conformance::check(&host, &cases).await;
        let failed: Vec<_> = report.cases.iter().filter(|case| case.verdict == Verdict::Failed).collect();
        assert_eq!(failed.len(), 1, "{wrong}: {report}");
        assert!(report.to_string().contains(told), "{wrong}: `{told}` is not in: {report}");
    }
}

const OUTSIDE: &str = r#"
    [[case]]
    name = "asks and publishes"
    secrets = { token = "s3cr3t-t0ken" }
    http = [
      { method = "GET", url = "https://API.example.com:443/a", status = 404, body = "no such thing" },
      { method = "GET", url = "https://api.example.com/a", headers = { content-type = "text/x" }, body = { base64 = "aGk=" } },
      { method = "POST", url = "https://api.example.com/s3cr3t-t0ken", status = 201, body = { id = 7 } },
    ]
    publish = [{ sink = "orders" }, { sink = "audit" }]
    [case.event]
    event_id = "e-1"
    aggregate_type = "Effects"
    event_type = "Do"
    [case.event.payload]
    publish = ["orders", "audit"]
    ask = [["GET", "https://api.example.com/a"], ["POST", "https://api.example.com/s3cr3t-t0ken"], ["GET", "https://api.example.com/a"]]
    then = "tell"
    [case.expect]
    answer = "dead"
    text = "404 nothing no such thing, 201 application/json {\"id\":7}, 200 text/x hi"
    requests = [
      { method = "GET", url = "https://api.example.com/a", headers = { x-number = "0", idempotency-key = "e-1.1" } },
      { method = "POST", body = { number = 1 } },
      { body = "{\"number\":2}" },
    ]
    messages = [
      { sink = "orders", id = "e-1.1", subject = "subject", key = "k", headers = { attempt = "1" }, body = { number = 0 } },
      { sink = "audit", id = "e-1.2", content_type = "application/json", body = { of = 2, number = 1.0 } },
    ]

    [[case]]
    name = "is told what fails"
    http = [{ method = "GET", url = "https://api.example.com", unavailable = "nobody is there" }]
    event = { aggregate_type = "Effects", event_type = "Do", payload = { ask = [["GET", "https://api.example.com"]], then = "done" } }
    expect = { answer = "retryable", text = "nobody is there", requests = [{}], messages = [] }

    [[case]]
    name = "is told that one of two is taken"
    publish = [{ sink = "orders" }, { sink = "orders", rejected = "too large for me" }]
    event = { aggregate_type = "Effects", event_type = "Do", payload = { publish = ["orders", "orders", "orders"], then = "done" } }
    expect = { answer = "unrecoverable", text = "the sink orders refused the message", messages = [{}, { id = "01KDVQ2C000000000000000000.2" }] }

    [[case]]
    name = "has one reply for all of them"
    publish = [{ sink = "audit", unavailable = "not yet" }, { sink = "orders" }]
    event = { aggregate_type = "Effects", event_type = "Do", payload = { publish = ["orders", "orders", "orders"], then = "done" } }
    expect = { answer = "done" }
"#;

/// What the cases above are granted.
pub(crate) const GRANTS: &str = "publish.sinks = ['orders', 'audit']\nhttp.allow = ['https://api.example.com']";

#[tokio::test]
async fn requests_and_messages_are_replied_to_as_a_case_says_and_compared_with_what_it_expects() {
    let host = host(sample("effects"), GRANTS).await;
    let report = conformance::check(&host, &Case::from_toml(OUTSIDE).expect("cases")).await;
    assert!(report.passed(), "{report}");

    let differing: &[(&str, &str, &[&str])] = &[
        (
            "text = \"nobody",
            "text = \"somebody",
            &["answer: retryable: [unavailable] nobody is there (expected: retryable with the text \"somebody is there\")"],
        ),
        (
            "method = \"GET\", url = \"https://api.example.com/a\", headers = { x",
            "method = \"PUT\", url = \"https://api.example.com/b\", headers = { x",
            &[
                "request 1, method: GET (expected: PUT)",
                "request 1, url: https://api.example.com/a (expected: https://api.example.com/b)",
            ],
        ),
        ("x-number = \"0\"", "x-number = \"1\"", &["request 1, header x-number: 0 (expected: 1)"]),
        ("x-number = \"0\"", "x-other = \"0\"", &["request 1, header x-other: none (expected: 0)"]),
        (
            "body = { number = 1 } }",
            "body = { number = [1], more = 2 } }",
            &["request 2, body.number: 1 (expected: [1])", "request 2, body.more: nothing (expected: 2)"],
        ),
        (
            "      { body = \"{\\\"number\\\":2}\" },\n",
            "",
            &["request 3: GET https://api.example.com/a {\"number\":2} (expected: none)"],
        ),
        (
            "{ method = \"POST\", body = { number = 1 } },",
            "{ method = \"POST\", url = \"https://api.example.com/s\" },",
            &["request 2, url: https://api.example.com/*** (expected: https://api.example.com/s)"],
        ),
        (
            "requests = [{}]",
            "requests = [{}, { method = \"GET\", url = \"http://b:8080\" }]",
            &["request 2: none (expected: GET http://b:8080/)"],
        ),
        (
            "sink = \"orders\", id = \"e-1.1\", subject = \"subject\", key = \"k\"",
            "sink = \"o\", id = \"e-1.2\", subject = \"s\", key = \"\"",
            &[
                "message 1, sink: orders (expected: o)",
                "message 1, id: e-1.1 (expected: e-1.2)",
                "message 1, subject: subject (expected: s)",
                "message 1, key: k (expected: )",
            ],
        ),
        ("headers = { attempt = \"1\" }", "headers = { Attempt = \"1\" }", &["message 1, header Attempt: none (expected: 1)"]),
        ("messages = [] }", "messages = [{ sink = \"orders\" }] }", &["message 1: none (expected: to orders: any subject)"]),
        ("messages = [{}, {", "messages = [{", &["message 2: to orders: subject {\"number\":1,\"of\":3} (expected: none)"]),
        (
            "method = \"POST\", url = \"https://api.example.com/s3cr3t-t0ken\", status",
            "method = \"PUT\", url = \"https://api.example.com/s3cr3t-t0ken\", status",
            &[
                "the request POST https://api.example.com/***: the case has no reply to it; it replies to",
                "add http = [{ method = \"POST\", url = \"https://api.example.com/***\", status = 200 }]",
            ],
        ),
        (
            "publish = [{ sink = \"orders\" }, { sink = \"audit\" }]",
            "publish = [{ sink = \"orders\" }]",
            &[
                "a message to the sink audit: the case has no reply to it; it replies to orders; add publish = [{ sink = \"audit\" }]",
            ],
        ),
        (
            "[\"orders\", \"orders\", \"orders\"], then = \"done\" } }\n    expect = { answer = \"done\" }",
            "[\"other\"], then = \"done\" } }\n    expect = { answer = \"done\" }",
            &["it was refused: a message to the sink `other`: add `\"other\"` to publish.sinks in guest.toml"],
        ),
    ];
    for (right, wrong, told) in differing {
        assert!(OUTSIDE.contains(right), "{right}");
        let cases = Case::from_toml(&OUTSIDE.replacen(right, wrong, 1)).unwrap_or_else(|error| panic!("{wrong}: {error}"));
        let report = conformance::check(&host, &cases).await;
        let failed: Vec<_> = report.cases.iter().filter(|case| case.verdict == Verdict::Failed).collect();
        assert_eq!(failed.len(), 1, "{wrong}: {report}");
        for told in *told {
            assert!(report.to_string().contains(told), "{wrong}: `{told}` is not in: {report}");
        }
        assert!(!report.junit().contains("e.com/s3cr3t"), "{wrong}: {report}");
    }
}

#[test]
fn what_is_no_reply_is_refused_with_what_is_allowed() {
    for (right, wrong, told) in [
        ("status = 404", "stat = 404", "`status`"),
        ("status = 404", "status = 99", "the status 99 is not from 100 to 599"),
        ("status = 404", "status = 404, unavailable = \"x\"", "`unavailable` goes without status"),
        ("method = \"GET\", url = \"https://API", "url = \"https://API", ".method: it is missing"),
        ("https://API.example.com:443/a", "/a", "the URL `/a` cannot be asked: it is not absolute"),
        ("content-type = \"text/x\"", "\"content type\" = \"text/x\"", "`content type` is not the name of a header"),
        ("base64 = \"aGk=\"", "base64 = \"aGk\"", "`aGk` is not standard base64"),
        ("rejected = \"too", "unavailable = \"\", rejected = \"too", "either `rejected` or `unavailable`"),
        ("{ sink = \"audit\" }", "{ sinks = \"audit\" }", "`sink`"),
        ("requests = [{}]", "requests = [{ urls = 1 }]", "`url`"),
        ("body = \"{\\\"number\\\":2}\"", "body = { base64 = \"a\" }", "`a` is not standard base64"),
    ] {
        assert!(OUTSIDE.contains(right), "{right}");
        let error = Case::from_toml(&OUTSIDE.replacen(right, wrong, 1)).expect_err(wrong);
        assert!(error.contains(told), "{wrong}: {error}");
    }
}

#[test]
fn what_is_no_case_is_refused_with_what_is_allowed() {
    let refused = |right: &str, wrong: &str| {
        assert!(CASES.contains(right), "{right}");
        Case::from_toml(&CASES.replacen(right, wrong, 1)).expect_err(wrong)
    };
    for (right, wrong, told) in [
        ("state = { n", "stat = { n", "`state`"),
        ("answer = \"done\"", "answer = \"finished\"", "`retry-after`"),
        ("answer = \"done\"", "answer = \"done\", after = \"1s\"", "after goes with"),
        ("payload = { emit", "payload_text = 'x', payload = { emit", "at most one of payload"),
        ("name = \"counts and emits\"", "name = \"\"", "case 1: its name is empty"),
        ("event_type = \"Do\"", "event_type = \"\"", "event_type is empty"),
    ] {
        let error = refused(right, wrong);
        assert!(error.contains(told), "{wrong}: {error}");
    }
    assert!(Case::from_json("{\"cases\": []}").expect_err("another key").contains("`case`"));
    assert_eq!(Case::from_json("{\"case\": []}").expect("none").len(), 0);
}

/// The samples, with the folder of each: its manifest, if it has one, and its cases.
const SAMPLES: [(&str, &str); 9] = [
    ("noop", "noop-rust"),
    ("order-mailer", "order-mailer-rust"),
    ("recorder", "recorder-rust"),
    ("effects", "effects-rust"),
    ("order-publisher", "order-publisher-js"),
    ("order-saga", "order-saga-go"),
    ("order-totals", "order-totals-python"),
    ("order-validator", "order-validator-c"),
    ("order-webhook", "order-webhook-rust"),
];

#[tokio::test]
async fn every_sample_keeps_the_rules_and_its_own_cases() {
    for (name, folder) in SAMPLES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins").join(folder);
        let manifest = std::fs::read_to_string(folder.join(format!("{name}.toml"))).unwrap_or_default();
        let manifest: Manifest = toml::from_str(&manifest).expect("a valid manifest");
        let config = PluginsConfig {
            manifests: BTreeMap::from([(name.to_owned(), manifest)]),
            cache_dir: Some(sample_languages().join(".cache")),
            resolve: Resolve::new(|_, name| Ok(format!("{name} of this test"))),
            ..PluginsConfig::default()
        };
        let places = [sample_plugins(), sample_languages()].map(|place| place.join(format!("{name}.wasm")));
        let file = places.iter().find(|file| file.exists()).expect("it is built");
        let host = PluginHost::from_file(file, &config, Arc::new(MemoryState::default())).await.expect("it loads");
        let cases = conformance::read_cases(&folder.join("cases")).expect("it has cases");

        let report = conformance::check(&host, &cases).await;

        assert!(report.passed(), "{report}");
        assert_eq!(report.cases.len(), cases.len());
    }
}
