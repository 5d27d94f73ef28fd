//! Guests that do harm by what they say: to terminals, to logs, to the database, to the queue.

use std::time::Duration;

use outbox::listener::{Cause, FailureKind, Outcome};
use proptest::prelude::*;
use support::Guest;

use super::{LIMITS, called, event, failure, load};

/// What a terminal, a log, a web page or a CSV might take for more than text.
const INJECTIONS: &str =
    "\\1b]0;title\\07\\1b[2J\\0d\\0afake line\\00\\c2\\9b31m\\e2\\80\\ae txt.exe \\e2\\81\\a6\\e2\\80\\a8\\d8\\9c";

fn bytes_of_injections() -> usize {
    wat_bytes(INJECTIONS).len()
}

/// The bytes that a text of WAT stands for.
fn wat_bytes(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, others)) = rest.split_first() {
        if *first == b'\\' {
            let digits = std::str::from_utf8(&others[..2]).expect("two digits");
            bytes.push(u8::from_str_radix(digits, 16).expect("of hex"));
            rest = &others[2..];
        } else {
            bytes.push(*first);
            rest = others;
        }
    }
    bytes
}

fn is_clean(text: &str) -> bool {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{61c}')
    };
    !text.chars().any(hidden)
}

#[tokio::test]
async fn no_text_of_a_guest_reaches_the_database_with_characters_that_deceive() {
    let data = format!("(data (i32.const 2048) \"{INJECTIONS}\")");
    let length = bytes_of_injections();
    let failing = format!(
        "(drop (call $fail (i32.const 2048) (i32.const {length}) (i32.const 0)))
        (i32.store8 (i32.const 524) (i32.const 1)) (i32.store (i32.const 528) (i32.const 2048)) (i32.store (i32.const 532) (i32.const {length}))
        (i32.const 512)"
    );
    for body in [
        format!("(call $dead (i32.const 2048) (i32.const {length}))"),
        format!("(call $fail (i32.const 2048) (i32.const {length}) (i32.const 0))"),
        format!("(call $fail (i32.const 2048) (i32.const {length}) (i32.const 2))"),
        failing,
    ] {
        let report = called(&Guest::new(&body).outside(&data), LIMITS).await;
        let said = match &report.outcome {
            Outcome::Dead(reason) => reason.clone(),
            Outcome::Failed(failure) => failure.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(is_clean(&said) && said.contains("fake line"), "{said:?}");
        assert!(!said.starts_with('['), "what is no code is left out: {said:?}");
    }
}

#[tokio::test]
async fn a_delay_is_never_shorter_or_longer_than_a_host_can_bear() {
    let (shortest, longest) = (Duration::from_millis(100), Duration::from_secs(24 * 60 * 60));
    for (millis, delay) in [("0", shortest), ("1", shortest), ("-1", longest), ("86400001", longest)] {
        let later = called(&Guest::new(&format!("(call $later (i32.const {millis}))")), LIMITS).await;
        assert_eq!(later.outcome, Outcome::RetryAfter(delay), "{millis}");
        let body = format!(
            "(drop (call $fail (i32.const 0) (i32.const 0) (i32.const 1))) (i32.store (i32.const 540) (i32.const {millis}))
            (i32.const 512)"
        );
        let failed = called(&Guest::new(&body), LIMITS).await;
        assert_eq!(failure(&failed).kind, FailureKind::RetryableAfter(delay), "{millis}");
    }
}

#[tokio::test]
async fn a_secret_is_told_to_nobody() {
    // Reads its secret, and says it in a line, and in the reason.
    let body = "(call $secret (i32.const 2048) (i32.const 5) (i32.const 32768))
        (call $log (i32.const 4) (i32.load (i32.const 32772)) (i32.load (i32.const 32776)) (i32.const 0) (i32.const 0))
        (call $dead (i32.load (i32.const 32772)) (i32.load (i32.const 32776)))";
    let guest = Guest::new(body).outside("(data (i32.const 2048) \"token\")");

    let report = called(&guest, "[secrets]\ntoken = \"s3cr3t-t0ken\"").await;

    assert_eq!(report.outcome, Outcome::Dead("***".to_owned()));
    assert_eq!(report.lines[0].message, "***");
}

#[tokio::test]
async fn a_flood_of_effects_ends_at_its_bound_and_the_bound_is_told_to_the_guest() {
    // Emits until it is refused, and is dead with the host's reason.
    let body = "(i32.store (i32.const 33024) (i32.const 2048)) (i32.store (i32.const 33028) (i32.const 1))
        (i32.store (i32.const 33032) (i32.const 2048)) (i32.store (i32.const 33036) (i32.const 1))
        (i32.store (i32.const 33064) (i32.const 2049)) (i32.store (i32.const 33068) (i32.const 3))
        (loop (call $emit (i32.const 33024) (i32.const 32768)) (br_if 0 (i32.eqz (i32.load8_u (i32.const 32768)))))
        (call $dead (i32.load (i32.const 32776)) (i32.load (i32.const 32780)))";
    let report = called(&Guest::new(body).outside("(data (i32.const 2048) \"Ea/b\")"), LIMITS).await;
    assert_eq!(report.outcome, Outcome::Dead("one call may emit at most 100 events".to_owned()));
    assert_eq!(report.effects.emitted.len(), 100);

    // The key is its count, in four letters.
    let body = "(loop (global.set $count (i32.add (global.get $count) (i32.const 1)))
            (i32.store (i32.const 33024) (i32.or (i32.const 0x40404040) (i32.or (i32.and (global.get $count) (i32.const 15))
                (i32.shl (i32.shr_u (global.get $count) (i32.const 4)) (i32.const 8)))))
            (call $state_set (i32.const 33024) (i32.const 4) (i32.const 65536) (i32.const 8) (i32.const 32768))
            (br_if 0 (i32.eqz (i32.load8_u (i32.const 32768)))))
        (call $dead (i32.load (i32.const 32776)) (i32.load (i32.const 32780)))";
    let report = called(&Guest::new(body), LIMITS).await;
    assert_eq!(report.outcome, Outcome::Dead("one call may use at most 100 keys of its state".to_owned()));
}

