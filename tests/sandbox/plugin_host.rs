//! A plugin called alone, by a program that has no outbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use outbox::listener::{Cause, Outcome};
use outbox::wasm::{Call, Disturbance, InstanceUse, Manifest, MemoryState, Outside, PluginHost, PluginsConfig, Trouble};
use outbox::{Envelope, Event};
use support::{Guest, sample_plugins};

use crate::common::sample;

const GRANTED: &str = "emit = true\nstate = true\n[secrets]\ntoken = \"s3cr3t-t0ken\"";

async fn effects(manifest: &str) -> PluginHost {
    let manifest: Manifest = toml::from_str(manifest).expect("a valid manifest");
    PluginHost::from_bytes("effects", sample("effects"), manifest).await.expect("it loads")
}

fn deed(event_type: &str, payload: &str) -> Event {
    let envelope = Envelope::new(event_type).aggregate_type("Effects").json_text(payload.to_owned()).expect("a good envelope");
    Event::of(envelope).sequence(1).build()
}

fn broke(outcome: &Outcome) -> Option<Cause> {
    match outcome {
        Outcome::Failed(failure) => Some(failure.cause),
        _ => None,
    }
}

#[tokio::test]
async fn what_a_call_does_beside_its_answer_is_told_and_not_done() {
    let state = MemoryState::of([("n".to_owned(), "41".into())]);
    let host = effects(GRANTED).await.with_state(Arc::new(state.clone()));

    let report = host.call(deed("Do", r#"{"emit":2,"count":"n","then":"done"}"#)).await;

    assert_eq!(report.outcome, Outcome::Done);
    assert_eq!(report.effects.emitted.len(), 2);
    assert_eq!(report.outside, [Outside::StateRead { key: "n".to_owned() }, Outside::StateUsage]);
    assert_eq!(state.value("n").as_deref(), Some(&b"41"[..]), "nothing is written");
    state.apply(report.effects.state.as_ref().expect("it counted"));
    assert_eq!(state.value("n").as_deref(), Some(&b"42"[..]), "until the caller does it");
    assert!(
        report.used.fuel > 1_000
            && report.used.memory_bytes > 65_536
            && report.used.host_calls >= 4
            && report.used.host_bytes > 0,
        "{report:?}"
    );
    let failed = host.call(deed("Do", r#"{"emit":2,"count":"n","then":"fail"}"#)).await;
    assert!(failed.effects.is_empty(), "a failure has no effects: {failed:?}");
}

#[tokio::test]
async fn log_lines_come_with_the_report_and_without_secrets() {
    let report = effects(GRANTED).await.call(deed("Tell", "1")).await;

    let line = report.lines.first().expect("it wrote one");
    assert_eq!((line.message.as_str(), &line.fields[0].1[..]), ("the token is ***", "***"));
    assert_eq!(report.lines_dropped, 0);
}

#[tokio::test]
async fn what_is_not_granted_is_told_with_the_line_to_add() {
    let host = effects(GRANTED).await.without_grants();

    for (payload, line) in
        [(r#"{"emit":1,"then":"done"}"#, "add `emit = true`"), (r#"{"count":"n","then":"done"}"#, "add `state = true`")]
    {
        let report = host.call(deed("Do", payload)).await;
        assert_eq!(report.refused.len(), 1, "{report:?}");
        assert!(report.refused[0].advice.contains(line), "{report:?}");
    }
    let settings = BTreeMap::from([("greeting".to_owned(), "hello".to_owned())]);
    let report = host.with_settings(Some(settings), None).call(deed("Tell", "1")).await;
    assert!(matches!(&report.outcome, Outcome::Failed(failure) if failure.message.contains("hello")), "{report:?}");
}

#[tokio::test]
async fn a_call_to_the_outside_can_be_made_to_fail_or_to_hang() {
    let host = effects(GRANTED).await;
    let call = |at, trouble| Call::from(deed("Do", r#"{"count":"n","then":"done"}"#)).disturbed(Disturbance { at, trouble });

    for at in 0..2 {
        let failed = host.call(call(at, Trouble::Fails)).await;
        assert_eq!(broke(&failed.outcome), Some(Cause::Listener), "{failed:?}");
        let cut = host.call(call(at, Trouble::Hangs)).await;
        assert_eq!((broke(&cut.outcome), cut.outside.len()), (Some(Cause::Deadline), at + 1), "{cut:?}");
        let undisturbed = host.call(deed("Do", r#"{"count":"n","then":"done"}"#)).await;
        assert_eq!(undisturbed.outcome, Outcome::Done, "the next call knows nothing of it");
    }
    assert_eq!(host.call(call(2, Trouble::Fails)).await.outcome, Outcome::Done, "there is no third");
}

#[tokio::test]
async fn a_kept_instance_goes_on_until_a_call_breaks() {
    let body = "(if (i32.eq (i32.load offset=72 (local.get $event)) (i32.const 99)) (then unreachable))
        (global.set $count (i32.add (global.get $count) (i32.const 1)))
        (call $later (i32.mul (global.get $count) (i32.const 1000)))";
    let host = PluginHost::from_bytes("guest", Guest::new(body).build(), Manifest::default()).await.expect("it loads");
    let event = |attempt| {
        let envelope = Envelope::new("Deed").aggregate_type("Evil").json_text("1").expect("a good envelope");
        Call::from(Event::of(envelope).attempt(attempt).build())
    };
    let mut counts = Vec::new();
    for call in [event(1), event(1).kept(), event(1).kept(), event(99).kept(), event(1).kept(), event(1)] {
        let report = host.call(call).await;
        counts.push(match report.outcome {
            Outcome::RetryAfter(delay) => (delay.as_secs(), report.instance),
            _ => (0, report.instance),
        });
    }
    let (fresh, kept) = (InstanceUse::Fresh, InstanceUse::Kept);
    assert_eq!(counts, [(1, fresh), (1, fresh), (2, kept), (0, kept), (1, fresh), (1, fresh)]);
}

#[tokio::test]
async fn a_file_is_loaded_with_the_manifest_that_a_host_would_give_it() {
    let file = sample_plugins().join("effects.wasm");
    let manifest: Manifest = toml::from_str("emit = true").expect("a valid manifest");
    let config = PluginsConfig { manifests: BTreeMap::from([("saga".to_owned(), manifest)]), ..PluginsConfig::default() };
    let load = async |name: &str| {
        PluginHost::from_file_as(name, &file, &config, Arc::new(MemoryState::default())).await.expect("it loads")
    };

    let emits = async |name| load(name).await.manifest().emit.is_some();
    assert!(emits("saga").await && !emits("effects").await);
    assert_eq!(load("saga").await.name(), "saga");
}
