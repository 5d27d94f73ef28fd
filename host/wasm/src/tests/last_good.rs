//! What serves after a restart at which the file does not load: the last version that did.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox_event::PluginState;
use outbox_event::time::{Timestamp, system_clock};
use outbox_event::units::ByteSize;
use outbox_listener::Listeners;

use super::reload::{answer, answering, config, one};
use super::{logged, put};
use crate::private::Private;
use crate::private::last_good::{LastGood, Version};
use crate::{ChildCompiler, Compile, Plugins, PluginsConfig, ReadyWhen, Resolve};

async fn start(dir: &Path, cache: &Path) -> (Plugins, Arc<Listeners>) {
    started(PluginsConfig { cache_dir: Some(cache.to_owned()), ..config(dir) }).await
}

async fn started(config: PluginsConfig) -> (Plugins, Arc<Listeners>) {
    let listeners = Arc::new(Listeners::default());
    (Plugins::start(config, 2, listeners.clone()).await.unwrap(), listeners)
}

/// Runs a host once, with what lies there now, so that it is noted as good.
async fn serve_once(dir: &Path, cache: &Path, wanted: u128) {
    let (plugins, listeners) = start(dir, cache).await;
    assert_eq!(answer(&listeners).await, Some(wanted));
    noted(cache, true).await;
    plugins.stop().await;
}

/// Waits until a version has been noted, or forgotten.
async fn noted(cache: &Path, wanted: bool) {
    let is_noted =
        || std::fs::read_dir(cache).unwrap().any(|entry| entry.unwrap().path().extension().is_some_and(|end| end == "good"));
    let noting = async {
        while is_noted() != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), noting).await.expect("it is noted within 30 s");
}

#[tokio::test]
async fn after_a_broken_update_a_restart_serves_the_last_good_version_and_says_so() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cache = home.path().join("cache");
    answering(1_000).write(dir.path(), "mailer");
    put(dir.path(), "mailer.toml", b"isolation = \"batch\"\n");
    serve_once(dir.path(), &cache, 1_000).await;

    for (name, bytes) in [("mailer.wasm", &b"(component)"[..]), ("mailer.toml", b"isolation = \"thread\"\n")] {
        answering(1_000).write(dir.path(), "mailer");
        put(dir.path(), "mailer.toml", b"isolation = \"batch\"\n");
        put(dir.path(), name, bytes);
        let ((plugins, listeners), lines) = logged(start(dir.path(), &cache)).await;
        assert_eq!(answer(&listeners).await, Some(1_000), "{name} is broken");
        let status = one(&plugins, "mailer");
        assert_eq!(status.state, PluginState::ServingOlder);
        assert!(
            status.error.is_some() && status.version.as_deref() == Some("1.0.0"),
            "{status:?}",
            status = one(&plugins, "mailer")
        );
        let faults: Vec<&String> = lines.iter().filter(|line| line.contains("plugin mailer")).collect();
        assert!(
            matches!(&faults[..], [one] if one.contains("was not loaded, version 1.0.0 (") && one.contains(") serves instead: ")),
            "one line that is true: {lines:?}"
        );
        plugins.stop().await;
    }
    // Mended.
    answering(2_000).write(dir.path(), "mailer");
    put(dir.path(), "mailer.toml", b"isolation = \"batch\"\n");
    let (plugins, listeners) = start(dir.path(), &cache).await;
    assert_eq!((one(&plugins, "mailer").state, answer(&listeners).await), (PluginState::Serving, Some(2_000)));
}

#[tokio::test]
async fn last_good_version_serves_after_a_deployment_replaced_a_link_to_the_directory() {
    let home = tempfile::tempdir().unwrap();
    let (cache, current) = (home.path().join("cache"), home.path().join("current"));
    let [before, after] = ["41", "42"].map(|release| home.path().join(release));
    for release in [&before, &after] {
        std::fs::create_dir_all(release.join("plugins")).unwrap();
    }
    answering(1_000).write(&before.join("plugins"), "mailer");
    put(&after.join("plugins"), "mailer.wasm", b"broken");
    symlink(&before, &current).unwrap();
    serve_once(&current.join("plugins"), &cache, 1_000).await;

    std::fs::remove_file(&current).unwrap();
    symlink(&after, &current).unwrap();
    let (plugins, listeners) = start(&current.join("plugins/"), &cache).await;

    assert_eq!((one(&plugins, "mailer").state, answer(&listeners).await), (PluginState::ServingOlder, Some(1_000)));
}

