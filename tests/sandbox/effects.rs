//! What a plugin does beside its answer: committed with it, or not at all.

use std::collections::BTreeSet;

use outbox::store::{Filter, InspectStore, Record, StateStore};
use outbox::{Envelope, EventId, Outbox, SqliteStore, Status};
use support::{Harness, eventually};

use crate::common::{Directory, commit, database, event, host, sample};

const GRANTED: &str = r#"
emit = true
state = true
[retry]
policy = "fixed"
base = "10ms"
max_attempts = 2
"#;

struct Effects {
    db: support::Sqlite,
    store: SqliteStore,
    _directory: Directory,
    outbox: Outbox<SqliteStore>,
}

impl Effects {
    async fn with(manifest: &str) -> Self {
        let directory = Directory::new();
        directory.put("effects.toml", manifest.as_bytes());
        directory.put("effects.wasm", &sample("effects"));
        let (db, store) = database().await;
        let outbox = host(store.clone(), &directory).await;
        Self { db, store, _directory: directory, outbox }
    }

    async fn deed(&self, payload: &str) -> EventId {
        commit(&self.outbox, vec![event("Effects", "Do", payload)]).await[0]
    }

    async fn ends(&self, id: EventId, status: Status) -> Record {
        eventually(&format!("the event is {status}"), async || self.row(id).await.status == status).await;
        self.row(id).await
    }

    async fn row(&self, id: EventId) -> Record {
        self.store.get(id).await.expect("reads").expect("the row is there")
    }

    async fn emitted_by(&self, id: EventId) -> Vec<Record> {
        let of_type = Filter { event_type: Some("Emitted".to_owned()), ..Filter::default() };
        let mut all = self.store.list(&of_type, 1_000).await.expect("lists");
        all.retain(|row| row.aggregate_id.as_deref() == Some(id.as_str()));
        all
    }

    async fn state(&self, key: &str) -> Option<String> {
        let value = self.store.state("effects", key).await.expect("reads");
        value.map(|value| String::from_utf8_lossy(&value.value).into_owned())
    }

