//! Three hosts that share a directory of plugins, whose plugin is replaced again and again while programs write.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use support::history::Report;
use support::{Faults, Witness, Writers, sample_plugins};

use crate::home::Home;
use crate::node::{Mode, Node, history, say, wait_for_writers, wait_until_all_is_delivered};
use crate::program::Place;

const HOSTS: usize = 3;
/// How often the plugin is replaced, unless `OUTBOX_TEST_SWAPS` says more.
const SWAPS: u32 = 4;
/// How long half of a file lies there: a plan, not a wait for something.
const HALF: Duration = Duration::from_millis(300);
/// How many events are written for each replacement, at least.
const EVENTS: usize = 125;
const WRITERS: usize = 4;
/// How long the plugin takes for each event: so long that calls are under way when it is replaced.
const TAKES: Duration = Duration::from_millis(20);
/// In one of this many replacements, half of the file comes first.
const HALVES: u32 = 4;

/// The same component with another digest: a custom section at its end, which means nothing.
fn variant(component: &[u8], number: u32) -> Vec<u8> {
    let mut bytes = component.to_vec();
    bytes.extend([0, 6, 1, b'v']);
    bytes.extend(number.to_le_bytes());
    bytes
}

/// The first twelve hex digits of its digest, as hosts tell it.
fn short_digest(component: &[u8]) -> String {
    Sha256::digest(component).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// Puts it in place whole, as a deployment does.
fn put(plugins: &Path, component: &[u8]) {
    let new = plugins.join(".recorder.wasm.tmp");
    fs::write(&new, component).expect("can be written");
    fs::rename(&new, plugins.join("recorder.wasm")).expect("can be renamed");
}

#[test]
fn a_plugin_that_three_hosts_share_is_swapped_under_load_and_nothing_is_lost_dead_or_delivered_twice() {
    let component = fs::read(sample_plugins().join("recorder.wasm")).expect("it is built");
    let swaps = swaps();
    let events = EVENTS * swaps as usize;
    let place = Place::on(Home::on_postgres());
    let (plugins, cache) = (place.path().join("plugins"), place.path().join("cache"));
    let cache = cache.to_str().expect("a plain name").to_owned();
    let settings = [
        ("OUTBOX_MODE", "multi_node"),
        ("OUTBOX_POLLER__INTERVAL", "100ms"),
        ("OUTBOX_RETRY__POLICY", "fixed"),
        ("OUTBOX_RETRY__BASE", "100ms"),
        ("OUTBOX_PLUGINS__DEBOUNCE", "50ms"),
        ("XDG_CACHE_HOME", &cache),
    ];
    let mut nodes: Vec<Node> = (0..HOSTS).map(|number| Node::start(&place, number, &settings)).collect();
    for node in &mut nodes {
        node.wait_for("plugin recorder loaded", 1);
    }
    let mut whole = BTreeSet::from([short_digest(&component)]);
    let started = Instant::now();
    let writers = Writers { writers: WRITERS, events, rest: Duration::from_millis(40), takes: TAKES, faults: Faults::None };
    let enough = Arc::new(AtomicBool::new(false));
    let writers = writers.start_until(place.url(), place.path(), enough.clone());

    for number in 1..=swaps {
        let next = variant(&component, number);
        if number % HALVES == 0 {
            // Not as it should be done: written where it lies, and seen before it is whole.
            fs::write(plugins.join("recorder.wasm"), &next[..next.len() / 2]).expect("can be written");
            std::thread::sleep(HALF);
        }
        put(&plugins, &next);
        let digest = short_digest(&next);
        for node in &mut nodes {
            node.wait_for_line("the new version serves", |line| {
                line["digest"] == *digest
                    && line["message"].as_str().is_some_and(|text| text.starts_with("plugin recorder swapped"))
            });
        }
        whole.insert(digest);
    }
    enough.store(true, Ordering::Relaxed);
    wait_for_writers(writers, events);
    let seconds = started.elapsed().as_secs_f64();
    wait_until_all_is_delivered(&place, events);
    for node in &mut nodes {
        assert_eq!(node.stop(), Some(0), "a host that is asked to stop ends well");
    }

    let delivered: BTreeSet<String> = nodes.iter().flat_map(Node::digests).collect();
    let history = history(&place, &nodes, &Witness::of(place.url(), place.path()));
    let report = history.check(&Mode::Any.rules());
    let rate = history.committed() as f64 / seconds;
    say(&format!(
        "{HOSTS} hosts, one directory, {swaps} swaps, {rate:.0} events/s written: {} committed, {} deliveries by {} versions; {report}\n",
        history.committed(),
        history.deliveries(),
        delivered.len(),
    ));
    assert!(history.committed() >= events, "the writers did their part");
    assert_eq!(report, Report::default(), "{report}");
    assert_eq!((place.stat("dead"), place.stat("parked")), (0, 0));
    assert!(delivered.len() > 1 && delivered.is_subset(&whole), "by versions that were whole: {delivered:?} of {whole:?}");
}

#[expect(clippy::disallowed_methods, reason = "a longer run is asked for through the environment")]
fn swaps() -> u32 {
    std::env::var("OUTBOX_TEST_SWAPS").ok().map_or(SWAPS, |swaps| swaps.parse().expect("OUTBOX_TEST_SWAPS is a number"))
}
