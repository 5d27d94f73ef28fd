//! Components that nobody wrote: damaged ones, and ones made up at random. Loading them is refused or comes to a plugin, and
//! never to a panic or to an end of time.
//!
//! A few hundred in the suite; or for `OUTBOX_TEST_FUZZ_SECONDS`. In `smith` lie components by wasm-smith;
//! `OUTBOX_TEST_FUZZ_CORPUS` names a directory of more, which `tests/smith` makes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use outbox::wasm::{Call, PluginHost};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use support::Guest;

use super::{event, load};
use crate::common::sample;

/// How many are tried when no time is given.
const TRIES: u64 = 300;
/// One load takes milliseconds; the longest that a busy machine may need.
const PATIENCE: Duration = Duration::from_secs(60);
const LIMITS: &str = "[limits]\ndeadline = \"200ms\"\nfuel = 5_000_000\nmemory = \"16MiB\"";

#[expect(clippy::disallowed_methods, reason = "tests are configured through the environment")]
fn seconds() -> Option<Duration> {
    let text = std::env::var("OUTBOX_TEST_FUZZ_SECONDS").ok()?;
    Some(Duration::from_secs(text.parse().expect("OUTBOX_TEST_FUZZ_SECONDS is a number of seconds")))
}

#[expect(clippy::print_stdout, reason = "a figure for whoever runs the tests")]
pub(super) fn tell(figures: &str) {
    println!("{figures}");
}

/// Where each seed begins; told when a try fails, so that it can be repeated alone.
fn seeds() -> impl Iterator<Item = u64> {
    let (started, time) = (Instant::now(), seconds());
    (0_u64..).take_while(move |seed| time.map_or(*seed < TRIES, |time| started.elapsed() < time))
}

/// Changes a component in one of the ways in which files are damaged, or somebody damages them.
fn damaged(random: &mut StdRng, whole: &[u8]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..random.random_range(1..=4) {
        let at = random.random_range(8..bytes.len().max(9));
        match random.random_range(0..6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8_u8),
            1 if at < bytes.len() => bytes[at] = random.random(),
            2 => bytes.truncate(at),
            3 => bytes.insert(at.min(bytes.len()), random.random()),
            4 => {
                let end = (at + random.random_range(1..64)).min(bytes.len());
                bytes.drain(at.min(end)..end);
            }
            _ => {
                let end = (at + random.random_range(1..256)).min(bytes.len());
                let piece = bytes[at.min(end)..end].to_vec();
                let to = random.random_range(8..=bytes.len());
                bytes.splice(to..to, piece);
            }
        }
    }
    bytes
}

/// A body of instructions at random, which is sometimes valid.
fn body(random: &mut StdRng, depth: u32) -> String {
    const VALUES: [&str; 8] = ["0", "1", "-1", "65536", "2147483647", "-2147483648", "512", "7"];
    let value = |random: &mut StdRng| match random.random_range(0..6) {
        0 => "(memory.size)".to_owned(),
        1 => "(local.get $event)".to_owned(),
        2 => "(call $remaining)".to_owned(),
        _ => format!("(i32.const {})", VALUES[random.random_range(0..VALUES.len())]),
    };
    let mut text = String::new();
    for _ in 0..random.random_range(1..6) {
        let (a, b, c) = (value(random), value(random), value(random));
        let inner = if depth > 0 { body(random, depth - 1) } else { "(nop)".to_owned() };
        text.push_str(&match random.random_range(0..14) {
            0 => format!("(drop (memory.grow {a}))"),
            1 => format!("(memory.fill {a} {b} {c})"),
            2 => format!("(i32.store {a} {b})"),
            3 => format!("(drop (i32.load {a}))"),
            4 => format!("(if {a} (then {inner}))"),
            5 => format!("(loop {inner} (br_if 0 {a}))"),
            6 => format!("(call $log {a} {b} {c} {a} {b})"),
            7 => format!("(call $emit {a} {b})"),
            8 => format!("(call $state_set {a} {b} {c} {a} {b})"),
            9 => format!("(call $block {a})"),
            10 => format!("(drop (call $request {a}))"),
            11 => format!("(call $poll {a} {b} {c})"),
            12 => format!("(call $state_get {a} {b} {c})"),
            _ => format!("(drop (i32.div_s {a} {b}))"),
        });
    }
    text
}

