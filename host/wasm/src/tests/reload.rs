//! A directory of plugins, changing.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use outbox_event::{Outcome, PluginState, PluginStatus, Route};
use outbox_listener::Listeners;
use sha2::Sha256;

use super::{Guest, event, put, visit};
use crate::{LoadError, Plugins, PluginsConfig, inspect};

pub(super) fn config(dir: &Path) -> PluginsConfig {
    PluginsConfig {
        dir: dir.to_owned(),
        // Only the crank turns, unless a test says otherwise.
        rescan_interval: Duration::from_secs(3_600),
        debounce: Duration::from_secs(3_600),
        ..PluginsConfig::default()
    }
}

pub(super) fn answering(millis: u32) -> Guest {
    Guest::new(&format!("(call $later (i64.const {millis}))"))
}

/// Keeps the directory from being empty: a directory that has lost all of its plugins changes nothing.
fn another() -> Guest {
    answering(1_000).routes(&[("Order", "OrderArchived")])
}

pub(super) async fn start(dir: &Path) -> (Plugins, Arc<Listeners>) {
    let listeners = Arc::new(Listeners::default());
    (Plugins::start(config(dir), 2, listeners.clone()).await.unwrap(), listeners)
}

/// What the route's listener answers now, in milliseconds; `None` when there is none.
pub(super) async fn answer(listeners: &Listeners) -> Option<u128> {
    let found = listeners.find(&Route::new("Order", "OrderPlaced").unwrap())?;
    let event = event(None);
    match found.registration.listener.call(visit(&event, 0, 1)).await.outcome {
        Outcome::RetryAfter(delay) => Some(delay.as_millis()),
        other => panic!("{other:?}"),
    }
}

pub(super) fn one(plugins: &Plugins, name: &str) -> PluginStatus {
    plugins.list().into_iter().find(|status| status.name == name).unwrap()
}

#[tokio::test]
async fn a_plugin_is_loaded_swapped_and_unloaded() {
    let dir = tempfile::tempdir().unwrap();
    answering(1_000).write(dir.path(), "mailer");
    let (plugins, listeners) = start(dir.path()).await;
    assert_eq!(answer(&listeners).await, Some(1_000));
    let in_flight = listeners.find(&Route::new("Order", "OrderPlaced").unwrap()).unwrap();

    answering(2_000).version("2.0.0").write(dir.path(), "mailer");
    plugins.rescan().await;
    assert_eq!(answer(&listeners).await, Some(2_000));
    let status = one(&plugins, "mailer");
    assert_eq!((status.version.as_deref(), status.state, status.error), (Some("2.0.0"), PluginState::Serving, None));
    let event = event(None);
    let old = in_flight.registration.listener.call(visit(&event, 0, 1)).await.outcome;
    assert_eq!(old, Outcome::RetryAfter(Duration::from_secs(1)), "an event in flight ends on the version it began with");

    another().write(dir.path(), "another");
    std::fs::remove_file(dir.path().join("mailer.wasm")).unwrap();
    plugins.rescan().await;
    assert_eq!(answer(&listeners).await, None);
    assert!(listeners.is_remembered(&Route::new("Order", "OrderPlaced").unwrap()), "so its events wait");
    assert_eq!(plugins.list().len(), 1);
    plugins.stop().await;
}

#[tokio::test]
async fn a_broken_update_leaves_the_old_version_serving_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    answering(1_000).write(dir.path(), "mailer");
    let (plugins, listeners) = start(dir.path()).await;
    put(dir.path(), "mailer.wasm", b"(component)");
    plugins.rescan().await;
    let status = one(&plugins, "mailer");
    assert_eq!(status.state, PluginState::ServingOlder);
    assert!(status.error.unwrap().contains("it is text"));
    assert_eq!(answer(&listeners).await, Some(1_000));
    // A bad manifest beside a good file.
    answering(3_000).write(dir.path(), "mailer");
    put(dir.path(), "mailer.toml", b"isolation = \"thread\"");
    plugins.rescan().await;
    assert!(one(&plugins, "mailer").error.unwrap().contains("mailer.toml is not valid"));
    assert_eq!(answer(&listeners).await, Some(1_000));
    // Both good.
    put(dir.path(), "mailer.toml", b"isolation = \"batch\"");
    plugins.rescan().await;
    assert_eq!((one(&plugins, "mailer").error, answer(&listeners).await), (None, Some(3_000)));
}

