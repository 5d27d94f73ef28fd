//! `outbox plugin test`: as the author of a plugin meets it, and as a CI server does.

use std::fs;
use std::process::Command;

use serde_json::Value;
use support::{Guest, breakers, honest};

use crate::program::{Ended, Place};

const CASES: &str = r#"
[[case]]
name = "an order <is> mailed & \"done\""
event = { aggregate_type = "Order", event_type = "OrderPlaced", payload = { order_id = 42, total = 99.5 } }
expect = { answer = "done" }

[[case]]
name = "an order below zero is given up"
event = { aggregate_type = "Order", event_type = "OrderPlaced", payload = { order_id = 42, total = -1 } }
expect = { answer = "done" }
"#;

fn place() -> Place {
    let place = Place::empty();
    place.plugin("order-mailer");
    place.plugin("trouble");
    fs::create_dir(place.path().join("cases")).expect("can be made");
    fs::write(place.path().join("cases/orders.toml"), CASES).expect("can be written");
    place
}

fn test(place: &Place, arguments: &[&str]) -> Ended {
    place.run(&[&["plugin", "test"], arguments].concat())
}

#[test]
fn a_good_plugin_ends_with_0_and_one_that_breaks_a_rule_with_8() {
    let place = place();
    let good = test(&place, &["plugins/order-mailer.wasm"]);
    assert_eq!((good.code, good.stderr.as_str()), (Some(0), ""), "{}", good.stdout);
    assert!(good.stdout.contains("14 passed") || good.stdout.contains("0 failed"), "{}", good.stdout);

    let bad = test(&place, &["plugins/trouble.wasm", "--manifest", "trouble.toml"]);
    assert_eq!(bad.code, Some(3), "the manifest is not there: {}", bad.stderr);
    fs::write(place.path().join("trouble.toml"), "[limits]\ndeadline = \"100ms\"\nfuel = 10_000_000\n")
        .expect("can be written");
    let bad = test(&place, &["plugins/trouble.wasm", "--manifest", "trouble.toml"]);
    assert_eq!(bad.code, Some(8), "{}", bad.stderr);
    assert!(bad.stdout.contains("FAIL  answers") && bad.stdout.contains("FAIL  same-twice"), "{}", bad.stdout);
    assert!(bad.stdout.contains("and 27 more") || bad.stdout.contains(" more; --output json"), "{}", bad.stdout);
    assert!(!bad.stdout.contains('\u{1b}'), "{}", bad.stdout);
    let wrong = test(&place, &["plugins/none.wasm"]);
    assert_eq!(wrong.code, Some(3), "{}", wrong.stderr);
    fs::write(place.path().join("text.wasm"), "no component").expect("can be written");
    assert_eq!(test(&place, &["text.wasm"]).code, Some(8));
}

/// Rules of different kinds, whose breakers have different manifests. `tests/sandbox/conformance.rs` breaks every rule.
const BROKEN: [&str; 3] = ["answers", "time-headroom", "host-call-refused"];

#[test]
fn a_plugin_that_breaks_one_rule_is_told_of_that_rule_and_of_no_other() {
    let place = Place::empty();
    let report = |guest: &Guest, manifest: &str| {
        fs::write(place.path().join("guest.wasm"), guest.build()).expect("can be written");
        // An empty manifest is refused: it might be half of one.
        fs::write(place.path().join("guest.toml"), format!("config.a = \"b\"\n{manifest}")).expect("can be written");
        let ended = test(&place, &["guest.wasm", "--output", "json"]);
        let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("no document: {}", ended.stderr));
        let of = |verdict: &str| -> Vec<String> {
            let rules = report["rules"].as_array().expect("a list").iter().filter(|rule| rule["verdict"] == verdict);
            rules.map(|rule| rule["id"].as_str().expect("a name").to_owned()).collect()
        };
        (ended.code, of("passed"), of("failed"), ended.stdout)
    };
    let breakers = breakers();
    let (code, passed, failed, told) = report(&honest(), "state = true\nemit = true");
    assert_eq!((code, passed.len(), failed), (Some(0), breakers.len(), Vec::new()), "{told}");

    for broken in BROKEN {
        let (_, guest, manifest) = breakers.iter().find(|(rule, ..)| *rule == broken).expect("the rule has a breaker");
        let (code, _, failed, told) = report(guest, manifest);
        assert_eq!((code, failed), (Some(8), vec![broken.to_owned()]), "{told}");
    }
}