#[tokio::test]
async fn a_mended_file_takes_over_from_the_last_good_version() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cache = home.path().join("cache");
    answering(1_000).write(dir.path(), "mailer");
    serve_once(dir.path(), &cache, 1_000).await;
    put(dir.path(), "mailer.wasm", b"broken");
    let (plugins, listeners) = start(dir.path(), &cache).await;
    assert_eq!(answer(&listeners).await, Some(1_000));

    answering(3_000).write(dir.path(), "mailer");
    plugins.rescan().await;
    assert_eq!((one(&plugins, "mailer").error, answer(&listeners).await), (None, Some(3_000)));
}

#[tokio::test]
async fn a_last_good_version_whose_secret_was_away_for_a_while_serves_when_that_is_back() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (cache, token) = (home.path().join("cache"), Arc::new(Mutex::new(Some("secret".to_owned()))));
    let found = token.clone();
    let resolve = Resolve::new(move |_, _| found.lock().unwrap().clone().ok_or_else(|| "it is not set".to_owned()));
    let config = || PluginsConfig {
        cache_dir: Some(cache.clone()),
        resolve: resolve.clone(),
        rescan_interval: Duration::from_millis(500),
        ..config(dir.path())
    };
    answering(1_000).write(dir.path(), "mailer");
    put(dir.path(), "mailer.toml", b"secrets.token = \"${env:OUTBOX_PLUGIN_TOKEN}\"\n");
    let (plugins, listeners) = started(config()).await;
    assert_eq!(answer(&listeners).await, Some(1_000));
    noted(&cache, true).await;
    plugins.stop().await;
    let whole = std::fs::read(dir.path().join("mailer.wasm")).unwrap();
    // Half a component, and no manifest: faults that do not pass.
    for (name, broken) in [("mailer.wasm", &whole[..whole.len() / 2]), ("mailer.toml", b"emit = = \n")] {
        put(dir.path(), "mailer.wasm", &whole);
        put(dir.path(), name, broken);
        *token.lock().unwrap() = None;
        let ((plugins, listeners), lines) = logged(started(config())).await;
        assert_eq!(answer(&listeners).await, None, "{name}: neither the file nor the version before can be loaded");
        assert!(lines.iter().any(|line| line.contains("could not be loaded either")), "{name}: {lines:?}");

        *token.lock().unwrap() = Some("secret".to_owned());
        // While the last good version rests.
        plugins.rescan().await;

        eventually_serves(&listeners, name).await;
        plugins.stop().await;
    }
}

async fn eventually_serves(listeners: &Listeners, why: &str) {
    let serves = async {
        while answer(listeners).await != Some(1_000) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), serves).await.unwrap_or_else(|_| panic!("{why}: it serves within 30 s"));
}

/// Removes what was compiled, as an update of the host does in effect.
fn forget_compiled(cache: &Path) {
    for file in std::fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path()) {
        if file.extension().is_some_and(|end| end == "cwasm") {
            std::fs::remove_file(file).unwrap();
        }
    }
}

#[tokio::test]
async fn a_last_good_version_that_is_compiled_no_more_is_compiled_anew() {
    let garbage = [b"\0asm\x0d\0\x01\0".as_slice(), &[0xa7; 500]].concat();
    for (what, broken) in [("text", b"broken".as_slice()), ("nothing", b""), ("a header and garbage", &garbage)] {
        let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let cache = home.path().join("cache");
        answering(1_000).write(dir.path(), "mailer");
        serve_once(dir.path(), &cache, 1_000).await;
        forget_compiled(&cache);
        put(dir.path(), "mailer.wasm", broken);

        let (plugins, listeners) = start(dir.path(), &cache).await;

        let status = one(&plugins, "mailer");
        assert_eq!((status.state, answer(&listeners).await), (PluginState::ServingOlder, Some(1_000)), "{what}: {status:?}");
        let loads = plugins.loads();
        plugins.rescan().await;
        plugins.look().await;
        assert_eq!((plugins.loads(), answer(&listeners).await), (loads, Some(1_000)), "{what}: it is loaded once");
    }
}

/// A compiler that does not end before the file `go` is there, and makes nothing then.
fn waiting_compiler(go: &Path) -> Compile {
    let text = format!("cat >/dev/null; while ! [ -e '{}' ]; do sleep 0.05; done; exit 7", go.display());
    Compile::Child(ChildCompiler { program: "/bin/sh".into(), arguments: vec!["-c".into(), text.into()] })
}

/// Finds a secret, and takes its time if `takes` is set.
#[derive(Clone, Default)]
struct Token(Arc<Mutex<(Option<String>, Duration)>>, Arc<AtomicUsize>);

