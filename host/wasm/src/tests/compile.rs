//! A compiler in a child process, however it ends. The compilers here are shell scripts: the real one is tried with the program.

use std::sync::Arc;
use std::time::Duration;

use outbox_event::PluginState;

use super::reload::{answering, config, one};
use super::{Engine, Guest, put};
use crate::load::Loader;
use crate::{
    ChildCompiler, Compile, CompileLimits, LoadError, PagemapScan, Plugins, PluginsConfig, ReadyWhen, Resolve, single,
};

fn script(text: &str) -> Compile {
    Compile::Child(ChildCompiler { program: "/bin/sh".into(), arguments: vec!["-c".into(), text.into()] })
}

async fn error(text: &str, limits: CompileLimits) -> LoadError {
    let dir = tempfile::tempdir().unwrap();
    let file = Guest::new("(call $done)").write(dir.path(), "guest");
    let config = PluginsConfig { compile: script(text), compile_limits: limits, ..PluginsConfig::default() };
    match single::check(&file, config, 1).await {
        Ok(_) => panic!("it was compiled"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn each_way_of_dying_is_told() {
    let limits = CompileLimits::default();
    let cases = [
        ("cat >/dev/null; kill -XCPU $$", "used more than 1m of processor time"),
        ("cat >/dev/null; echo 'memory allocation of 64 bytes failed' >&2; kill -ABRT $$", "needed more than 2GiB of memory"),
        ("kill -KILL $$", "was killed, most likely by the kernel"),
        (
            "echo \"thread 'main' has overflowed its stack\" >&2; kill -SEGV $$",
            "crashed (signal 11): thread 'main' has overflowed",
        ),
        ("echo 'went wrong' >&2; exit 7", "failed (exit code 7): went wrong"),
    ];
    for (text, told) in cases {
        let error = error(text, limits).await;
        assert!(matches!(&error, LoadError::Stopped { .. }) && error.to_string().contains(told), "{text}: {error}");
    }
}

#[tokio::test]
async fn a_compiler_that_does_not_end_is_killed_and_may_end_the_next_time() {
    let limits = CompileLimits { wall: Duration::from_millis(50), ..CompileLimits::default() };
    let error = error("cat >/dev/null; exec sleep 1000", limits).await;
    assert!(error.to_string().contains("did not end within 50ms (plugins.compile_limits.wall)"), "{error}");
    assert!(error.may_pass(), "on a busy machine an honest compiler is late");
}

#[tokio::test]
async fn a_compiler_that_is_told_to_end_from_outside_is_no_fault_of_the_component() {
    let error = error("cat >/dev/null; kill -TERM $$; exec sleep 1000", CompileLimits::default()).await;
    assert!(matches!(error, LoadError::Compiler { .. }) && error.may_pass(), "{error}");
    assert!(outbox_event::chain::chain(&error).contains("told to end from outside"), "{}", outbox_event::chain::chain(&error));
}

#[tokio::test]
async fn what_is_no_answer_is_never_taken_for_machine_code() {
    for (text, told) in [
        ("cat >/dev/null", "without an answer"),
        ("cat >/dev/null; printf XYZ", "without an answer"),
        ("cat >/dev/null; printf 'Mnot the same build'", "not the same build"),
        ("cat >/dev/null; printf Cgarbage", ""),
        ("cat", "without an answer"),
        ("yes | head -c 100000", "without an answer"),
    ] {
        let error = error(text, CompileLimits::default()).await;
        assert!(matches!(error, LoadError::Compiler { .. }) && error.may_pass(), "{text}: {error}");
        assert!(outbox_event::chain::chain(&error).contains(told), "{text}: {}", outbox_event::chain::chain(&error));
    }
    let error = error("cat >/dev/null; printf 'Rno such \\033[31minstruction'", CompileLimits::default()).await;
    assert!(matches!(&error, LoadError::Compile { reason, .. } if reason == "no such \\u{1b}[31minstruction"), "{error}");
}

#[tokio::test]
async fn a_compiler_that_is_not_there_is_no_fault_of_the_component() {
    let compile = Compile::Child(ChildCompiler { program: "/nowhere/outbox".into(), arguments: Vec::new() });
    let dir = tempfile::tempdir().unwrap();
    answering(1_000).write(dir.path(), "mailer");
    let config = PluginsConfig { compile, ..config(dir.path()) };
    let plugins = Plugins::start(config, 1, Arc::default()).await.unwrap();
    let status = one(&plugins, "mailer");
    assert_eq!(status.state, PluginState::Failed);
    assert!(status.error.as_ref().is_some_and(|error| error.contains("/nowhere/outbox cannot be started")), "{status:?}");
}

#[tokio::test]
async fn a_plugin_that_is_removed_while_it_is_compiled_keeps_no_other_from_being_unloaded() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = PluginsConfig { cache_dir: Some(home.path().join("cache")), ..config(dir.path()) };
    let remove = |name: &str| std::fs::remove_file(dir.path().join(name)).unwrap();
    answering(1_000).write(dir.path(), "mailer");
    answering(2_000).routes(&[("Order", "OrderPaid")]).write(dir.path(), "payments");
    Plugins::start(config.clone(), 1, Arc::default()).await.unwrap().stop().await;
    let endless = script("cat >/dev/null; exec sleep 1000");
    let config = PluginsConfig { compile: endless, ready_when: ReadyWhen::Cached, ..config };
    answering(3_000).routes(&[("Order", "OrderShipped")]).write(dir.path(), "shipping");
    let plugins = Plugins::start(config, 1, Arc::default()).await.unwrap();
    assert_eq!((one(&plugins, "mailer").state, one(&plugins, "shipping").state), (PluginState::Serving, PluginState::Loading));

    remove("shipping.wasm");
    remove("mailer.wasm");
    plugins.rescan().await;

    assert_eq!(plugins.list().into_iter().map(|status| status.name).collect::<Vec<_>>(), ["payments"]);
    plugins.stop().await;
}

#[tokio::test]
async fn a_new_version_that_waits_for_a_compilation_is_listed_as_pending() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = PluginsConfig { cache_dir: Some(home.path().join("cache")), ..config(dir.path()) };
    // It gives up a route, which what is being compiled may answer.
    let new = answering(2_000);
    let old = answering(1_000).routes(&[("Order", "OrderPlaced"), ("Order", "OrderPaid")]);
    for version in [&new, &old] {
        version.write(dir.path(), "mailer");
        Plugins::start(config.clone(), 1, Arc::default()).await.unwrap().stop().await;
    }
    let endless = script("cat >/dev/null; exec sleep 1000");
    let config = PluginsConfig { compile: endless, ready_when: ReadyWhen::Cached, ..config };
    answering(3_000).routes(&[("Order", "OrderShipped")]).write(dir.path(), "shipping");
    let plugins = Plugins::start(config, 1, Arc::default()).await.unwrap();
    assert_eq!(one(&plugins, "mailer").details.pending, None);

    new.write(dir.path(), "mailer");
    plugins.look().await;

    let status = one(&plugins, "mailer");
    assert_eq!((status.state, status.routes.len()), (PluginState::Serving, 2));
    assert!(status.details.pending.is_some(), "{status:?}");
    std::fs::remove_file(dir.path().join("shipping.wasm")).unwrap();
    plugins.rescan().await;
    let status = one(&plugins, "mailer");
    assert_eq!((status.routes.len(), status.details.pending), (1, None));
    plugins.stop().await;
}

#[tokio::test]
async fn a_repaired_plugin_that_is_being_compiled_is_listed_as_pending() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = PluginsConfig { cache_dir: Some(home.path().join("cache")), ..config(dir.path()) };
    answering(1_000).write(dir.path(), "mailer");
    Plugins::start(config.clone(), 1, Arc::default()).await.unwrap().stop().await;
    let endless = script("cat >/dev/null; exec sleep 1000");
    let config = PluginsConfig { compile: endless, ready_when: ReadyWhen::Cached, ..config };
    let plugins = Plugins::start(config, 1, Arc::default()).await.unwrap();
    put(dir.path(), "mailer.toml", b"emit = = \n");
    plugins.look().await;
    let status = one(&plugins, "mailer");
    assert_eq!((status.error.is_some(), status.details.pending), (true, None));

    answering(2_000).write(dir.path(), "mailer");
    std::fs::remove_file(dir.path().join("mailer.toml")).unwrap();
    plugins.look().await;

    let status = one(&plugins, "mailer");
    assert_eq!(status.state, PluginState::ServingOlder);
    assert_eq!(status.details.pending.as_deref(), Some("the new version is being loaded"));
    plugins.stop().await;
}

