//! Guests that do harm when they are called, each with the reason that must be reported.

use outbox::listener::{Cause, Outcome};
use support::Guest;

use super::{LIMITS, called, event, failure, hoards, load};

/// A guest and how its call must end.
pub(super) struct Evil {
    pub(super) name: &'static str,
    pub(super) guest: Guest,
    pub(super) cause: Cause,
}

/// Room for a million empty pairs from 131072 on: fresh memory is zero, and a zero pair is an empty one.
const MANY_PAIRS: &str = "(drop (memory.grow (i32.const 300)))";

/// Every guest whose call must break.
pub(super) fn all() -> Vec<Evil> {
    let evil = |name, cause, body: &str| Evil { name, cause, guest: Guest::new(body) };
    let with = |name, cause, body: &str, outside: &str| Evil { name, cause, guest: Guest::new(body).outside(outside) };
    let mut all = vec![
        evil("computes for ever", Cause::Fuel, "(loop (br 0)) (unreachable)"),
        evil(
            "fills its memory in single instructions, for ever",
            Cause::Fuel,
            "(drop (memory.grow (i32.const 400))) (loop
                (memory.fill (i32.const 65536) (i32.const 7) (i32.const 26214400)) (br 0)) (unreachable)",
        ),
        evil(
            "copies its memory in single instructions, for ever",
            Cause::Fuel,
            "(drop (memory.grow (i32.const 400))) (loop
                (memory.copy (i32.const 13172736) (i32.const 65536) (i32.const 13107200)) (br 0)) (unreachable)",
        ),
        with(
            "fills a table in single instructions, for ever",
            Cause::Fuel,
            "(loop (table.fill $t (i32.const 0) (ref.null func) (i32.const 29000)) (br 0)) (unreachable)",
            "(table $t 29000 funcref)",
        ),
        with(
            "calls itself for ever",
            Cause::Stack,
            "(call $down (i32.const 0))",
            "(func $down (param i32) (result i32) (i32.add (call $down (i32.add (local.get 0) (i32.const 1))) (local.get 0)))",
        ),
        with(
            "calls itself for ever through a table",
            Cause::Stack,
            "(call $down (i32.const 0))",
            "(type $f (func (param i32) (result i32))) (table $t 1 funcref) (elem (i32.const 0) $down)
            (func $down (param i32) (result i32) (i32.add (call_indirect $t (type $f) (local.get 0) (i32.const 0)) (i32.const 1)))",
        ),
        evil("asks the host the time for ever", Cause::HostCalls, "(loop (drop (call $now)) (br 0)) (unreachable)"),
        // Neither a loop nor a function between its calls, where a tick would find it.
        evil(
            "asks the host the time 20,000 times in a straight line",
            Cause::HostCalls,
            &("(drop (call $now))".repeat(20_000) + "(call $done)"),
        ),
        evil("asks how long it has for ever", Cause::HostCalls, "(loop (drop (call $remaining)) (br 0)) (unreachable)"),
        evil(
            "writes short lines for ever",
            Cause::HostCalls,
            "(loop (call $log (i32.const 2) (i32.const 2048) (i32.const 8) (i32.const 0) (i32.const 0)) (br 0)) (unreachable)",
        ),
        evil(
            "writes lines of 1 MiB for ever",
            Cause::HostCalls,
            "(drop (memory.grow (i32.const 20)))
            (loop (call $log (i32.const 2) (i32.const 131072) (i32.const 1048576) (i32.const 0) (i32.const 0)) (br 0)) (unreachable)",
        ),
        evil(
            "writes one line of 4 MiB",
            Cause::Output,
            "(drop (memory.grow (i32.const 100)))
            (call $log (i32.const 2) (i32.const 65536) (i32.const 4194304) (i32.const 0) (i32.const 0)) (call $done)",
        ),
        evil(
            "writes a line with a million empty fields",
            Cause::Output,
            &format!(
                "{MANY_PAIRS} (call $log (i32.const 2) (i32.const 0) (i32.const 0) (i32.const 131072) (i32.const 1000000))
                (call $done)"
            ),
        ),
        evil(
            "emits an event with a million empty headers",
            Cause::Output,
            &format!(
                "{MANY_PAIRS} (i32.store (i32.const 33080) (i32.const 131072)) (i32.store (i32.const 33084) (i32.const 1000000))
                (call $emit (i32.const 33024) (i32.const 32768)) (call $done)"
            ),
        ),
        evil(
            "keeps a value of 3 MiB",
            Cause::Output,
            "(drop (memory.grow (i32.const 100)))
            (call $state_set (i32.const 65536) (i32.const 1) (i32.const 131072) (i32.const 3145728) (i32.const 32768)) (call $done)",
        ),
        evil(
            "publishes a message of 3 MiB",
            Cause::Output,
            "(drop (memory.grow (i32.const 100)))
            (call $publish (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
                (i32.const 0) (i32.const 0) (i32.const 131072) (i32.const 3145728) (i32.const 0) (i32.const 0) (i32.const 0)
                (i32.const 0) (i32.const 32768))
            (call $done)",
        ),
        evil(
            "fails with a message of 4 MiB",
            Cause::Output,
            "(drop (memory.grow (i32.const 100))) (call $fail (i32.const 65536) (i32.const 4194304) (i32.const 0))",
        ),
        evil(
            "is dead for a reason of 10 MiB",
            Cause::Output,
            "(drop (memory.grow (i32.const 200))) (call $dead (i32.const 65536) (i32.const 10485760))",
        ),
        evil(
            "fails with a million empty attributes",
            Cause::Output,
            // The attributes of a failure lie behind its kind: pointer and length.
            &format!(
                "{MANY_PAIRS} (drop (call $fail (i32.const 0) (i32.const 0) (i32.const 0)))
                (i32.store (i32.const 544) (i32.const 131072)) (i32.store (i32.const 548) (i32.const 1000000)) (i32.const 512)"
            ),
        ),
        evil(
            "takes memory for ever",
            Cause::Memory,
            "(block (loop (br_if 1 (i32.eq (memory.grow (i32.const 16)) (i32.const -1))) (br 0))) (unreachable)",
        ),
        with(
            "takes table where its memory is used up",
            Cause::Memory,
            "(drop (memory.grow (i32.const 507)))
            (if (i32.eq (table.grow $t (ref.null func) (i32.const 29000)) (i32.const -1)) (then unreachable)) (call $done)",
            "(table $t 1 funcref)",
        ),
        evil(
            "keeps every timer that it makes",
            Cause::Trap,
            "(loop (drop (call $subscribe (i64.const 1000000000))) (br 0)) (unreachable)",
        ),
        evil("keeps every set of headers that it makes", Cause::Trap, "(loop (drop (call $fields)) (br 0)) (unreachable)"),
        evil(
            "keeps every request that it makes",
            Cause::Trap,
            "(loop (drop (call $request (call $fields))) (br 0)) (unreachable)",
        ),
        evil("sleeps for an hour", Cause::Deadline, "(call $block (call $subscribe (i64.const 3600000000000))) (call $done)"),
        evil(
            "polls for a timer of an hour",
            Cause::Deadline,
            "(i32.store (i32.const 32768) (call $subscribe (i64.const 3600000000000)))
            (call $poll (i32.const 32768) (i32.const 1) (i32.const 33000)) (call $done)",
        ),
        evil("polls for nothing", Cause::Trap, "(call $poll (i32.const 32768) (i32.const 0) (i32.const 33000)) (call $done)"),
        evil("waits for a timer that it never had", Cause::Trap, "(call $block (i32.const 99)) (call $done)"),
        evil("traps", Cause::Trap, "unreachable"),
        evil("divides by nothing", Cause::Trap, "(i32.div_u (i32.const 1) (i32.const 0))"),
        evil("reads beyond its memory", Cause::Trap, "(i32.load (i32.const -8))"),
        with(
            "calls a function of another type",
            Cause::Trap,
            "(call_indirect $t (param i64) (result i32) (i64.const 0) (i32.const 0))",
            "(table $t 1 funcref) (elem (i32.const 0) $done)",
        ),
        evil("answers from beyond its memory", Cause::Trap, "(i32.const -16)"),
        evil("answers from a crooked place", Cause::Trap, "(i32.const 513)"),
        evil("answers what no answer is", Cause::Trap, "(call $answer (i32.const 0) (i32.const 7))"),
        evil("answers with text from beyond its memory", Cause::Trap, "(call $dead (i32.const -8) (i32.const 4))"),
        with(
            "answers with text that is none",
            Cause::Trap,
            "(call $dead (i32.const 2048) (i32.const 3))",
            "(data (i32.const 2048) \"a\\ff\\c3\")",
        ),
        evil(
            "logs from beyond its memory",
            Cause::Trap,
            "(call $log (i32.const 2) (i32.const -16) (i32.const 64) (i32.const 0) (i32.const 0)) (call $done)",
        ),
        evil(
            "logs at a level that is none",
            Cause::Trap,
            "(call $log (i32.const 77) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)) (call $done)",
        ),
    ];
    all.extend(hoards::all());
    all
}