impl Token {
    fn set(&self, secret: Option<&str>, takes: Duration) {
        *self.0.lock().unwrap() = (secret.map(str::to_owned), takes);
    }

    /// How many slow searches have begun.
    fn slow(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }

    fn resolve(&self) -> Resolve {
        let token = self.clone();
        Resolve::new(move |_, _| {
            let (secret, takes) = token.0.lock().unwrap().clone();
            token.1.fetch_add(usize::from(takes > Duration::ZERO), Ordering::SeqCst);
            std::thread::sleep(takes);
            secret.ok_or_else(|| "it is not set".to_owned())
        })
    }
}

const TOKEN: &[u8] = b"secrets.token = \"${env:OUTBOX_PLUGIN_TOKEN}\"\n";
/// Longer than a scan waits for a load.
const SLOW: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_last_good_version_that_loads_slowly_beside_another_load_waits_for_its_end() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (cache, go) = (home.path().join("cache"), home.path().join("go"));
    let token = Token::default();
    token.set(Some("secret"), Duration::ZERO);
    let config = PluginsConfig { cache_dir: Some(cache.clone()), resolve: token.resolve(), ..config(dir.path()) };
    answering(1_000).write(dir.path(), "mailer");
    put(dir.path(), "mailer.toml", TOKEN);
    let (plugins, _) = started(config.clone()).await;
    noted(&cache, true).await;
    plugins.stop().await;
    put(dir.path(), "mailer.toml", b"emit = = \n");
    answering(2_000).routes(&[("Order", "OrderPaid")]).write(dir.path(), "another");
    token.set(None, Duration::ZERO);
    let config = PluginsConfig {
        ready_when: ReadyWhen::Cached,
        compile: waiting_compiler(&go),
        rescan_interval: Duration::from_millis(200),
        ..config
    };
    let (plugins, listeners) = started(config).await;
    // Further scans begin only after the other plugin's load has taken the place beside them.
    while plugins.loads() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    token.set(Some("secret"), SLOW);
    while token.slow() == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Begins when the scan that met the slow load has ended.
    plugins.look().await;
    let loads = plugins.loads();
    for _ in 0..3 {
        plugins.look().await;
    }
    assert_eq!((plugins.loads(), answer(&listeners).await), (loads, None), "it waits for the other load");
    std::fs::write(go, "").unwrap();

    eventually_serves(&listeners, "the other load has ended").await;
    plugins.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_compiled_component_that_loads_slowly_beside_another_load_waits_for_its_end() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (cache, go) = (home.path().join("cache"), home.path().join("go"));
    let token = Token::default();
    token.set(Some("secret"), Duration::ZERO);
    let config = PluginsConfig { cache_dir: Some(cache), resolve: token.resolve(), ..config(dir.path()) };
    answering(1_000).write(dir.path(), "mailer");
    put(dir.path(), "mailer.toml", TOKEN);
    started(config.clone()).await.0.stop().await;
    answering(2_000).routes(&[("Order", "OrderPaid")]).write(dir.path(), "another");
    let config = PluginsConfig { ready_when: ReadyWhen::Cached, compile: waiting_compiler(&go), ..config };
    let (plugins, _) = started(config).await;
    // Another plugin takes the place beside the scans.
    while plugins.loads() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    token.set(Some("rotated"), SLOW);
    for _ in 0..3 {
        plugins.look().await;
    }
    assert_eq!(plugins.loads(), 3, "it was begun once, and waits for the other load");
    std::fs::write(go, "").unwrap();

    let swapped = async {
        while one(&plugins, "mailer").details.swaps.len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), swapped).await.expect("it is swapped within 30 s of the other load's end");
    plugins.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_file_and_its_last_good_version_that_both_load_slowly_are_begun_once_beside_another_load() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (cache, go) = (home.path().join("cache"), home.path().join("go"));
    let token = Token::default();
    token.set(Some("secret"), Duration::ZERO);
    let config = PluginsConfig { cache_dir: Some(cache.clone()), resolve: token.resolve(), ..config(dir.path()) };
    answering(1_000).write(dir.path(), "mailer");
    put(dir.path(), "mailer.toml", TOKEN);
    let (plugins, _) = started(config.clone()).await;
    noted(&cache, true).await;
    plugins.stop().await;
    // The new version is compiled, and has never served here.
    let elsewhere = tempfile::tempdir().unwrap();
    for dir in [dir.path(), elsewhere.path()] {
        answering(3_000).write(dir, "mailer");
    }
    started(PluginsConfig { dir: elsewhere.path().to_owned(), ..config.clone() }).await.0.stop().await;
    put(dir.path(), "mailer.toml", b"emit = = \n");
    answering(2_000).routes(&[("Order", "OrderPaid")]).write(dir.path(), "another");
    token.set(None, Duration::ZERO);
    let config = PluginsConfig {
        ready_when: ReadyWhen::Cached,
        compile: waiting_compiler(&go),
        rescan_interval: Duration::from_millis(200),
        ..config
    };
    let (plugins, _) = started(config).await;
    // Further scans begin only after the other plugin's load has taken the place beside them.
    while plugins.loads() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    token.set(Some("secret"), SLOW);
    put(dir.path(), "mailer.toml", TOKEN);
    for _ in 0..2 {
        plugins.look().await;
    }
    let loads = plugins.loads();
    plugins.look().await;

    assert_eq!(plugins.loads(), loads, "both wait for the other load");
    std::fs::write(go, "").unwrap();
    plugins.stop().await;
}

