//! What serves when a host is ready, and what becomes of the rest.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outbox_event::{PluginState, Route};
use outbox_listener::Listeners;

use super::reload::{answer, answering, config, one};
use crate::{Plugins, PluginsConfig, ReadyWhen, check, inspect};

/// Long enough for a machine under load.
const PATIENCE: Duration = Duration::from_secs(30);

fn cached(dir: &Path, cache: &Path) -> PluginsConfig {
    PluginsConfig { cache_dir: Some(cache.to_owned()), ready_when: ReadyWhen::Cached, ..config(dir) }
}

fn compiled(cache: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "cwasm")).collect()
}

#[tokio::test]
async fn what_is_compiled_serves_at_once_and_the_rest_follows() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cache = home.path().join("cache");
    answering(1_000).write(dir.path(), "old");
    inspect(cached(dir.path(), &cache), 2).await.unwrap();
    answering(2_000).routes(&[("Order", "OrderPaid")]).write(dir.path(), "new");

    let listeners = Arc::new(Listeners::default());
    let plugins = Plugins::start(cached(dir.path(), &cache), 2, listeners.clone()).await.unwrap();

    // This test's one thread has not let the task that compiles begin.
    assert_eq!((one(&plugins, "old").state, one(&plugins, "new").state), (PluginState::Serving, PluginState::Loading));
    assert_eq!(answer(&listeners).await, Some(1_000));
    plugins.rescan().await;
    assert_eq!(one(&plugins, "new").state, PluginState::Serving);
    assert!(listeners.find(&Route::new("Order", "OrderPaid").unwrap()).is_some());
    assert_eq!(compiled(&cache).len(), 2);
    plugins.stop().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_the_compiler() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    answering(1_000).write(dir.path(), "mailer");
    let config = cached(dir.path(), &home.path().join("cache"));
    let plugins = Plugins::start(config, 2, Arc::default()).await.unwrap();
    let engine = plugins.engine().await;
    let _compiling = engine.compiling.lock().await;
    // Now it waits for its turn, for ever.
    tokio::task::yield_now().await;

    let stopped = tokio::time::timeout(PATIENCE, plugins.stop()).await;

    assert!(stopped.is_ok(), "the stop waits for the compiler");
}

#[tokio::test]
async fn a_check_warms_the_cache_for_the_host() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cache = home.path().join("cache");
    let file = answering(1_000).write(dir.path(), "mailer");

    let first = check(&file, cached(dir.path(), &cache), 2).await.unwrap();
    let second = check(&file, cached(dir.path(), &cache), 2).await.unwrap();

    assert_eq!((first.is_from_cache, second.is_from_cache), (false, true));
    let plugins = Plugins::start(cached(dir.path(), &cache), 2, Arc::default()).await.unwrap();
    assert_eq!(one(&plugins, "mailer").state, PluginState::Serving, "ready at once");
    assert_eq!(compiled(&cache).len(), 1);
}