#[test]
fn cases_are_tried_and_told_by_their_names() {
    let place = place();
    let ended = test(&place, &["plugins/order-mailer.wasm", "--cases", "cases"]);

    assert_eq!(ended.code, Some(8), "{}", ended.stderr);
    assert!(ended.stdout.contains("\ncases/orders.toml\nok    an order <is> mailed & \"done\"\n"), "{}", ended.stdout);
    let difference =
        "FAIL  an order below zero is given up\n        answer\n          expected: done\n          got:      dead: ";
    assert!(ended.stdout.contains(difference), "{}", ended.stdout);
    let json = test(&place, &["plugins/order-mailer.wasm", "--cases", "cases", "--output", "json"]);
    let report: Value = serde_json::from_str(&json.stdout).expect("one document");
    assert_eq!((json.code, report["cases"][1]["verdict"].as_str()), (Some(8), Some("failed")));
    assert_eq!(report["rules"][0]["id"], "answers");
    for (file, told) in [("cases/none", 3), ("plugins", 2)] {
        let ended = test(&place, &["plugins/order-mailer.wasm", "--cases", file]);
        assert_eq!(ended.code, Some(told), "{}", ended.stderr);
    }
    fs::write(place.path().join("cases/orders.toml"), CASES.replace("expect =", "expects =")).expect("can be written");
    let unknown = test(&place, &["plugins/order-mailer.wasm", "--cases", "cases"]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("case[0].expects: there is no such field; did you mean `expect`?"), "{}", unknown.stderr);
}

/// A webhook to an endpoint that the case has no reply for, and one that carries something else than is expected.
const WEBHOOKS: &str = r#"
[[case]]
name = "another address"
event = { aggregate_type = "Order", event_type = "OrderShipped", payload = { order_id = 7 } }
http = [{ method = "POST", url = "https://hooks.example.com/order" }]
expect = { answer = "done" }

[[case]]
name = "another order"
event = { aggregate_type = "Order", event_type = "OrderShipped", payload = { order_id = 7, note = "n" } }
http = [{ method = "POST", url = "https://hooks.example.com/orders" }]
expect = { answer = "done", requests = [{ method = "POST", headers = { authorization = "Bearer x" }, body = { order_id = 8 } }] }
"#;

#[test]
fn a_request_without_a_reply_and_one_that_differs_are_told_as_text_as_json_and_as_junit_and_no_secret_with_them() {
    let place = place();
    place.plugin("order-webhook");
    let manifest = include_str!("../../plugins/order-webhook-rust/order-webhook.toml");
    fs::write(place.path().join("plugins/order-webhook.toml"), manifest).expect("can be written");
    fs::write(place.path().join("cases/orders.toml"), WEBHOOKS).expect("can be written");
    let run = |output: &str| {
        let mut command =
            place.command(&["plugin", "test", "plugins/order-webhook.wasm", "--cases", "cases", "--output", output]);
        command.env("OUTBOX_PLUGIN_WEBHOOK_TOKEN", "hunter2-and-more");
        let ended = Ended::of(command);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(8), ""), "{}", ended.stdout);
        assert!(!ended.stdout.contains("hunter2"), "{}", ended.stdout);
        ended.stdout
    };
    let missing = "the case has no reply to it; it replies to POST https://hooks.example.com/order; add \
                   http = [{ method = \"POST\", url = \"https://hooks.example.com/orders\", status = 200 }]";

    let text = run("human");
    let told = format!("        the request POST https://hooks.example.com/orders\n          {missing}\n");
    assert!(text.contains(&told), "{text}");
    for told in [
        "request 1, body.order_id\n          expected: 8\n          got:      7\n",
        "request 1, header authorization\n          expected: Bearer x\n          got:      Bearer ***\n",
    ] {
        assert!(text.contains(told), "{text}");
    }

    let report: Value = serde_json::from_str(&run("json")).expect("one document");
    let findings = |case: usize| report["cases"][case]["findings"].as_array().expect("a list").clone();
    let request = "the request POST https://hooks.example.com/orders";
    assert!(findings(0).contains(&serde_json::json!({ "at": request, "found": missing })), "{report}");
    let differing = serde_json::json!({ "at": "request 1, body.order_id", "found": "7", "expected": "8" });
    assert!(findings(1).contains(&differing), "{report}");

    let file = place.path().join("report.xml");
    fs::write(&file, run("junit")).expect("can be written");
    let read = Command::new("python3").arg("-c").arg(READ).arg(&file).output().expect("Python 3 is there");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let said: Value = serde_json::from_slice(&read.stdout).expect("JSON");
    assert_eq!(said["failed"], serde_json::json!(["another address", "another order"]));
    let texts = said["texts"].to_string();
    assert!(texts.contains("the case has no reply to it") && texts.contains("request 1, body.order_id"), "{texts}");
}

/// Reads JUnit XML as a CI server does, and prints what it says as JSON.
const READ: &str = "
import json, sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
suite = root[0]
assert root.tag == 'testsuites' and suite.tag == 'testsuite' and len(root) == 1
assert set(root.attrib) <= {'name', 'tests', 'failures', 'errors', 'time'}
assert set(suite.attrib) <= {'name', 'tests', 'failures', 'errors', 'skipped', 'time'}
cases = list(suite)
for case in cases:
    assert case.tag == 'testcase' and set(case.attrib) == {'name', 'classname', 'time'}, case.attrib
    for child in case:
        assert child.tag in ('failure', 'skipped') and set(child.attrib) <= {'message', 'type'}
