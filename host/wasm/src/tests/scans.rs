//! What a scan sees, and what it costs.

#![expect(clippy::print_stdout, reason = "what measures prints its figures")]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outbox_event::{Outcome, PluginState, Route};
use outbox_listener::Listeners;

use super::reload::{answering, config, one};
use super::{Guest, event, put, visit};
use crate::reload::entry::{Entry, Key};
use crate::{Plugins, PluginsConfig, Resolve};

/// A guest that answers with its setting `token`.
fn telling() -> Guest {
    let body = "(call $config (i32.const 16) (i32.const 5) (i32.const 256))
        (call $dead (i32.load (i32.const 260)) (i32.load (i32.const 264)))";
    Guest::new(body).outside("(data (i32.const 16) \"token\")")
}

async fn told(listeners: &Listeners) -> String {
    let found = listeners.find(&Route::new("Order", "OrderPlaced").unwrap()).unwrap();
    match found.registration.listener.call(visit(&event(None), 0, 1)).await.outcome {
        Outcome::Dead(token) => token,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_rotated_value_is_seen_by_the_next_scan_and_a_lost_one_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    telling().write(dir.path(), "mailer");
    put(dir.path(), "mailer.toml", b"[config]\ntoken = \"${env:OUTBOX_PLUGIN_TOKEN}\"\n");
    let token = Arc::new(Mutex::new(Ok("first".to_owned())));
    let asked = token.clone();
    let config = PluginsConfig { resolve: Resolve::new(move |_, _| asked.lock().unwrap().clone()), ..config(dir.path()) };
    let listeners = Arc::new(Listeners::default());
    let plugins = Plugins::start(config, 2, listeners.clone()).await.unwrap();
    assert_eq!(told(&listeners).await, "first");

    *token.lock().unwrap() = Ok("second".to_owned());
    plugins.rescan().await;
    assert_eq!((told(&listeners).await.as_str(), one(&plugins, "mailer").error), ("second", None));
    *token.lock().unwrap() = Err("the variable is not set".to_owned());
    plugins.rescan().await;
    let status = one(&plugins, "mailer");
    assert_eq!((told(&listeners).await.as_str(), status.state), ("second", PluginState::ServingOlder));
    assert!(status.error.unwrap().contains("the variable is not set"));
    *token.lock().unwrap() = Ok("second".to_owned());
    plugins.rescan().await;
    assert_eq!((told(&listeners).await.as_str(), one(&plugins, "mailer").error), ("second", None));
}

#[tokio::test]
async fn plugins_directory_that_hangs_is_reported_and_its_plugins_serve() {
    let dir = tempfile::tempdir().unwrap();
    answering(1_000).write(dir.path(), "mailer");
    let listeners = Arc::new(Listeners::default());
    let plugins = Plugins::start(config(dir.path()), 2, listeners.clone()).await.unwrap();
    assert_eq!(one(&plugins, "mailer").error, None);
    let release = plugins.hang().await;

    plugins.rescan().await;

    let reported = one(&plugins, "mailer").error.expect("the directory hangs");
    assert!(reported.contains("does not answer"), "{reported}");
    assert!(listeners.find(&Route::new("Order", "OrderPlaced").unwrap()).is_some());
    let unknown = Route::new("Order", "OrderPaid").unwrap();
    assert_eq!(listeners.awaited(&unknown).as_deref(), Some(&*reported), "its plugin may be in the directory");
    drop(release);
}

fn many(dir: &Path, count: usize) {
    for number in 0..count {
        let event_type = format!("Event{number}");
        answering(1_000).routes(&[("Order", &event_type)]).write(dir, &format!("plugin-{number}"));
    }
}

#[tokio::test]
async fn a_scan_reads_only_files_that_changed() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    many(dir.path(), 3);
    let config = PluginsConfig { cache_dir: Some(home.path().join("cache")), ..config(dir.path()) };
    let plugins = Plugins::start(config, 2, Arc::default()).await.unwrap();
    // Quiet by now, or the next scan waits until they are.
    plugins.rescan().await;
    plugins.rescan().await;
    let reads = plugins.reads();
    plugins.rescan().await;
    plugins.rescan().await;
    assert_eq!(plugins.reads(), reads, "nothing changed");
    answering(2_000).routes(&[("Order", "Event1")]).write(dir.path(), "plugin-1");
    plugins.rescan().await;
    // Once more, perhaps: it was touched just now.
    assert!((reads + 1..=reads + 2).contains(&plugins.reads()), "one pair changed: {} after {reads}", plugins.reads());
}