#[tokio::test]
async fn every_call_that_does_harm_ends_with_its_own_reason_and_the_next_call_is_not_hurt() {
    let good = load(Guest::new("(call $done)").build(), LIMITS).await.expect("it loads");
    for Evil { name, guest, cause } in all() {
        let host = load(guest.build(), LIMITS).await.unwrap_or_else(|error| panic!("a guest that {name}: {error}"));
        for kept in [false, true] {
            let call: outbox::wasm::Call = event("Evil", "Deed").into();
            let report = host.call(if kept { call.kept() } else { call }).await;

            let failure = failure(&report);
            assert_eq!(failure.cause, cause, "a guest that {name}: {failure}");
            assert!(failure.message.len() < 8_000 && !failure.message.chars().any(char::is_control), "{name}: {failure}");
            assert!(report.effects.is_empty(), "a guest that {name} has effects: {report:?}");
        }
        assert_eq!(good.call(event("Evil", "Deed").clone()).await.outcome, Outcome::Done, "after a guest that {name}");
    }
}

#[test]
fn the_corpus_is_no_smaller_than_it_was() {
    let names: std::collections::BTreeSet<_> = all().into_iter().map(|evil| evil.name).collect();
    assert!(names.len() >= 35, "{} guests", names.len());
}

#[tokio::test]
async fn a_guest_whose_allocator_does_harm_is_stopped_before_it_is_called() {
    for (allocator, cause) in [
        ("(loop (br 0)) (unreachable)", Cause::Fuel),
        ("unreachable", Cause::Trap),
        ("(i32.const -4)", Cause::Trap),
        ("(i32.const 3)", Cause::Trap),
        // It may not call the host while the host is about to call it.
        ("(drop (call $remaining)) (i32.const 65536)", Cause::Trap),
    ] {
        let report = called(&Guest::new("(call $done)").allocator(allocator), LIMITS).await;
        assert_eq!(failure(&report).cause, cause, "{allocator}: {:?}", report.outcome);
    }
}