of = lambda kind: [case.get('name') for case in cases if case.find(kind) is not None]
assert int(suite.get('tests')) == len(cases) == int(root.get('tests'))
assert int(suite.get('failures')) == len(of('failure')) and int(suite.get('skipped')) == len(of('skipped'))
assert all(float(of.get('time')) >= 0 for of in [root, suite, *cases])
whole = sum(float(case.get('time')) for case in cases)
assert whole > 0 and abs(float(suite.get('time')) - whole) < 0.001 * len(cases) + 0.001, (whole, suite.get('time'))
assert root.get('time') == suite.get('time')
messages = [case.find('failure').get('message') for case in cases if case.find('failure') is not None]
texts = [case.find('failure').text for case in cases if case.find('failure') is not None]
print(json.dumps({'names': [case.get('name') for case in cases], 'failed': of('failure'), 'texts': texts, 'messages': messages}))
";

#[test]
fn junit_is_read_by_whoever_reads_junit() {
    let place = place();
    let ended = test(&place, &["plugins/order-mailer.wasm", "--cases", "cases", "--output", "junit"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(8), ""));
    let file = place.path().join("report.xml");
    fs::write(&file, &ended.stdout).expect("can be written");

    let read = Command::new("python3").arg("-c").arg(READ).arg(&file).output().expect("Python 3 is there");

    assert!(read.status.success(), "{}\n{}", String::from_utf8_lossy(&read.stderr), ended.stdout);
    let said: Value = serde_json::from_slice(&read.stdout).expect("JSON");
    let names = said["names"].as_array().expect("a list");
    assert!(names.contains(&Value::from("an order <is> mailed & \"done\"")), "{said}");
    assert_eq!(said["failed"], serde_json::json!(["an order below zero is given up"]));
    assert!(said["texts"][0].as_str().is_some_and(|text| text.contains("expected: done\n  got:      dead: ")), "{said}");
    let message = said["messages"][0].as_str().expect("a message");
    assert!(message.starts_with("answer: expected: done; got: dead: "), "{message}");
    assert!(message.ends_with("Mend the plugin, or what the case expects in cases/orders.toml."), "{message}");
}

#[test]
fn junit_tells_of_a_broken_rule_what_it_promises_what_was_found_and_what_to_do() {
    let place = place();
    fs::write(place.path().join("trouble.toml"), "[limits]\ndeadline = \"100ms\"\nfuel = 10_000_000\n")
        .expect("can be written");
    let ended = test(&place, &["plugins/trouble.wasm", "--manifest", "trouble.toml", "--output", "junit"]);
    let file = place.path().join("report.xml");
    fs::write(&file, &ended.stdout).expect("can be written");

    let read = Command::new("python3").arg("-c").arg(READ).arg(&file).output().expect("Python 3 is there");

    assert!(read.status.success(), "{}\n{}", String::from_utf8_lossy(&read.stderr), ended.stdout);
    let said: Value = serde_json::from_slice(&read.stdout).expect("JSON");
    let message = said["messages"][0].as_str().expect("a message");
    assert_eq!(said["failed"][0], "answers", "{said}");
    assert!(message.contains("expected: answers an event of every declared route; got: "), "{message}");
    assert!(message.contains(" more). Every event of a route that `describe` declares"), "{message}");
}

#[test]
fn a_manifest_that_came_with_a_plugin_reads_no_secret_of_the_machine() {
    let place = place();
    let manifest = |text: &str| fs::write(place.path().join("m.toml"), text).expect("can be written");
    let run = || {
        let mut command = place.command(&["plugin", "test", "plugins/order-mailer.wasm", "--manifest", "m.toml"]);
        command.env("SHOP_SECRET", "hunter2").env("OUTBOX_PLUGIN_SENDER", "till@example.com");
        Ended::of(command)
    };
    for refused in ["config.sender = \"${env:SHOP_SECRET}\"", "config.sender = \"${file:/etc/hostname}\""] {
        manifest(refused);
        let ended = run();
        assert_eq!(ended.code, Some(8), "{refused}: {}", ended.stdout);
        assert!(ended.stderr.contains("a manifest given by --manifest m"), "{}", ended.stderr);
    }
    manifest("config.sender = \"${env:OUTBOX_PLUGIN_SENDER}\"");
    assert_eq!(run().code, Some(0));
    manifest("[limits]\nfule = 3\n");
    let ended = run();
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    assert!(ended.stderr.contains("fule") && ended.stderr.contains("`fuel`"), "{}", ended.stderr);
}