#[tokio::test]
async fn a_last_good_version_whose_route_another_plugin_answers_waits_for_it_and_says_so_once() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cache = home.path().join("cache");
    answering(1_000).write(dir.path(), "mailer");
    serve_once(dir.path(), &cache, 1_000).await;
    put(dir.path(), "mailer.wasm", b"broken");
    // Compiled before, so that both can serve with the first scan.
    let other = tempfile::tempdir().unwrap();
    answering(2_000).write(other.path(), "another");
    start(other.path(), &cache).await.0.stop().await;
    answering(2_000).write(dir.path(), "another");

    let ((plugins, listeners), lines) = logged(async {
        let (plugins, listeners) = start(dir.path(), &cache).await;
        plugins.rescan().await;
        plugins.look().await;
        (plugins, listeners)
    })
    .await;

    assert_eq!(answer(&listeners).await, Some(2_000));
    let status = one(&plugins, "mailer");
    assert_eq!(status.state, PluginState::Failed);
    assert!(status.error.as_deref().is_some_and(|error| error.contains("it is text")), "the file's own fault: {status:?}");
    let told = |text: &str| lines.iter().filter(|line| line.contains("plugin=\"mailer\"") && line.contains(text)).count();
    assert_eq!((told("it is text"), told("is already answered by another")), (1, 1), "{lines:?}");
    answering(2_000).routes(&[("Order", "OrderPaid")]).write(dir.path(), "another");
    plugins.rescan().await;
    assert_eq!((one(&plugins, "mailer").state, answer(&listeners).await), (PluginState::ServingOlder, Some(1_000)));
}

#[tokio::test]
async fn what_must_be_compiled_after_a_restart_is_stood_in_for_by_the_last_good_version() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cache = home.path().join("cache");
    answering(1_000).write(dir.path(), "mailer");
    serve_once(dir.path(), &cache, 1_000).await;
    answering(2_000).write(dir.path(), "mailer");

    let config = PluginsConfig { cache_dir: Some(cache), ready_when: ReadyWhen::Cached, ..config(dir.path()) };
    let (plugins, listeners) = started(config).await;

    assert_eq!(answer(&listeners).await, Some(1_000), "ready at once");
    plugins.rescan().await;
    assert_eq!((one(&plugins, "mailer").state, answer(&listeners).await), (PluginState::Serving, Some(2_000)));
}

#[tokio::test]
async fn a_plugin_that_was_removed_stays_removed() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cache = home.path().join("cache");
    answering(1_000).write(dir.path(), "mailer");
    serve_once(dir.path(), &cache, 1_000).await;
    std::fs::remove_file(dir.path().join("mailer.wasm")).unwrap();
    let (plugins, listeners) = start(dir.path(), &cache).await;
    assert_eq!((plugins.list(), answer(&listeners).await), (Vec::new(), None), "though its host did not see it go");
    plugins.stop().await;

    // And where the host did see it, nothing of it is left for a broken file of that name.
    answering(1_000).write(dir.path(), "mailer");
    answering(5_000).routes(&[("Order", "OrderArchived")]).write(dir.path(), "another");
    let (plugins, _) = start(dir.path(), &cache).await;
    std::fs::remove_file(dir.path().join("another.wasm")).unwrap();
    std::fs::remove_file(dir.path().join("mailer.wasm")).unwrap();
    answering(6_000).routes(&[("Order", "OrderPaid")]).write(dir.path(), "third");
    plugins.rescan().await;
    plugins.stop().await;
    put(dir.path(), "mailer.wasm", b"broken");
    let (plugins, listeners) = start(dir.path(), &cache).await;
    assert_eq!((one(&plugins, "mailer").state, answer(&listeners).await), (PluginState::Failed, None));
}

