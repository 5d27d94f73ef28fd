//! Guests that break one rule of the conformance suite each.

use crate::Guest;

/// Reads the key `k` of its state into 32768: result at 0, kind of the refusal at 4.
const READ_STATE: &str = "(call $state_get (i32.const 2048) (i32.const 1) (i32.const 32768))";
const KEY: &str = "(data (i32.const 2048) \"k\")";
/// An envelope of the type `E` at 33024, with the least that it needs.
const EMIT: &str = "(i32.store (i32.const 33024) (i32.const 2049)) (i32.store (i32.const 33028) (i32.const 1))
    (i32.store (i32.const 33032) (i32.const 2049)) (i32.store (i32.const 33036) (i32.const 1))
    (i32.store (i32.const 33064) (i32.const 2050)) (i32.store (i32.const 33068) (i32.const 3))
    (call $emit (i32.const 33024) (i32.const 32768))";
const NAMES: &str = "(data (i32.const 2049) \"Ea/b\")";
/// The first byte of the payload, if there is one.
const FIRST_BYTE: &str = "(if (result i32) (i32.load offset=88 (local.get $event))
    (then (i32.load8_u (i32.load offset=84 (local.get $event)))) (else (i32.const 0)))";

/// A guest that reads its state, emits an event, and is done: it keeps every rule with `state = true` and `emit = true`.
#[must_use]
pub fn honest() -> Guest {
    Guest::new(&format!("{READ_STATE} {EMIT} (call $done)")).outside(KEY).outside(NAMES)
}

/// The name of each rule, with a guest that breaks it and no other, and its manifest.
#[must_use]
pub fn breakers() -> Vec<(&'static str, Guest, &'static str)> {
    let reading = |then: &str| Guest::new(&format!("{READ_STATE} {then} (call $done)")).outside(KEY);
    let kind_is = |kind: u32| {
        format!(
            "(if (i32.and (i32.load8_u (i32.const 32768)) (i32.eq (i32.load8_u (i32.const 32772)) (i32.const {kind})))
                (then unreachable))"
        )
    };
    let burning = "(local $i i32) (loop (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1)))
        (i32.const 10000000)))) (call $done)";
    vec![
        ("answers", Guest::new("unreachable"), ""),
        ("empty-payload", trapping_if("(i32.eqz (i32.load offset=88 (local.get $event)))"), ""),
        ("large-payload", trapping_if("(i32.gt_u (i32.load offset=88 (local.get $event)) (i32.const 200000))"), ""),
        (
            "nested-payload",
            trapping_if(&format!(
                "(i32.and (i32.gt_u (i32.load offset=88 (local.get $event)) (i32.const 100))
                    (i32.or (i32.eq (i32.load16_u (i32.load offset=84 (local.get $event))) (i32.const 0x5b5b))
                        (i32.and (i32.eq {FIRST_BYTE} (i32.const 0x7b)) (i32.eq (i32.load8_u offset=5
                            (i32.load offset=84 (local.get $event))) (i32.const 0x7b)))))"
            )),
            "",
        ),
        ("invalid-text", trapping_if(&format!("(i32.eq {FIRST_BYTE} (i32.const 255))")), ""),
        ("unknown-type", trapping_if("(i32.ne (i32.load offset=28 (local.get $event)) (i32.const 4))"), ""),
        ("many-headers", trapping_if("(i32.gt_u (i32.load offset=96 (local.get $event)) (i32.const 100))"), ""),
        ("last-attempt", trapping_if("(i32.eq (i32.load offset=72 (local.get $event)) (i32.const -1))"), ""),
        (
            "same-twice",
            Guest::new(
                "(global.set $count (i32.add (global.get $count) (i32.const 1)))
                (call $later (i32.mul (global.get $count) (i32.const 1000)))",
            ),
            "",
        ),
        (
            // Answers every event as it answered the first that its instance met.
            "order",
            Guest::new(
                "(if (i32.eqz (global.get $count))
                    (then (global.set $count (i32.add (i32.load offset=88 (local.get $event)) (i32.const 1000)))))
                (call $later (global.get $count))",
            ),
            "",
        ),
        ("fuel-headroom", Guest::new(burning), ""),
        ("memory-headroom", Guest::new("(drop (memory.grow (i32.const 320))) (call $done)"), ""),
        (
            "time-headroom",
            // One event of the rules has four bytes.
            Guest::new(
                "(if (i32.eq (i32.load offset=88 (local.get $event)) (i32.const 4))
                    (then (call $block (call $subscribe (i64.const 400000000)))))
                (call $done)",
            ),
            "limits.deadline = \"1500ms\"",
        ),
        ("grants", Guest::new(&format!("{EMIT} (call $done)")).outside(NAMES), ""),
        ("host-call-refused", reading(&kind_is(0)), "state = true"),
        ("host-call-fails", reading(&kind_is(3)), "state = true"),
        (
            "host-call-cut",
            reading("(if (i32.eq (i32.load offset=72 (local.get $event)) (i32.const 2)) (then unreachable))"),
            "state = true",
        ),
    ]
}

/// Answers done unless the condition holds; then it traps.
fn trapping_if(condition: &str) -> Guest {
    Guest::new(&format!("(if {condition} (then unreachable)) (call $done)"))
}