#[tokio::test]
async fn a_new_guest_finds_nothing_of_one_that_was_there_before() {
    // Each looks through its memory for what it then leaves all over it.
    let body = "(local $at i32) (drop (memory.grow (i32.const 64)))
        (local.set $at (i32.const 131072))
        (loop
            (if (i64.ne (i64.load (local.get $at)) (i64.const 0)) (then (return (call $dead (local.get $at) (i32.const 8)))))
            (br_if 0 (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 8))) (i32.const 4456448))))
        (memory.fill (i32.const 131072) (i32.const 0x5a) (i32.const 4325376))
        (if (i32.eq (i32.load offset=72 (local.get $event)) (i32.const 2)) (then unreachable)) (call $done)";
    let host = load(Guest::new(body).build(), LIMITS).await.expect("it loads");
    for round in 0..300_u32 {
        let event = event("Evil", "Deed");
        let attempt = 1 + round % 2;
        let event = outbox::Event::of(event.envelope().clone()).attempt(attempt).build();
        let outcome = host.call(event).await.outcome;
        match attempt {
            1 => assert_eq!(outcome, Outcome::Done, "round {round}"),
            _ => assert!(matches!(&outcome, Outcome::Failed(failure) if failure.cause == Cause::Trap), "{outcome:?}"),
        }
    }
}
