//! Each limit, with the reason it gives.

use std::time::Duration;

use outbox_event::{Cause, Failure, FailureKind, Outcome};

use super::{COUNT, Guest, event, logged, of_route};

const FOREVER: &str = "(loop (br 0)) (unreachable)";

#[tokio::test]
async fn all_answers_arrive_and_the_event_is_what_was_sent() {
    assert_eq!(Guest::new("(call $done)").outcome("").await, Outcome::Done);
    assert_eq!(
        Guest::new("(call $later (i64.const 1500))").outcome("").await,
        Outcome::RetryAfter(Duration::from_millis(1500))
    );
    assert_eq!(Guest::new("(call $later (i64.const 0))").outcome("").await, Outcome::RetryAfter(Duration::from_millis(100)));
    assert_eq!(Guest::new("(call $later (i64.const -1))").outcome("").await, Outcome::RetryAfter(Duration::from_secs(86_400)));
    let payload = "(call $dead (i32.load offset=84 (local.get $event)) (i32.load offset=88 (local.get $event)))";
    assert_eq!(Guest::new(payload).outcome("").await, Outcome::Dead("\"payload\"".to_owned()));
    let tenant = "(call $fail (i32.load offset=48 (local.get $event)) (i32.load offset=52 (local.get $event)) (i32.const 2))";
    let outcome = Guest::new(tenant).load("").await.call(&event(Some("acme")), 0, 1).await;
    let failure = Failure { message: "acme".to_owned(), kind: FailureKind::Unrecoverable, cause: Cause::Listener };
    assert_eq!(outcome, Outcome::Failed(failure));
}

#[tokio::test]
async fn an_endless_loop_runs_out_of_fuel() {
    let (cause, message) = Guest::new(FOREVER).broken("limits.fuel = 50_000_000").await;
    assert_eq!(cause, Cause::Fuel);
    assert!(
        message.starts_with("used up 50000000 fuel; to allow more, raise limits.fuel of the plugin guest; in "),
        "{message}"
    );
}

#[tokio::test]
async fn an_endless_loop_with_endless_fuel_meets_its_deadline_and_lets_others_run() {
    let forever = async |deadline: &str| {
        let manifest = format!("limits.fuel = 1_000_000_000_000\nlimits.deadline = \"{deadline}\"");
        Guest::new(FOREVER).load(&manifest).await
    };
    let event = event(None);

    let (cause, message) = match forever("100ms").await.call(&event, 0, 1).await {
        Outcome::Failed(failure) => (failure.cause, failure.message),
        other => panic!("{other:?}"),
    };
    assert_eq!(cause, Cause::Deadline);
    assert_eq!(message, "took longer than 100ms; to allow more, raise limits.deadline of the plugin guest");

    // Should the guest keep the one thread, its deadline ends it, and this test.
    let guest = forever("30s").await;
    let others = async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        biased;
        outcome = guest.call(&event, 0, 1) => panic!("nobody else could run before its end: {outcome:?}"),
        () = others => {}
    }
}

#[tokio::test]
async fn memory_is_bounded_and_an_abort_after_a_refusal_is_told_as_memory() {
    let grow = "(block (loop (br_if 1 (i32.eq (memory.grow (i32.const 16)) (i32.const -1))) (br 0))) (unreachable)";
    let (cause, message) = Guest::new(grow).broken("limits.memory = \"8MiB\"").await;
    assert_eq!(cause, Cause::Memory);
    assert!(message.starts_with("asked for more than 8MiB of memory; to allow more, raise limits.memory"), "{message}");
    let graceful = "(drop (memory.grow (i32.const 10000))) (call $done)";
    assert_eq!(
        Guest::new(graceful).outcome("limits.memory = \"8MiB\"").await,
        Outcome::Done,
        "a guest may take no for an answer"
    );
}

#[tokio::test]
async fn tables_count_as_memory() {
    let grow = "(block (loop (br_if 1 (i32.eq (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1))) (br 0))) (unreachable)";
    let guest = Guest::new(grow).outside("(table $t 1 100000 funcref)");
    let (cause, message) = guest.broken("limits.memory = \"300KiB\"").await;
    assert_eq!(cause, Cause::Memory, "{message}");
}

#[tokio::test]
async fn endless_recursion_overflows_the_guests_stack_only() {
    let guest = Guest::new("(call $down (i32.const 0))").outside(
        "(func $down (param i32) (result i32) (i32.add (call $down (i32.add (local.get 0) (i32.const 1))) (local.get 0)))",
    );
    let (cause, message) = guest.broken("").await;
    assert_eq!(cause, Cause::Stack, "{message}");
}

#[tokio::test]
async fn a_trap_tells_where() {
    let guest = Guest::new("(call $inner)").outside("(func $inner (result i32) unreachable)");
    let (cause, message) = guest.broken("").await;
    assert_eq!(cause, Cause::Trap);
    assert!(message.contains("`unreachable` instruction executed; in inner < "), "{message}");
}

