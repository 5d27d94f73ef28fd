//! What findings of the conformance suite show of a plugin: never its secrets, and no more than a reader needs.

use outbox::conformance::{self, Case, Finding, Report};
use support::Guest;

use crate::common::sample;
use crate::conformance::{GRANTS, host};

#[tokio::test]
async fn a_secret_that_lies_where_a_finding_is_cut_is_hidden_whole() {
    let url = format!("https://api.example.com/{}s3cr3t-t0ken", "x".repeat(370));
    let case = format!(
        "[[case]]\nname = \"long\"\nsecrets = {{ token = \"s3cr3t-t0ken\" }}\nhttp = [{{ method = \"GET\", url = \"{url}\" }}]\n\
         event = {{ aggregate_type = \"Effects\", event_type = \"Do\", payload = {{ ask = [[\"GET\", \"{url}\"]], then = \"done\" }} }}\n\
         expect = {{ answer = \"done\", requests = [{{ url = \"https://api.example.com\" }}] }}"
    );

    let host = host(sample("effects"), GRANTS).await;
    let report = conformance::check(&host, &Case::from_toml(&case).expect("a case")).await;

    let found = &report.cases[0].findings[0].found;
    assert!(found.ends_with("xxx***"), "{found}");
}

/// A guest with the secret's place at 33004 and its length at 33008, and at 34000 this many letters with the secret behind them.
fn knowing(letters: u32, body: &str) -> Guest {
    let secret = "(i32.load (i32.const 33004)) (i32.load (i32.const 33008))";
    let body = body.replace("$SECRET", secret);
    Guest::new(&format!(
        "(call $secret (i32.const 2050) (i32.const 5) (i32.const 33000))
        (memory.fill (i32.const 34000) (i32.const 120) (i32.const {letters}))
        (memory.copy (i32.const {}) {secret})
        {body}",
        34_000 + letters
    ))
    .outside("(data (i32.const 2049) \"k\") (data (i32.const 2050) \"token\")")
}

/// Keeps under `k` what lies at 34000.
fn set(letters: u32) -> String {
    format!(
        "(call $state_set (i32.const 2049) (i32.const 1)
            (i32.const 34000) (i32.add (i32.const {letters}) (i32.load (i32.const 33008))) (i32.const 32768))"
    )
}

/// Fails unless the rule is broken, a finding of it hides the secret, and nothing of the report shows any part of it.
fn hides(report: &Report, rule: &str) {
    let broken = report.rules.iter().find(|one| one.id == rule).expect("it is a rule");
    let is_hidden = |Finding { at, found, expected }: &Finding| {
        [Some(at), Some(found), expected.as_ref()].into_iter().flatten().any(|text| text.contains("***"))
    };
    assert!(broken.findings.iter().any(is_hidden), "{rule}: {report}");
    for text in [report.to_string(), report.junit(), serde_json::to_string(report).expect("JSON")] {
        assert!(!text.contains("s3cr"), "{rule}: {text}");
    }
}

const MANIFEST: &str = "state = true\nsecrets.token = 's3cr3t-t0ken'";

#[tokio::test]
async fn a_rule_that_is_broken_shows_no_secret_in_any_kind_of_finding() {
    // Where a line is cut, half a secret must not be left.
    let straddling = 400 - 4 - u32::try_from("sets \"k\" to ".len()).expect("a few");
    let first_call =
        format!("(if (i32.eqz (global.get $count)) (then (global.set $count (i32.const 1)) {})) (call $done)", set(straddling));
    // What its instance met first decides for all.
    let first_event = format!(
        "(if (i32.eqz (global.get $count))
            (then (global.set $count (i32.add (i32.load offset=88 (local.get $event)) (i32.const 1000)))))
        (if (i32.eq (global.get $count) (i32.const 1004)) (then {}))
        (call $done)",
        set(straddling)
    );
    // Reads what is kept under its secret, and breaks when it is refused, fails or was cut off.
    let reads = "(call $state_get $SECRET (i32.const 32768))
        (if (i32.or (i32.load8_u (i32.const 32768)) (i32.eq (i32.load offset=72 (local.get $event)) (i32.const 2)))
            (then unreachable))
        (call $done)";
    for (rule, guest, manifest) in [
        ("same-twice", knowing(straddling, &first_call), MANIFEST),
        ("order", knowing(straddling, &first_event), MANIFEST),
        ("host-call-fails", knowing(0, reads), MANIFEST),
        ("host-call-cut", knowing(0, reads), MANIFEST),
    ] {
        let report = conformance::check(&host(guest.build(), manifest).await, &[]).await;
        hides(&report, rule);
    }
}

#[tokio::test]
async fn a_case_that_breaks_a_rule_shows_no_secret_and_a_long_one_is_cut() {
    let name = "a case with a long name ".repeat(40);
    let sink = "s3cr3t-t0ken";
    let cases = format!(
        "[[case]]\nname = \"{name}\"\nsecrets = {{ token = \"s3cr3t-t0ken\" }}\n\
         event = {{ aggregate_type = \"Effects\", event_type = \"Tell\", payload_text = '\"panic\"' }}\n\
         expect = {{ answer = \"failure\" }}\n\
         [[case]]\nname = \"asks\"\nsecrets = {{ token = \"s3cr3t-t0ken\" }}\n\
         event = {{ aggregate_type = \"Effects\", event_type = \"Do\", payload = {{ publish = [\"{sink}\"], then = \"done\" }} }}\n\
         expect = {{ answer = \"failure\" }}\n"
    );

    let host = host(sample("effects"), GRANTS).await;
    let report = conformance::check(&host, &Case::from_toml(&cases).expect("cases")).await;

    hides(&report, "answers");
    hides(&report, "grants");
    for Finding { at, found, .. } in report.rules.iter().flat_map(|rule| &rule.findings) {
        assert!(at.len() < 450 && found.len() < 4_200, "{at}: {found}");
    }
    let long = report.rules[0].findings.iter().find(|finding| finding.at.contains("a case with a long name"));
    assert!(long.expect("it broke").at.contains(" bytes more)"), "{report}");
}