#[tokio::test]
async fn a_failed_version_that_comes_back_while_a_newer_one_waits_for_its_compiler_is_not_listed_as_pending() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = PluginsConfig { cache_dir: Some(home.path().join("cache")), ..config(dir.path()) };
    answering(1_000).write(dir.path(), "mailer");
    Plugins::start(config.clone(), 1, Arc::default()).await.unwrap().stop().await;
    let resolve = Resolve::new(|_, _| Err("it is not set".to_owned()));
    let config = PluginsConfig { compile: script("cat >/dev/null; exec sleep 1000"), resolve, ..config };
    let plugins = Plugins::start(config, 1, Arc::default()).await.unwrap();
    // A failure that may pass, so that the load rests.
    put(dir.path(), "mailer.toml", b"[secrets]\ntoken = \"${env:OUTBOX_PLUGIN_TOKEN}\"\n");
    plugins.look().await;
    assert!(one(&plugins, "mailer").error.is_some_and(|error| error.contains("it is not set")));
    // The compiler loads one component at a time.
    answering(3_000).routes(&[("Order", "OrderShipped")]).write(dir.path(), "shipping");
    plugins.look().await;
    answering(2_000).write(dir.path(), "mailer");
    plugins.look().await;
    assert_eq!(one(&plugins, "mailer").details.pending.as_deref(), Some("the new version is being loaded"));

    answering(1_000).write(dir.path(), "mailer");
    plugins.look().await;

    let status = one(&plugins, "mailer");
    assert_eq!((status.state, status.details.pending), (PluginState::ServingOlder, None));
    assert_eq!(one(&plugins, "shipping").state, PluginState::Loading, "the compiler is still busy");
    plugins.stop().await;
}