    async fn stop(self) {
        self.outbox.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_and_state_are_committed_with_every_answer_and_with_no_failure() {
    let effects = Effects::with(GRANTED).await;
    for (then, status, happened) in [
        ("done", Status::Done, 1),
        ("dead", Status::Dead, 1),
        ("later", Status::Done, 2),
        ("fail_once", Status::Done, 1),
        ("fail", Status::Dead, 0),
        ("trap", Status::Dead, 0),
    ] {
        let deed = format!(r#"{{"emit":2,"count":"{then}","then":"{then}"}}"#);
        let id = effects.deed(&deed).await;

        effects.ends(id, status).await;

        let emitted = effects.emitted_by(id).await;
        assert_eq!(emitted.len(), 2 * happened, "{then}");
        let count = effects.state(then).await;
        assert_eq!(count.unwrap_or_else(|| "0".to_owned()), happened.to_string(), "{then}");
        for row in emitted {
            effects.ends(row.event_id, Status::Done).await;
        }
    }
    assert_eq!(effects.outbox.metrics().counts().fenced_outcomes, 0);
    effects.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_that_many_calls_change_at_once_counts_every_event_once() {
    let effects = Effects::with(&format!("{GRANTED}[limits]\nconcurrency = 4")).await;
    let deed = || event("Effects", "Do", r#"{"count":"n","then":"done"}"#);
    let ids = commit(&effects.outbox, (0..200).map(|_| deed()).collect()).await;

    for id in ids {
        effects.ends(id, Status::Done).await;
    }

    assert_eq!(effects.state("n").await.as_deref(), Some("200"));
    let usage = effects.store.state_usage("effects").await.expect("reads");
    assert_eq!((usage.keys, usage.bytes), (1, 4));
    assert_eq!(effects.outbox.metrics().counts().dispatch_dead, 0, "a conflict costs no attempt");
    effects.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_granted_is_refused_with_the_line_to_add() {
    let effects = Effects::with("retry.max_attempts = 1").await;
    for (deed, advice) in [
        (r#"{"emit":1,"then":"done"}"#, "add `emit = true` at the top of effects.toml, above the first [table]"),
        (r#"{"count":"n","then":"done"}"#, "add `state = true` at the top of effects.toml, above the first [table]"),
        (r#"{"delete":"n","then":"done"}"#, "add `state = true` at the top of effects.toml, above the first [table]"),
        (
            r#"{"publish":["orders"],"then":"done"}"#,
            "add `[publish]`, and below it `sinks = [\"orders\"]`, at the end of effects.toml",
        ),
    ] {
        let id = effects.deed(deed).await;

        let error = effects.ends(id, Status::Dead).await.last_error.unwrap_or_default();

        assert!(error.contains(advice), "{deed}: {error}");
    }
    effects.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_be_emitted_is_bounded_by_route_tenant_and_id() {
    let bounded = "emit = { routes = ['Effects/Emitted', 'Payment/*'] }\nretry.max_attempts = 1";
    let effects = Effects::with(bounded).await;
    let id = event("Any", "Any", "1").id();
    for (deed, advice) in [
        (
            r#"{"emit":1,"emit_type":"Other","then":"done"}"#.to_owned(),
            "add `\"Effects/Other\"` to emit.routes in effects.toml",
        ),
        (r#"{"emit":1,"emit_tenant":"acme","then":"done"}"#.to_owned(), "add `other_tenants = true` to emit in effects.toml"),
        (format!(r#"{{"emit":1,"emit_id":"{id}","then":"done"}}"#), "add `ids = true` to emit in effects.toml"),
    ] {
        let id = effects.deed(&deed).await;

        let error = effects.ends(id, Status::Dead).await.last_error.unwrap_or_default();

        assert!(error.contains(advice), "{deed}: {error}");
        assert_eq!(effects.emitted_by(id).await.len(), 0, "{deed}");
    }
    effects.stop().await;

    let effects = Effects::with("emit = { other_tenants = true, ids = true }").await;
    let deed = effects.deed(&format!(r#"{{"emit":1,"emit_tenant":"acme","emit_id":"{id}","then":"done"}}"#)).await;
    effects.ends(deed, Status::Done).await;
    assert_eq!(effects.row(id).await.tenant_id.as_deref(), Some("acme"));
    effects.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_rate_others_have_used_up_waits_and_loses_no_attempt() {
    let effects = Effects::with("emit = { per_second = 40 }\nretry.max_attempts = 1").await;
    let deed = || event("Effects", "Do", r#"{"emit":1,"then":"done"}"#);
    let ids = commit(&effects.outbox, (0..500).map(|_| deed()).collect()).await;

    for id in &ids {
        effects.ends(*id, Status::Done).await;
    }
    let all = Filter { event_type: Some("Emitted".to_owned()), ..Filter::default() };
    let emitted = effects.store.list(&all, 1_000).await.expect("lists");
    let sources: BTreeSet<_> = emitted.iter().filter_map(|row| row.aggregate_id.as_deref()).collect();

    assert_eq!((emitted.len(), sources.len()), (ids.len(), ids.len()), "one of each");
    assert_eq!(effects.outbox.metrics().counts().dispatch_dead, 0);
    effects.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_wait_while_more_bytes_were_emitted_than_may_be() {
    let effects = Effects::with("emit = { bytes_per_second = 1 }\nretry.max_attempts = 1").await;
    let first = effects.deed(r#"{"emit":1,"then":"done"}"#).await;
    assert_eq!(effects.ends(first, Status::Done).await.claim_seq, 2, "none is refused");

    effects.deed(r#"{"emit":1,"then":"done"}"#).await;

    let released = || effects.outbox.metrics().counts().dispatch_released;
    eventually("the second one waits, since the first has emitted more than ten bytes", async || released() > 0).await;
    assert_eq!(effects.outbox.metrics().counts().dispatch_dead, 0);
    effects.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_fails_takes_nothing_from_the_rate() {
    let effects = Effects::with("emit = { per_second = 1 }\nretry.max_attempts = 1").await;
    for _ in 0..5 {
        let id = effects.deed(r#"{"emit":9,"then":"fail"}"#).await;
        let row = effects.ends(id, Status::Dead).await;
        assert_eq!((row.claim_seq, row.last_error.as_deref()), (2, Some("as asked")), "it was never put off");
    }
    let more = effects.deed(r#"{"emit":19,"then":"done"}"#).await;
    assert_eq!(effects.ends(more, Status::Done).await.claim_seq, 2, "nothing was spent, and nothing is refused");
    let released = || effects.outbox.metrics().counts().dispatch_released;
    assert_eq!(released(), 0);
    let next = effects.deed(r#"{"then":"done"}"#).await;
    eventually("it waits, since nine more were emitted than might be", async || released() > 0).await;
    // What was emitted is answered by a listener of the same plugin that emits nothing.
    for emitted in effects.emitted_by(more).await {
        effects.ends(emitted.event_id, Status::Done).await;
    }
    let row = effects.ends(next, Status::Done).await;
    assert!(row.claim_seq > 2 && row.attempts == 0, "{row:?}");
    effects.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_is_told_which_rule_or_bound_its_request_breaks() {
    let effects = Effects::with(&GRANTED.replace("state = true", "state = { max_keys = 2, max_bytes = \"1KiB\" }")).await;
    let long = "x".repeat(256);
    for (deed, rule) in [
        (r#"{"emit":1,"emit_type":"","then":"done"}"#.to_owned(), "the event to emit is not valid: event_type is empty"),
        (r#"{"emit":101,"then":"done"}"#.to_owned(), "one call may emit at most 100 events"),
        (
            format!(r#"{{"count":"{long}","then":"done"}}"#),
            "a key must have 1 to 255 bytes and no control characters; this one has 256",
        ),
        (r#"{"set":["",1],"then":"done"}"#.to_owned(), "a key must have 1 to 255 bytes"),
        (r#"{"delete_many":101,"then":"done"}"#.to_owned(), "one call may use at most 100 keys of its state"),
        (
            r#"{"set":["k",1100],"then":"done"}"#.to_owned(),
            "it may keep 2 keys and 1024 bytes: raise state.max_keys or state.max_bytes",
        ),
    ] {
        let id = effects.deed(&deed).await;

        let error = effects.ends(id, Status::Dead).await.last_error.unwrap_or_default();

        assert!(error.contains(rule), "{deed}: {error}");
        assert_eq!(effects.emitted_by(id).await.len(), 0, "{deed}");
    }
    effects.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_state_takes_smaller_values_and_gives_room_back() {
    let effects = Effects::with(&GRANTED.replace("state = true", "state = { max_keys = 2, max_bytes = \"1KiB\" }")).await;
    for (deed, status) in [
        (r#"{"set":["a",500],"then":"done"}"#, Status::Done),
        (r#"{"set":["b",500],"then":"done"}"#, Status::Done),
        (r#"{"set":["c",1],"then":"done"}"#, Status::Dead),
        (r#"{"set":["a",600],"then":"done"}"#, Status::Dead),
        (r#"{"set":["a",1],"then":"done"}"#, Status::Done),
        (r#"{"delete":"b","then":"done"}"#, Status::Done),
        (r#"{"set":["c",1000],"then":"done"}"#, Status::Done),
    ] {
        let id = effects.deed(deed).await;
        effects.ends(id, status).await;
    }
    let usage = effects.store.state_usage("effects").await.expect("reads");
    assert_eq!((usage.keys, usage.bytes), (2, 1 + 1 + 1 + 1_000));
    effects.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effects_of_an_event_that_is_in_no_table_are_refused() {
    let effects = Effects::with(GRANTED).await;
    let deed = |payload: &str| {
        Envelope::new("Do").aggregate_type("Effects").excluded().json_text(payload.to_owned()).expect("a good envelope")
    };
    commit(&effects.outbox, vec![deed(r#"{"emit":1,"then":"done"}"#), deed(r#"{"count":"n","then":"done"}"#)]).await;

    eventually("both are given up", async || effects.outbox.metrics().counts().dispatch_dead == 2).await;

    assert_eq!((effects.state("n").await, effects.store.stats().await.expect("counts").new), (None, 0));
    effects.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_are_what_the_manifest_says_and_secrets_are_never_told() {
    let manifest =
        "retry.max_attempts = 7\nlimits.deadline = \"3s\"\n[config]\ngreeting = \"hello\"\n[secrets]\ntoken = \"s3cr3t-t0ken\"";
    let effects = Effects::with(manifest).await;
    let id = commit(&effects.outbox, vec![event("Effects", "Tell", "1")]).await[0];

    let error = effects.ends(id, Status::Dead).await.last_error.unwrap_or_default();

    for part in [
        "[told-you] ",
        r#""setting":"hello""#,
        r#""all":[["greeting","hello"]]"#,
        r#""absent":null"#,
        r#""no_secret":null"#,
        r#"["max-attempts","7"]"#,
        r#"["deferrals","0"]"#,
        r#"["deadline-ms","3000"]"#,
        "*** (token=***)",
    ] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    assert!(!error.contains("s3cr3t"), "{error}");
    let remaining = error.split(r#""remaining_ms":"#).nth(1).and_then(|rest| rest.split(',').next()).expect("it is told");
    let remaining: u64 = remaining.parse().expect("a number");
    assert!((1..=3_000).contains(&remaining), "{remaining}");
    let id = commit(&effects.outbox, vec![event("Effects", "Tell", "\"panic\"")]).await[0];
    eventually("it panicked", async || effects.row(id).await.last_error.is_some()).await;
    let error = effects.row(id).await.last_error.unwrap_or_default();
    assert!(error.starts_with("trap:") && error.contains("with the token ***") && !error.contains("s3cr3t"), "{error}");
    effects.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_is_removed_makes_room_for_another_in_the_same_call() {
    let effects = Effects::with(&GRANTED.replace("state = true", "state = { max_keys = 1 }")).await;
    let first = effects.deed(r#"{"set":["a",1],"then":"done"}"#).await;
    effects.ends(first, Status::Done).await;

    let id = effects.deed(r#"{"delete":"a","set":["b",1],"then":"done"}"#).await;

    effects.ends(id, Status::Done).await;
    assert_eq!((effects.state("a").await, effects.state("b").await.as_deref()), (None, Some("x")));
    effects.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_of_events_that_emit_each_other_ends() {
    let effects = Effects::with(GRANTED).await;
    let id = effects.deed(r#"{"emit":1,"emit_type":"Do","emit_itself":true,"then":"done"}"#).await;

    effects.ends(id, Status::Done).await;

    let dead = Filter { error: Some("is it a loop?".to_owned()), ..Filter::default() };
    eventually("the chain ends", async || effects.store.list(&dead, 10).await.expect("lists").len() == 1).await;
    eventually("and has no end but that", async || {
        let stats = effects.store.stats().await.expect("counts");
        (stats.new + stats.retry, stats.done, stats.dead) == (0, 32, 1)
    })
    .await;
    effects.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effects_that_the_database_does_not_take_hold_up_no_other() {
    let effects = Effects::with(GRANTED).await;
    effects
        .db
        .execute("CREATE TRIGGER no_emitted BEFORE INSERT ON outbox_event WHEN NEW.event_type = 'Refused' BEGIN SELECT RAISE(ABORT, 'no'); END")
        .await;
    let deed = |index: usize| match index % 10 {
        5 => event("Effects", "Do", r#"{"emit":1,"emit_type":"Refused","count":"refused","then":"done"}"#),
        _ => event("Effects", "Do", r#"{"emit":1,"count":"n","then":"done"}"#),
    };
    let ids = commit(&effects.outbox, (0..40).map(deed).collect()).await;

    for (index, id) in ids.into_iter().enumerate() {
        if index % 10 == 5 {
            let error = effects.ends(id, Status::Retry).await.last_error.unwrap_or_default();
            assert!(error.starts_with("what it emitted or keeps could not be stored: "), "{error}");
        } else {
            effects.ends(id, Status::Done).await;
        }
    }

    assert_eq!((effects.state("n").await.as_deref(), effects.state("refused").await), (Some("36"), None));
    effects.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_effects_the_database_never_takes_dies_of_it_at_its_last_attempt() {
    let effects = Effects::with(&GRANTED.replace("max_attempts = 2", "max_attempts = 1")).await;
    effects
        .db
        .execute("CREATE TRIGGER no_emitted BEFORE INSERT ON outbox_event WHEN NEW.event_type = 'Refused' BEGIN SELECT RAISE(ABORT, 'no'); END")
        .await;
    let id = effects.deed(r#"{"emit":1,"emit_type":"Refused","count":"refused","then":"done"}"#).await;

    let row = effects.ends(id, Status::Dead).await;

    let error = row.last_error.unwrap_or_default();
    assert!(error.starts_with("what it emitted or keeps could not be stored: "), "{error}");
    assert_eq!((row.attempts, effects.state("refused").await), (1, None));
    assert_eq!(effects.outbox.metrics().counts().dispatch_dead, 1);
    effects.stop().await;
}
