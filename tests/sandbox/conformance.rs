//! The conformance suite: what it says of honest plugins, and of plugins that break one rule.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use outbox::conformance::{self, Case, Report, Verdict};
use outbox::wasm::{Manifest, MemoryState, PluginHost, PluginsConfig};
use support::{Guest, breakers, honest, sample_languages, sample_plugins};

use crate::common::sample;

async fn host(component: Vec<u8>, manifest: &str) -> PluginHost {
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
const SAMPLES: [(&str, &str); 8] = [
    ("noop", "noop-rust"),
    ("order-mailer", "order-mailer-rust"),
    ("recorder", "recorder-rust"),
    ("effects", "effects-rust"),
    ("order-publisher", "order-publisher-js"),
    ("order-saga", "order-saga-go"),
    ("order-totals", "order-totals-python"),
    ("order-validator", "order-validator-c"),
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