#[tokio::test]
async fn a_plugin_changes_to_strict_isolation_and_back_with_the_same_file() {
    let dir = tempfile::tempdir().unwrap();
    answering(1_000).write(dir.path(), "mailer");
    let (plugins, listeners) = start(dir.path()).await;
    for isolation in ["strict", "event", "strict", "batch"] {
        put(dir.path(), "mailer.toml", format!("isolation = \"{isolation}\"").as_bytes());
        plugins.rescan().await;
        let status = one(&plugins, "mailer");
        assert_eq!((status.state, status.error), (PluginState::Serving, None), "{isolation}");
        assert_eq!(answer(&listeners).await, Some(1_000), "{isolation}");
    }
    plugins.stop().await;
}

#[tokio::test]
async fn the_holder_of_a_route_keeps_it_and_the_newcomer_gets_it_when_the_holder_goes() {
    let dir = tempfile::tempdir().unwrap();
    answering(1_000).write(dir.path(), "a");
    let (plugins, listeners) = start(dir.path()).await;
    answering(2_000).write(dir.path(), "b");
    plugins.rescan().await;
    let status = one(&plugins, "b");
    assert_eq!(status.state, PluginState::Failed);
    assert!(status.error.unwrap().contains("Order/OrderPlaced is already answered by a; remove one of them"));
    assert_eq!(answer(&listeners).await, Some(1_000));
    std::fs::remove_file(dir.path().join("a.wasm")).unwrap();
    plugins.rescan().await;
    assert_eq!((one(&plugins, "b").state, answer(&listeners).await), (PluginState::Serving, Some(2_000)));
}

#[tokio::test]
async fn the_operators_manifest_wins_over_the_one_beside_the_file() {
    let dir = tempfile::tempdir().unwrap();
    answering(1_000).write(dir.path(), "mailer");
    put(dir.path(), "mailer.toml", b"not a manifest");
    let mut config = config(dir.path());
    config.manifests.insert("mailer".to_owned(), Default::default());
    let listeners = Arc::new(Listeners::default());
    let plugins = Plugins::start(config, 1, listeners.clone()).await.unwrap();
    assert_eq!((one(&plugins, "mailer").error, answer(&listeners).await), (None, Some(1_000)));
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_noticed_without_being_told() {
    let dir = tempfile::tempdir().unwrap();
    let config = PluginsConfig { debounce: Duration::from_millis(20), ..config(dir.path()) };
    let listeners = Arc::new(Listeners::default());
    let plugins = Plugins::start(config, 1, listeners.clone()).await.unwrap();
    assert_eq!(answer(&listeners).await, None);
    answering(1_000).write(dir.path(), "mailer");
    eventually("the new plugin serves", &listeners, Some(1_000)).await;
    answering(2_000).write(dir.path(), "mailer");
    eventually("the new version serves", &listeners, Some(2_000)).await;
    another().write(dir.path(), "another");
    std::fs::remove_file(dir.path().join("mailer.wasm")).unwrap();
    eventually("the plugin is unloaded", &listeners, None).await;
    plugins.stop().await;
}

async fn eventually(what: &str, listeners: &Listeners, wanted: Option<u128>) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut changes = listeners.changes();
    while answer(listeners).await != wanted {
        let left = deadline.saturating_duration_since(Instant::now());
        let changed = tokio::time::timeout(left, changes.changed()).await;
        assert!(changed.is_ok(), "{what}: not within 20 s");
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_trusted_or_is_not_there_is_an_error_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let error = inspect(config(&dir.path().join("absent")), 1).await.unwrap_err().to_string();
    assert!(error.contains("does not exist; create it"), "{error}");
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    let error = inspect(config(dir.path()), 1).await.unwrap_err();
    assert!(matches!(&error, LoadError::Directory { reason, .. } if reason.contains("chmod o-w")), "{error}");
}

#[tokio::test]
async fn a_list_of_the_directory_holds_good_and_bad() {
    let dir = tempfile::tempdir().unwrap();
    answering(1_000).write(dir.path(), "good");
    put(dir.path(), "bad.wasm", b"");
    put(dir.path(), ".hidden.wasm", b"");
    let list = inspect(config(dir.path()), 1).await.unwrap();
    let states: Vec<_> = list.iter().map(|status| (status.name.as_str(), status.state)).collect();
    assert_eq!(states, [("bad", PluginState::Failed), ("good", PluginState::Serving)]);
}

/// What the plugins of a directory answer when they are loaded with a cache.
async fn answer_with_cache(dir: &Path, cache: &Path) -> Option<u128> {
    let config = PluginsConfig { cache_dir: Some(cache.to_owned()), ..config(dir) };
    let listeners = Arc::new(Listeners::default());
    let plugins = Plugins::start(config, 1, listeners.clone()).await.unwrap();
    let answer = answer(&listeners).await;
    plugins.stop().await;
    answer
}

/// The compiled components of a cache.
fn compiled(cache: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "cwasm")).collect()
}

