//! The memory that all guests share: who is refused some of it, and what becomes of that.

use outbox_event::{Cause, Outcome};

use super::{COUNT, Guest, event, logged, refused_in};
use crate::engine::{Engine, PagemapScan};
use crate::error::LoadError;

/// Takes pages until it is refused one, and then gives this answer.
fn hoard(answer: &str) -> Guest {
    let hoard = "(block (loop (br_if 1 (i32.eq (memory.grow (i32.const 1)) (i32.const -1))) (br 0)))";
    Guest::new(&format!("{hoard} {answer}"))
}

const FAIL: &str = "(call $fail (i32.const 0) (i32.const 0) (i32.const 0))";

#[tokio::test]
async fn a_plugin_that_is_refused_memory_is_told_of_once_in_a_while_and_its_event_waits() {
    let engine = Engine::new(2, PagemapScan::Off).unwrap();
    engine.memory.set_max(8 << 20);
    let guest = hoard(FAIL).load_in(&engine, "limits.memory = '64MiB'").await;

    let calls = async {
        for _ in 0..3 {
            assert!(matches!(guest.call(&event(None), 0, 1).await, Outcome::Busy { .. }));
        }
    };
    let ((), lines) = logged(calls).await;

    let told: Vec<_> = lines.iter().filter(|line| line.contains("is refused memory")).collect();
    let [line] = *told else { panic!("{lines:#?}") };
    let mib = |field: &str| line.split(field).nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
    assert_eq!((mib("all_have_mib="), mib(" has_mib=")), (Some(7), Some(7)), "{line}");
    assert!(line.starts_with("WARN") && line.contains("together may have 8 MiB"), "{line}");
}

#[tokio::test]
async fn only_done_counts_if_the_guest_was_refused_memory() {
    let outcome = async |answer: &str| {
        let engine = Engine::new(2, PagemapScan::Off).unwrap();
        engine.memory.set_max(8 << 20);
        hoard(answer).load_in(&engine, "limits.memory = '64MiB'").await.call(&event(None), 0, 1).await
    };

    assert_eq!(outcome("(call $done)").await, Outcome::Done, "its requests are not repeated");
    for answer in [FAIL, "(call $dead (i32.const 0) (i32.const 0))", "(call $later (i64.const 1000))"] {
        assert!(matches!(outcome(answer).await, Outcome::Busy { .. }), "{answer}");
    }
}

/// Requests 12.5 MiB when it is instantiated, and works without them.
const GREEDY_START: &str = "(func $begin (drop (memory.grow (i32.const 200)))) (start $begin)";

#[tokio::test]
async fn a_failure_does_not_count_if_the_guest_was_refused_memory_when_it_was_instantiated() {
    let engine = Engine::new(2, PagemapScan::Off).unwrap();
    engine.memory.set_max(8 << 20);
    let guest = Guest::new(FAIL).outside(GREEDY_START).load_in(&engine, "limits.memory = '64MiB'").await;

    assert!(matches!(guest.call(&event(None), 0, 1).await, Outcome::Busy { .. }));
}

#[tokio::test]
async fn a_trap_in_a_call_is_told_as_it_is_although_the_start_function_was_refused_memory() {
    let guest = Guest::new("(unreachable)").outside(GREEDY_START).load("limits.memory = '8MiB'").await;
    let Outcome::Failed(failure) = guest.call(&event(None), 0, 1).await else { panic!("it traps") };
    assert_eq!(failure.cause, Cause::Trap, "{failure:?}");
}

#[tokio::test]
async fn an_instance_that_was_refused_memory_when_it_was_instantiated_is_not_kept() {
    let manifest = "isolation = { worker = { max_calls = 100 } }\nlimits.memory = '8MiB'";
    let guest = Guest::new(COUNT).outside(GREEDY_START).load(manifest).await;
    for _ in 0..2 {
        assert_eq!(guest.count(&event(None), 0, 1).await, 1);
    }
}

#[tokio::test]
async fn another_version_of_a_plugin_loads_while_the_one_that_serves_has_all_that_it_may() {
    let engine = Engine::new(2, PagemapScan::Off).unwrap();
    engine.memory.set_max(8 << 20);
    let (serving, _other) = (engine.memory.share("guest"), engine.memory.share("other"));
    let mut hoarded = Vec::new();
    loop {
        let mut instance = serving.instance();
        if !instance.take(64 << 10) {
            break;
        }
        hoarded.push(instance);
    }
    assert_eq!(hoarded.len(), 64, "a half");

    let guest = Guest::new("(call $done)").load_in(&engine, "").await;

    assert!(matches!(guest.call(&event(None), 0, 1).await, Outcome::Busy { .. }), "it has no more than before");
    hoarded.clear();
    assert_eq!(guest.call(&event(None), 0, 1).await, Outcome::Done);
}

#[tokio::test]
async fn plugin_that_the_memory_of_all_plugins_cannot_hold_is_refused_with_the_setting_to_raise() {
    let engine = Engine::new(2, PagemapScan::Off).unwrap();
    engine.memory.set_max(1 << 10);
    let dir = tempfile::tempdir().unwrap();

    let error = refused_in(&engine, &Guest::new("(call $done)").write(dir.path(), "guest")).await;

    assert!(matches!(error, LoadError::NoMemory { .. }) && error.may_pass(), "{error:?}");
    let told = error.to_string();
    assert!(told.contains("together may have 1KiB of memory") && told.ends_with("raise plugins.memory"), "{told}");
}