#[tokio::test]
async fn a_huge_answer_is_refused_and_a_long_one_is_cut() {
    let huge = "(drop (memory.grow (i32.const 100))) (call $dead (i32.const 0) (i32.const 4194304))";
    let (cause, message) = Guest::new(huge).broken("").await;
    assert_eq!(cause, Cause::Output, "{message}");
    let long = "(memory.fill (i32.const 65536) (i32.const 0x78) (i32.const 10000)) (call $fail (i32.const 65536) (i32.const 10000) (i32.const 0))";
    let (cause, message) = Guest::new(long).broken("").await;
    assert_eq!(cause, Cause::Listener);
    assert!(message.ends_with("xx… (7952 bytes more)"), "{message}");
}

/// Logs the text at 131072 so many times, so many bytes each.
fn flood(times: u32, bytes: u32) -> Guest {
    Guest::new(&format!(
        "(local $i i32) (drop (memory.grow (i32.const 20)))
        (loop (call $log (i32.const 2) (i32.const 131072) (i32.const {bytes}) (i32.const 0) (i32.const 0))
            (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {times}))))
        (call $done)"
    ))
    .outside("(data (i32.const 131072) \"hello\\n\\1b[2J\")")
}

#[tokio::test]
async fn a_flood_of_log_lines_ends_at_the_bound_on_host_calls() {
    let (cause, message) = flood(100_000, 5).broken("").await;
    assert_eq!(
        (cause, message.as_str()),
        (
            Cause::HostCalls,
            "called the host more than 10000 times in one call; to allow more, raise limits.host_calls of the plugin guest"
        )
    );
    let (cause, message) = flood(100, 5).broken("limits.host_calls = 99").await;
    assert_eq!((cause, message.starts_with("called the host more than 99 times")), (Cause::HostCalls, true), "{message}");
    assert_eq!(flood(100, 5).outcome("limits.host_calls = 100").await, Outcome::Done);
    let (cause, message) = flood(100, 1 << 20).broken("").await;
    assert_eq!(
        (cause, message.starts_with("exchanged more than 4194304 bytes with the host")),
        (Cause::HostCalls, true),
        "{message}"
    );
}

#[tokio::test]
async fn log_lines_are_escaped_carry_their_event_and_the_dropped_are_counted() {
    let guest = flood(150, 10).load("").await;
    let event = event(None);
    let (outcome, lines) = logged(guest.call(&event, 0, 1)).await;
    assert_eq!(outcome, Outcome::Done);
    assert_eq!(lines.len(), 101);
    assert!(lines[0].starts_with("INFO") && lines[0].contains("message=hello\\n\\u{1b}[2J"), "{}", lines[0]);
    assert!(
        lines[0].contains(&format!("event.id=\"{}\"", event.id())) && lines[0].contains("plugin=\"guest\""),
        "{}",
        lines[0]
    );
    assert!(lines[100].starts_with("WARN") && lines[100].contains("50 lines dropped"), "{}", lines[100]);
}

#[tokio::test]
async fn configuration_is_what_the_manifest_says_and_a_missing_key_is_none() {
    // `get` writes option<string> to 256: option at 256, text at 260.
    let body = "(call $config (i32.const 16) (i32.const 8) (i32.const 256))
        (if (result i32) (i32.eqz (i32.load8_u (i32.const 256)))
            (then (call $done)) (else (call $dead (i32.load (i32.const 260)) (i32.load (i32.const 264)))))";
    let guest = Guest::new(body).outside("(data (i32.const 16) \"endpoint\")");
    assert_eq!(guest.outcome("config.endpoint = \"https://x\"").await, Outcome::Dead("https://x".to_owned()));
    let loaded = guest.load("").await;
    let event = event(None);
    let (outcome, lines) = logged(loaded.call(&event, 0, 1)).await;
    assert_eq!(outcome, Outcome::Done);
    assert!(lines.is_empty(), "a guest may have a default of its own: {lines:?}");
}

#[tokio::test]
async fn the_largest_event_goes_in() {
    let headers = (0..250).map(|number| (format!("h{number}"), "x".repeat(1_000)));
    let envelope = outbox_event::Envelope::new("OrderPlaced").aggregate("Order", "7").headers(headers);
    let envelope = envelope.bytes("application/octet-stream", vec![7; outbox_event::MAX_PAYLOAD_BYTES]).unwrap();
    let event = std::sync::Arc::new(outbox_event::Event::of(envelope).build());
    assert_eq!(Guest::new("(call $done)").load("").await.call(&event, 0, 1).await, Outcome::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_calls_than_slots_wait_and_lose_nothing() {
    let guest =
        std::sync::Arc::new(Guest::new(FOREVER).load("limits.fuel = 1_000_000_000_000\nlimits.deadline = \"300ms\"").await);
    let calls: Vec<_> = (0..40)
        .map(|worker| {
            let guest = guest.clone();
            tokio::spawn(async move { guest.call(&event(None), worker, 1).await })
        })
        .collect();
    let mut waits = std::collections::BTreeSet::new();
    for call in calls {
        match call.await.unwrap() {
            Outcome::Busy { after, .. } => {
                assert!(waits.insert(after), "each comes back at another time");
            }
            Outcome::Failed(failure) => assert_eq!(failure.cause, Cause::Deadline),
            other => panic!("{other:?}"),
        }
    }
    assert!(waits.len() > 1, "two workers have sixteen slots, and forty called");
    assert_eq!(Guest::new(COUNT).load("").await.count(&of_route("Order", "OrderPlaced", None, 1), 0, 1).await, 1);
}