#[tokio::test]
async fn lines_beyond_the_budget_are_dropped_and_counted() {
    let body = "(local $i i32) (loop (call $log (i32.const 2) (i32.const 131072) (i32.const 8192) (i32.const 0) (i32.const 0))
        (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 300)))) (call $done)";
    let report = called(&Guest::new(body), LIMITS).await;
    assert_eq!(
        (&report.outcome, report.lines.len()),
        (&Outcome::Done, usize::try_from(300 - report.lines_dropped).expect("a few"))
    );
    let kept: usize = report.lines.iter().map(|line| line.message.len()).sum();
    assert!(kept <= 64 << 10, "{kept}");
}

/// A guest that says its payload in one of the places where a guest can say something: the first byte tells in which.
fn echo() -> Guest {
    let text = "(local $at i32) (local $length i32)
        (local.set $at (i32.load offset=84 (local.get $event))) (local.set $length (i32.load offset=88 (local.get $event)))";
    let say = "(local.get $at) (local.get $length)";
    Guest::new(&format!(
        "{text}
        (if (i32.eq (i32.load offset=72 (local.get $event)) (i32.const 1)) (then (return (call $dead {say}))))
        (if (i32.eq (i32.load offset=72 (local.get $event)) (i32.const 2)) (then (return (call $fail {say} (i32.const 0)))))
        (if (i32.eq (i32.load offset=72 (local.get $event)) (i32.const 3)) (then
            (drop (call $fail (i32.const 0) (i32.const 0) (i32.const 2)))
            (i32.store8 (i32.const 524) (i32.const 1)) (i32.store (i32.const 528) (local.get $at)) (i32.store (i32.const 532) (local.get $length))
            (return (i32.const 512))))
        (if (i32.eq (i32.load offset=72 (local.get $event)) (i32.const 4)) (then
            (i32.store (i32.const 33024) (local.get $at)) (i32.store (i32.const 33028) (local.get $length))
            (i32.store (i32.const 33032) (local.get $at)) (i32.store (i32.const 33036) (local.get $length))
            (drop (call $fail (i32.const 0) (i32.const 0) (i32.const 0)))
            (i32.store (i32.const 544) (i32.const 33024)) (i32.store (i32.const 548) (i32.const 1))
            (return (i32.const 512))))
        (call $log (i32.const 2) {say} (i32.const 0) (i32.const 0)) (call $done)"
    ))
}

#[test]
fn whatever_a_guest_says_is_stored_clean_and_short() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("threads can be started");
    let host = runtime.block_on(load(echo().build(), LIMITS)).expect("it loads");
    let text = prop_oneof![
        any::<String>(),
        "\\PC{0,40}",
        "[\\x00-\\x1f\u{80}-\u{9f}\u{200e}\u{202e}\u{2066}a-z\\[\\] -]{0,200}",
        proptest::collection::vec(any::<char>(), 0..4_000).prop_map(|chars| chars.into_iter().collect::<String>()),
    ];
    proptest!(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() }, |(said in text, place in 1_u32..=5)| {
        let envelope = event("Evil", "Deed").envelope().to_builder().bytes("text/plain", said.clone().into_bytes());
        let event = outbox::Event::of(envelope.expect("it is short")).sequence(1).attempt(place).build();
        let report = runtime.block_on(host.call(event));
        let stored = match &report.outcome {
            Outcome::Dead(reason) => reason.clone(),
            Outcome::Failed(failure) => {
                prop_assert_eq!(failure.cause, Cause::Listener);
                failure.to_string()
            }
            Outcome::Done => {
                prop_assert_eq!(&report.lines[0].message, &said[..said.floor_char_boundary(8 << 10)]);
                String::new()
            }
            other => panic!("{other:?}"),
        };
        prop_assert!(is_clean(&stored.replace('\t', " ")), "{:?}", stored);
        prop_assert!(stored.len() <= 20 << 10, "{} bytes", stored.len());
    });
}