/// Prints figures; run by hand: `cargo test --release -p outbox-wasm --lib -- --ignored --nocapture scan_of_200`.
#[tokio::test]
#[ignore = "a measurement, not a check"]
async fn a_scan_of_200_plugins_is_measured() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    many(dir.path(), 200);
    let config = PluginsConfig { cache_dir: Some(home.path().join("cache")), ..config(dir.path()) };
    let begun = Instant::now();
    let plugins = Plugins::start(config.clone(), 2, Arc::default()).await.unwrap();
    println!("first start, compiling 200: {:?}", begun.elapsed());
    plugins.rescan().await;
    plugins.rescan().await;
    let mut scans: Vec<_> = Vec::new();
    for _ in 0..100 {
        let begun = Instant::now();
        plugins.rescan().await;
        scans.push(begun.elapsed());
    }
    scans.sort();
    println!("scan of 200 plugins: median {:?}, worst {:?}", scans[50], scans[99]);
    plugins.stop().await;
    let begun = Instant::now();
    let plugins = Plugins::start(config, 2, Arc::default()).await.unwrap();
    println!("start with 200 cached plugins: {:?}, {:?} each", begun.elapsed(), begun.elapsed() / 200);
    plugins.stop().await;
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Swaps a plugin so often; the resident memory in KiB after the first tenth and at the end.
async fn swapped(times: u32) -> (u64, u64) {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Nobody writes a file here bit by bit.
    let debounce = std::time::Duration::ZERO;
    let config = PluginsConfig { cache_dir: Some(home.path().join("cache")), debounce, ..config(dir.path()) };
    let versions = [answering(1_000).build(), answering(2_000).build()];
    put(dir.path(), "mailer.wasm", &versions[0]);
    let listeners = Arc::new(Listeners::default());
    let plugins = Plugins::start(config, 2, listeners.clone()).await.unwrap();
    let mut early = 0;
    for number in 0..times {
        let version = &versions[(number as usize + 1) % 2];
        put(dir.path(), "mailer.wasm", version);
        plugins.rescan().await;
        assert_eq!(one(&plugins, "mailer").error, None);
        if number == times / 10 {
            early = resident_kib();
        }
    }
    let last = super::reload::answer(&listeners).await;
    assert_eq!(last, Some(if times.is_multiple_of(2) { 1_000 } else { 2_000 }), "the last version serves");
    plugins.stop().await;
    (early, resident_kib())
}

#[tokio::test]
async fn nothing_of_a_version_is_left_once_it_is_swapped_and_its_calls_have_ended() {
    let dir = tempfile::tempdir().unwrap();
    let config = PluginsConfig { debounce: std::time::Duration::ZERO, ..config(dir.path()) };
    let listeners = Arc::new(Listeners::default());
    answering(1).write(dir.path(), "mailer");
    let plugins = Plugins::start(config, 2, listeners.clone()).await.unwrap();
    let serving = || listeners.find(&Route::new("Order", "OrderPlaced").unwrap()).unwrap().registration.listener.clone();
    let mut versions = vec![Arc::downgrade(&serving())];
    for millis in 2..=20 {
        answering(millis).write(dir.path(), "mailer");
        plugins.rescan().await;
        versions.push(Arc::downgrade(&serving()));
    }
    let alive = versions.iter().filter(|version| version.upgrade().is_some()).count();
    assert_eq!((versions.len(), alive), (20, 1), "only the last version");
}

/// Prints figures; run by hand, as above.
#[tokio::test]
#[ignore = "a measurement, not a check"]
async fn ten_thousand_swaps_are_measured() {
    let begun = Instant::now();
    let (early, late) = swapped(10_000).await;
    println!("10,000 swaps in {:?}: {early} KiB resident after 1,000, {late} KiB after all", begun.elapsed());
}

#[tokio::test]
async fn what_failed_and_may_pass_rests_before_it_is_tried_again_unless_something_changes() {
    let (dir, token) = (tempfile::tempdir().unwrap(), Arc::new(Mutex::new(None)));
    answering(1_000).write(dir.path(), "mailer");
    put(dir.path(), "mailer.toml", b"[secrets]\ntoken = \"${env:OUTBOX_PLUGIN_TOKEN}\"\n");
    let found: Arc<Mutex<Option<String>>> = token.clone();
    let resolve = Resolve::new(move |_, _| found.lock().unwrap().clone().ok_or_else(|| "it is not set".to_owned()));
    let plugins = Plugins::start(PluginsConfig { resolve, ..config(dir.path()) }, 2, Arc::default()).await.unwrap();
    assert_eq!((one(&plugins, "mailer").state, plugins.loads()), (PluginState::Failed, 1));

    plugins.look().await;
    plugins.look().await;
    assert_eq!(plugins.loads(), 1, "nothing changed, and the next try is not due");
    plugins.rescan().await;
    assert_eq!(plugins.loads(), 2, "somebody asked");
    *token.lock().unwrap() = Some("secret".to_owned());
    plugins.look().await;
    assert_eq!(plugins.loads(), 3, "what was missing is there");
    plugins.rescan().await;
    assert_eq!(one(&plugins, "mailer").state, PluginState::Serving);
}

#[test]
fn rests_grow_with_each_failure_of_the_same_files() {
    let (mut entry, now) = (Entry::new(Path::new("mailer.wasm"), Arc::default()), Instant::now());
    let second = Duration::from_secs(1);
    let key = Key::default();
    for rest in [1, 2, 4, 8] {
        entry.note_failed_load(&key, true, second, now);
        assert!(entry.rests(&key, now + second * rest - second / 2) && !entry.rests(&key, now + second * rest));
    }
    (0..40).for_each(|_| entry.note_failed_load(&key, true, second, now));
    assert!(!entry.rests(&key, now + Duration::from_secs(300)), "at most five minutes");
    entry.note_failed_load(&key, false, second, now);
    assert!(!entry.rests(&key, now), "what cannot pass is told apart by its key alone");
}