#[tokio::test]
async fn a_damaged_component_is_refused_or_answers_and_never_breaks_the_host() {
    let wholes = [sample("order-mailer"), Guest::new("(call $done)").build()];
    let (mut loaded, mut refused) = (0_u64, 0_u64);
    for seed in seeds() {
        let mut random = StdRng::seed_from_u64(seed);
        let bytes = damaged(&mut random, &wholes[usize::from(seed % 4 == 0)]);
        match tried(seed, bytes).await {
            Some(_) => loaded += 1,
            None => refused += 1,
        }
    }
    tell(&format!("{loaded} damaged components were loaded and called, {refused} refused"));
    assert!(refused > loaded / 10, "most damage is found");
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "tests are configured through the environment")]
async fn a_component_made_up_by_a_generator_is_refused_with_a_reason() {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("sandbox/hostile/smith");
    let more = std::env::var_os("OUTBOX_TEST_FUZZ_CORPUS").map(PathBuf::from);
    let files =
        [Some(ours), more].into_iter().flatten().flat_map(|dir| std::fs::read_dir(dir).expect("a directory of components"));
    let mut refused = 0_u64;
    for file in files {
        let file = file.expect("it can be read").path();
        let whole = std::fs::read(&file).expect("it can be read");
        let loaded = tokio::time::timeout(PATIENCE, load(whole.clone(), LIMITS)).await;
        let loaded = loaded.unwrap_or_else(|_| panic!("{} took longer than {PATIENCE:?}", file.display()));
        let error = loaded.err().unwrap_or_else(|| panic!("{} is no listener, and was loaded", file.display()));
        let reason = outbox::chain(&error);
        assert!(reason.len() < 8_000 && !reason.chars().any(|c| c.is_control() && c != '\n'), "{reason:?}");
        // And with a few bytes of it changed.
        let mut random = StdRng::seed_from_u64(whole.len() as u64);
        tried(whole.len() as u64, damaged(&mut random, &whole)).await;
        refused += 1;
    }
    tell(&format!("{refused} components of a generator were refused"));
    assert!(refused >= 16, "the corpus lies beside this file");
}

#[tokio::test]
async fn a_guest_made_up_at_random_answers_or_is_stopped_and_never_breaks_the_host() {
    let (mut answered, mut stopped) = (0_u64, 0_u64);
    for seed in seeds() {
        let mut random = StdRng::seed_from_u64(seed);
        let guest = Guest::new(&format!("{} (call $done)", body(&mut random, 3)));
        let guest = if random.random_bool(0.1) {
            guest.allocator(&format!("{} (i32.const 65536)", body(&mut random, 1).replace("local.get $event", "local.get 3")))
        } else {
            guest
        };
        let Some(broke) = tried(seed, guest.build()).await else { continue };
        if broke { stopped += 1 } else { answered += 1 }
    }
    tell(&format!("{answered} random guests answered, {stopped} were stopped"));
    assert!(answered > 0 && stopped > 0);
}

/// Loads and calls what was made of a seed; whether the call broke off, `None` when it was not loaded.
async fn tried(seed: u64, bytes: Vec<u8>) -> Option<bool> {
    let host: PluginHost = tokio::time::timeout(PATIENCE, load(bytes, LIMITS))
        .await
        .unwrap_or_else(|_| panic!("seed {seed}: loading took longer than {PATIENCE:?}"))
        .ok()?;
    let mut broke = false;
    for attempt in 1..=2 {
        let event = event("Evil", "Deed");
        let call: Call = outbox::Event::of(event.envelope().clone()).sequence(1).attempt(attempt).build().into();
        let report = tokio::time::timeout(PATIENCE, host.call(call.kept()))
            .await
            .unwrap_or_else(|_| panic!("seed {seed}: a call took longer than {PATIENCE:?}"));
        broke |= matches!(&report.outcome, outbox::listener::Outcome::Failed(failure) if failure.cause.is_breakage());
        assert!(report.used.memory_bytes <= 16 << 20, "seed {seed}: {report:?}");
    }
    Some(broke)
}