#[tokio::test]
async fn the_child_is_told_its_limits_and_nothing_of_the_hosts_environment() {
    // `sh -c TEXT A B C` calls them $0, $1 and $2; what it answers comes back as a refusal.
    let text = "cat >/dev/null; printf 'R%s %s %s ' \"$0\" \"$1\" \"$2\"; env | cut -d= -f1 | sort | tr '\\n' ' '";
    let LoadError::Compile { reason, .. } = error(text, CompileLimits::default()).await else { panic!("a refusal") };
    let mut words = reason.split_whitespace();
    assert_eq!(words.next().map(str::len), Some(16), "the engine's hash: {reason}");
    assert_eq!((words.next(), words.next()), (Some("2147483648"), Some("60")));
    let environment: Vec<&str> = words.filter(|name| !["PWD", "SHLVL", "_", "OLDPWD"].contains(name)).collect();
    assert_eq!(environment, ["MALLOC_ARENA_MAX", "RAYON_NUM_THREADS"]);
}

#[test]
fn an_engine_of_any_allocator_compiles_as_one_of_the_childs_does() {
    use crate::engine::compatibility::compatibility;
    let children = crate::engine::compilers().unwrap().map(|engine| compatibility(&engine));
    for scan in [PagemapScan::Auto, PagemapScan::Off] {
        let engine = Engine::new(2, scan).unwrap();
        assert!(children.contains(&compatibility(&engine.wasm)));
        assert!(Loader::bare(engine).quarantined("00").is_none());
    }
}