/// A compiled component under another name, as if the cache in which it lies had put it there.
fn signed(compiled: &[u8], name: &Path) -> Vec<u8> {
    const MAC_BYTES: usize = 32;
    let key = std::fs::read(name.with_file_name("key")).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    mac.update(name.file_name().unwrap().as_encoded_bytes());
    mac.update(&[0]);
    mac.update(&compiled[MAC_BYTES..]);
    [&mac.finalize().into_bytes()[..], &compiled[MAC_BYTES..]].concat()
}

#[tokio::test]
async fn what_the_cache_holds_is_not_compiled_again() {
    let (dir, other, parent) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cache = parent.path().join("cache");
    answering(1_000).write(dir.path(), "mailer");
    assert_eq!(answer_with_cache(dir.path(), &cache).await, Some(1_000));
    let [file] = &compiled(&cache)[..] else { panic!("one component, one file") };
    answering(2_000).write(other.path(), "mailer");
    assert_eq!(answer_with_cache(other.path(), &cache).await, Some(2_000));
    let others = compiled(&cache).into_iter().find(|path| path != file).expect("a file of its own");

    std::fs::write(file, signed(&std::fs::read(others).unwrap(), file)).unwrap();

    assert_eq!(answer_with_cache(dir.path(), &cache).await, Some(2_000), "only what lies in the cache can answer so");
    std::fs::set_permissions(&cache, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(answer_with_cache(dir.path(), &cache).await, Some(1_000), "a cache that cannot be trusted is not used");
}

#[tokio::test]
async fn a_damaged_or_foreign_cache_file_is_compiled_again() {
    let (dir, other, parent) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [cache, elsewhere] = ["cache", "elsewhere"].map(|name| parent.path().join(name));
    answering(1_000).write(dir.path(), "mailer");
    assert_eq!(answer_with_cache(dir.path(), &cache).await, Some(1_000));
    let [file] = &compiled(&cache)[..] else { panic!("one component, one file") };
    let whole = std::fs::read(file).unwrap();
    answering(2_000).write(other.path(), "mailer");
    assert_eq!(answer_with_cache(other.path(), &elsewhere).await, Some(2_000));
    let foreign = &compiled(&elsewhere)[0];
    let named = elsewhere.join(file.file_name().unwrap());

    let flipped = [0, 40, whole.len() / 2, whole.len() - 1].map(|at| {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        damaged
    });
    let another_name = std::fs::read(foreign).unwrap();
    let another_key = signed(&another_name, &named);
    let cut = whole[..whole.len() - 1].to_vec();
    for (number, bad) in flipped.into_iter().chain([Vec::new(), vec![0; 31], cut, another_name, another_key]).enumerate() {
        std::fs::write(file, &bad).unwrap();

        assert_eq!(answer_with_cache(dir.path(), &cache).await, Some(1_000), "number {number}");

        let written = std::fs::read(file).unwrap();
        assert!(written != bad && signed(&written, file) == written, "number {number} is replaced by a good one");
    }
}
