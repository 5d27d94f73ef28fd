//! Plugins that are pinned to a digest.

use std::path::Path;
use std::sync::Arc;

use outbox_event::PluginState;
use outbox_listener::Listeners;

use super::put;
use super::reload::{answer, answering, config, one};
use crate::{LoadError, LockChange, Plugins, PluginsConfig, WherePinned, lock, rollback};

async fn start(config: &PluginsConfig) -> (Plugins, Arc<Listeners>) {
    let listeners = Arc::new(Listeners::default());
    (Plugins::start(config.clone(), 2, listeners.clone()).await.unwrap(), listeners)
}

fn changes(config: &PluginsConfig) -> Vec<(String, LockChange)> {
    lock(config).unwrap().1.into_iter().map(|locked| (locked.name, locked.change)).collect()
}

#[tokio::test]
async fn what_is_not_what_was_pinned_is_not_loaded_until_it_is_pinned_anew() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    answering(1_000).write(dir.path(), "mailer");
    assert_eq!(changes(&config), [("mailer".to_owned(), LockChange::Added)]);
    let (plugins, listeners) = start(&config).await;
    assert_eq!(answer(&listeners).await, Some(1_000));

    answering(2_000).write(dir.path(), "mailer");
    answering(3_000).routes(&[("Order", "OrderPaid")]).write(dir.path(), "other");
    plugins.rescan().await;
    let status = one(&plugins, "mailer");
    assert_eq!((status.state, answer(&listeners).await), (PluginState::ServingOlder, Some(1_000)));
    assert!(status.error.unwrap().contains("plugins.lock pins sha256:"));
    assert_eq!(one(&plugins, "other").state, PluginState::Serving, "not pinned, and not strict");

    let both = [("mailer".to_owned(), LockChange::Changed), ("other".to_owned(), LockChange::Added)];
    assert_eq!(changes(&config), both);
    plugins.rescan().await;
    assert_eq!((one(&plugins, "mailer").error, answer(&listeners).await), (None, Some(2_000)));

    put(dir.path(), "mailer.toml", b"emit = true\n");
    plugins.rescan().await;
    assert!(one(&plugins, "mailer").error.unwrap().contains("the manifest of mailer has the digest"), "a grant is pinned too");
}

#[tokio::test]
async fn strict_hosts_load_only_what_is_pinned_elsewhere() {
    let (dir, etc) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = etc.path().join("pins.toml");
    let config = PluginsConfig { strict: true, lock: Some(file.clone()), ..config(dir.path()) };
    answering(1_000).write(dir.path(), "mailer");
    let (plugins, listeners) = start(&config).await;
    assert!(one(&plugins, "mailer").error.unwrap().contains("it is not there; write it with `outbox plugin lock`"));
    assert_eq!(answer(&listeners).await, None);

    changes(&config);
    plugins.rescan().await;
    assert_eq!((one(&plugins, "mailer").error, answer(&listeners).await), (None, Some(1_000)));
    // What lies in the directory pins nothing, whoever wrote it.
    answering(2_000).routes(&[("Order", "OrderPaid")]).write(dir.path(), "other");
    let forged = PluginsConfig { lock: None, ..config.clone() };
    changes(&forged);
    plugins.rescan().await;
    assert!(one(&plugins, "other").error.unwrap().contains("other is not pinned in"));
    // Nor does a file that cannot be read as pins.
    for broken in ["", "plugins = 3", "[plugins.other]\ndigest = \"x\""] {
        put(etc.path(), "pins.toml", broken.as_bytes());
        plugins.rescan().await;
        assert!(one(&plugins, "other").error.unwrap().contains("which pins the plugins, cannot be used"), "{broken}");
        assert_eq!(answer(&listeners).await, Some(1_000), "what serves goes on");
    }
}

async fn noted(cache: &Path, bytes: usize) {
    let noting = async {
        let is_kept = || {
            std::fs::read_dir(cache).unwrap().any(|entry| entry.unwrap().path().extension().is_some_and(|end| end == "good"))
        };
        while !is_kept() || bytes == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), noting).await.expect("noted within 30 s");
}

#[tokio::test]
async fn the_last_good_version_must_be_pinned_too_and_a_rollback_brings_it_back() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = PluginsConfig { cache_dir: Some(home.path().join("cache")), ..config(dir.path()) };
    let first = answering(1_000).build();
    put(dir.path(), "mailer.wasm", &first);
    let (plugins, _) = start(&config).await;
    noted(&home.path().join("cache"), first.len()).await;
    plugins.stop().await;
    answering(2_000).write(dir.path(), "mailer");
    changes(&config);
    put(dir.path(), "mailer.wasm", b"broken");

    let (plugins, listeners) = start(&config).await;
    assert_eq!(
        (one(&plugins, "mailer").state, answer(&listeners).await),
        (PluginState::Failed, None),
        "only the second is pinned"
    );

    let lock = std::fs::read(dir.path().join("plugins.lock")).unwrap();
    put(dir.path(), "mailer.toml", b"emit = true\n");
    let error = rollback(&config, "mailer", WherePinned::Refuse).unwrap_err();
    assert!(matches!(&error, LoadError::Pin { .. }), "the second is what is pinned: {error}");
    let lies_there = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    let three = [lies_there("mailer.wasm"), lies_there("mailer.toml"), lies_there("plugins.lock")];
    assert_eq!(three, [b"broken".to_vec(), b"emit = true\n".to_vec(), lock], "nothing has changed");

    rollback(&config, "mailer", WherePinned::PinAnew).unwrap();
    assert_eq!(lies_there("mailer.wasm"), first);
    assert!(!dir.path().join("mailer.toml").exists(), "the first had none");
    plugins.rescan().await;
    assert_eq!((one(&plugins, "mailer").error, answer(&listeners).await), (None, Some(1_000)));
    plugins.stop().await;

    std::fs::remove_file(dir.path().join("plugins.lock")).unwrap();
    answering(2_000).write(dir.path(), "mailer");
    rollback(&config, "mailer", WherePinned::PinAnew).unwrap();
    assert_eq!(lies_there("mailer.wasm"), first);
    assert!(!dir.path().join("plugins.lock").exists(), "who pins nothing is not made to");
    let error = rollback(&config, "absent", WherePinned::Refuse).unwrap_err();
    assert!(error.to_string().contains("no earlier version of absent"), "{error}");
}