#[tokio::test]
async fn a_plugin_that_was_removed_while_no_host_ran_leaves_nothing_for_a_broken_file_of_its_name() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cache = home.path().join("cache");
    answering(1_000).write(dir.path(), "mailer");
    serve_once(dir.path(), &cache, 1_000).await;
    std::fs::remove_file(dir.path().join("mailer.wasm")).unwrap();
    let (plugins, _) = start(dir.path(), &cache).await;
    plugins.stop().await;
    put(dir.path(), "mailer.wasm", b"broken");
    let (plugins, listeners) = start(dir.path(), &cache).await;
    assert_eq!(answer(&listeners).await, Some(1_000), "an empty directory may have been one whose volume was away");
    plugins.stop().await;

    std::fs::remove_file(dir.path().join("mailer.wasm")).unwrap();
    answering(5_000).routes(&[("Order", "OrderArchived")]).write(dir.path(), "another");
    let (plugins, _) = start(dir.path(), &cache).await;
    plugins.stop().await;
    put(dir.path(), "mailer.wasm", b"broken");
    let (plugins, listeners) = start(dir.path(), &cache).await;
    assert_eq!((one(&plugins, "mailer").state, answer(&listeners).await), (PluginState::Failed, None));
}

#[tokio::test]
async fn a_version_that_had_rights_which_were_taken_back_does_not_come_back_with_a_restart() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cache = home.path().join("cache");
    answering(1_000).write(dir.path(), "mailer");
    put(dir.path(), "mailer.toml", b"emit = true\n");
    serve_once(dir.path(), &cache, 1_000).await;
    put(dir.path(), "mailer.wasm", b"broken");
    put(dir.path(), "mailer.toml", b"isolation = \"batch\"\n");

    let ((plugins, listeners), lines) = logged(start(dir.path(), &cache)).await;
    assert_eq!((one(&plugins, "mailer").state, answer(&listeners).await), (PluginState::Failed, None));
    let told = |line: &&String| line.contains("its manifest no longer grants emit");
    assert_eq!(lines.iter().filter(told).count(), 1, "{lines:?}");

    put(dir.path(), "mailer.toml", b"emit = true\nisolation = \"batch\"\n");
    plugins.rescan().await;
    assert_eq!((one(&plugins, "mailer").state, answer(&listeners).await), (PluginState::ServingOlder, Some(1_000)));
}

#[test]
fn what_is_kept_of_versions_has_a_bound_and_an_end() {
    let home = tempfile::tempdir().unwrap();
    let private = Arc::new(Private::open(&home.path().join("cache")).unwrap());
    let [ours, theirs] = ["/ours", "/theirs"].map(|dir| LastGood::new(private.clone(), Path::new(dir)));
    let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
    for (good, plugin, digest, since) in
        [(&ours, "a", "a1", 1), (&ours, "a", "a2", 4), (&ours, "b", "b1", 2), (&ours, "b", "b2", 3), (&theirs, "c", "c1", 5)]
    {
        good.keep(digest, &[0; 1_000]);
        good.note(plugin, Version { digest: digest.to_owned(), manifest: None, since: at(since) });
    }
    let now = system_clock().now();
    let kept = |max, now| ours.shrink(ByteSize(max), now).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(kept(100_000, now), "a1 a2 b1 b2 c1");
    assert_eq!(kept(4_500, now), "a2 b1 b2 c1", "the earlier version that has not served for the longest goes");
    assert!(ours.bytes("a1").is_none() && ours.bytes("b1").is_some());
    assert_eq!(kept(0, now), "a2 b2 c1", "the last one of each stays");

    let much_later = Timestamp::from_micros(now.as_micros() + 40 * 24 * 3_600 * 1_000_000);
    assert_eq!(kept(100_000, much_later), "a2 b2", "nobody has looked at the other directory for long");
    assert!(theirs.versions("c").is_empty() && ours.bytes("c1").is_none());
}

#[tokio::test]
async fn the_last_good_version_of_another_directory_is_not_ours() {
    let (dir, other, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cache = home.path().join("cache");
    answering(1_000).write(other.path(), "mailer");
    serve_once(other.path(), &cache, 1_000).await;
    put(dir.path(), "mailer.wasm", b"broken");
    let (plugins, listeners) = start(dir.path(), &cache).await;
    assert_eq!((one(&plugins, "mailer").state, answer(&listeners).await), (PluginState::Failed, None));
}
