//! Plugins as an operator meets them: what is compiled when, what a manifest may refer to, what is told of a fault.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Instant;

use support::sample_plugins;

use crate::program::{Ended, LOOK_AGAIN, PATIENCE, Place};

/// A place with one good plugin.
fn place() -> Place {
    let place = Place::migrated();
    place.plugin("order-mailer");
    place
}

fn put(place: &Place, name: &str, text: &str) {
    let draft = place.path().join("draft");
    fs::write(&draft, text).expect("can be written");
    fs::rename(draft, place.path().join("plugins").join(name)).expect("can be renamed");
}

/// Runs a command with a cache directory of this place, and a variable that no plugin has any business with.
fn run(place: &Place, arguments: &[&str]) -> Ended {
    let mut command = place.command(arguments);
    command.env("XDG_CACHE_HOME", place.path().join("cache")).env("SHOP_SECRET", "hunter2");
    command.env("OUTBOX_PLUGIN_MAILER__TOKEN", "for plugins");
    Ended::of(command)
}

/// The compiled components of the place's cache, each with the number that changes when it is written anew.
fn compiled(place: &Place) -> Vec<(PathBuf, u64)> {
    let Ok(entries) = fs::read_dir(place.path().join("cache/outbox")) else { return Vec::new() };
    let files = entries.map(|entry| entry.expect("can be read").path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|extension| extension == "cwasm")).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::metadata(path).expect("it is there").ino())).collect()
}

#[test]
fn every_command_uses_what_the_check_compiled() {
    let place = place();

    let checked = run(&place, &["plugin", "check", "plugins/order-mailer.wasm"]);

    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let warmed = compiled(&place);
    assert_eq!(warmed.len(), 1, "the check leaves what it compiled: {warmed:?}");
    for arguments in [&["plugin", "list"][..], &["plugin", "check", "plugins/order-mailer.wasm"], &["doctor"]] {
        let ended = run(&place, arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
        assert_eq!(compiled(&place), warmed, "{arguments:?} compiled again");
    }
    let cache = place.path().join("cache");
    let host = place.host(&[("XDG_CACHE_HOME", cache.to_str().expect("a plain name"))]);
    assert_eq!(compiled(&place), warmed, "the host compiled again");
    drop(host);
}

#[test]
fn a_manifest_beside_a_component_reads_no_secret_of_the_host() {
    let place = place();
    let secret = place.path().join("secret");
    fs::write(&secret, "hunter2\n").expect("can be written");
    for reference in
        ["${env:SHOP_SECRET}".to_owned(), "${env:OUTBOX_DATABASE_URL}".to_owned(), format!("${{file:{}}}", secret.display())]
    {
        put(&place, "order-mailer.toml", &format!("[config]\ntoken = \"{reference}\"\n"));
        let ended = run(&place, &["plugin", "check", "plugins/order-mailer.wasm"]);
        assert_eq!(ended.code, Some(8), "{reference}: {}{}", ended.stdout, ended.stderr);
        assert!(!format!("{}{}", ended.stdout, ended.stderr).contains("hunter2"), "{}", ended.stderr);
        assert!(ended.stderr.contains("[plugins.order-mailer"), "says where it may stand: {}", ended.stderr);
        let listed = run(&place, &["plugin", "list"]);
        assert!(listed.stdout.contains("failed"), "{reference}: {}", listed.stdout);

        fs::remove_file(place.path().join("plugins/order-mailer.toml")).expect("it is there");
        fs::write(place.path().join("outbox.toml"), format!("[plugins.order-mailer.config]\ntoken = \"{reference}\"\n"))
            .expect("can be written");
        let ended = run(&place, &["plugin", "check", "plugins/order-mailer.wasm"]);
        assert_eq!(ended.code, Some(0), "the operator's own file may say {reference}: {}", ended.stderr);
        fs::remove_file(place.path().join("outbox.toml")).expect("it is there");
    }
}

#[test]
fn a_manifest_beside_a_component_may_refer_to_what_is_meant_for_plugins() {
    let place = place();
    let files = place.path().join("for-plugins");
    fs::create_dir(&files).expect("can be made");
    fs::write(files.join("token"), "t\n").expect("can be written");
    fs::write(place.path().join("secret"), "hunter2\n").expect("can be written");
    std::os::unix::fs::symlink(place.path().join("secret"), files.join("link")).expect("can be made");
    let check = |reference: &str| {
        put(&place, "order-mailer.toml", &format!("[config]\ntoken = \"{reference}\"\n"));
        let set = format!("plugins.files_dir={}", files.display());
        run(&place, &["plugin", "check", "plugins/order-mailer.wasm", "--set", &set])
    };

    for fine in ["${env:OUTBOX_PLUGIN_MAILER__TOKEN}", "${file:token}", &format!("${{file:{}/token}}", files.display())] {
        let ended = check(fine);
        assert_eq!(ended.code, Some(0), "{fine}: {}", ended.stderr);
    }
    for (outside, why) in [
        ("${file:../secret}", "outside"),
        ("${file:link}", "outside"),
        ("${file:absent}", "absent"),
        ("${env:OUTBOX_PLUGIN_ABSENT}", "is not set"),
    ] {
        let ended = check(outside);
        assert_eq!(ended.code, Some(8), "{outside}: {}", ended.stdout);
        assert!(ended.stderr.contains(why), "{outside}: {}", ended.stderr);
    }
}

#[test]
fn a_fault_of_a_manifest_is_told_in_lines_that_can_be_read() {
    let place = place();
    put(&place, "order-mailer.toml", "[limits]\nfuel = \n");

    for arguments in [&["plugin", "check", "plugins/order-mailer.wasm"][..], &["plugin", "list"], &["doctor"]] {
        let ended = run(&place, arguments);
        let told = format!("{}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.code, Some(8), "{arguments:?}: {told}");
        assert!(told.contains("order-mailer.toml") && told.contains("line 2"), "{arguments:?}: {told}");
        assert!(!told.contains("\\n"), "{arguments:?}: {told}");
    }
    let said = place.host(&[]).kill();
    assert!(said.iter().any(|line| line.contains("order-mailer.toml") && line.contains("line 2, column ")), "{said:?}");
    let told = said.iter().find(|line| line.contains("the host runs")).expect("it says so before it is ready");
    assert!(told.contains("plugins=0") && told.contains("failed=1"), "{told}");
}

#[test]
fn a_file_that_belongs_to_no_component_is_told_wherever_plugins_are_looked_at() {
    let place = place();
    put(&place, "order_mailer.toml", "isolation = \"strict\"\n");
    fs::write(place.path().join("plugins/other.WASM"), "x").expect("can be written");
    let (manifest, component) = (
        "order_mailer.toml belongs to no component; is it meant for order-mailer.wasm?",
        "other.WASM is not loaded; rename it to other.wasm",
    );

    for arguments in [&["plugin", "list"][..], &["plugin", "check", "plugins"], &["plugin", "lock"], &["doctor"]] {
        let ended = run(&place, arguments);
        let said = ended.stdout + &ended.stderr;
        for what in [manifest, component] {
            assert_eq!(said.matches(what).count(), 1, "{arguments:?}: {said}");
        }
        assert_eq!(ended.code, Some(if arguments == ["doctor"] { 8 } else { 0 }), "{arguments:?}: {said}");
    }
    fs::remove_file(place.path().join("plugins/plugins.lock")).expect("it was written");
    let mut host = place.host(&[("OUTBOX_PLUGINS__RESCAN_INTERVAL", "20ms")]);
    put(&place, "order-mailer.toml", "isolation = \"event\"\n");
    host.wait_until_it_said("the host has looked again", |line| line.contains("serves with another manifest"));
    let said = host.kill();
    for what in [manifest, component] {
        let lines: Vec<_> = said.iter().filter(|line| line.contains(what)).collect();
        assert!(lines.len() == 1 && lines[0].contains("WARN"), "{said:?}");
    }
}

#[test]
fn a_line_that_was_added_below_the_last_table_pins_nothing_and_is_refused() {
    let place = place();
    for (table, line, told) in [
        (
            "config",
            format!("digest = \"{}\"", "0".repeat(64)),
            "`digest` stands below [config], where it would be a setting; move it above",
        ),
        ("config", "isolation = \"strict\"".to_owned(), "`isolation` stands below [config]"),
        ("config", "http.allow = [\"https://example.com\"]".to_owned(), "`http` stands below [config]"),
        ("limits", "state = true".to_owned(), "`state` stands below [limits]; move it above the first [table]"),
    ] {
        put(&place, "order-mailer.toml", &format!("[{table}]\n{line}\n"));

        let ended = run(&place, &["plugin", "check", "plugins/order-mailer.wasm"]);

        assert_eq!(ended.code, Some(8), "{line}: {}", ended.stdout);
        let key = line.split([' ', '.']).next().expect("a line has a key");
        assert!(ended.stderr.contains(&format!("line 2, column 1: {table}.{key}: {told}")), "{line}: {}", ended.stderr);
    }
    let section = place.path().join("outbox.toml");
    fs::write(&section, "[plugins.order-mailer.config]\nstate = \"true\"\n").expect("can be written");
    let ended = run(&place, &["config", "check"]);
    assert_eq!(ended.code, Some(4), "{}", ended.stdout);
    assert!(ended.stderr.contains("`state` stands below [config]"), "{}", ended.stderr);
}

#[test]
fn a_list_with_a_fault_ends_with_8() {
    let place = place();
    assert_eq!(run(&place, &["plugin", "list"]).code, Some(0));
    fs::write(place.path().join("plugins/broken.wasm"), "no component").expect("can be written");

    for format in ["table", "json"] {
        let ended = run(&place, &["plugin", "list", "--output", format]);
        assert_eq!(ended.code, Some(8), "{}", ended.stderr);
        assert!(ended.stdout.contains("order-mailer"), "the list is printed all the same: {}", ended.stdout);
    }
}

#[test]
fn the_check_of_the_configuration_reads_the_manifests_beside_the_components() {
    let place = place();
    assert_eq!(run(&place, &["config", "check", "--plugins", "nowhere"]).code, Some(0), "not every place has plugins");
    put(&place, "order-mailer.toml", "isolation = \"batch\"\n");
    assert_eq!(run(&place, &["config", "check"]).code, Some(0));
    put(&place, "order-mailer.toml", "[limits]\nfule = 3\n");

    let ended = run(&place, &["config", "check"]);

    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    assert!(ended.stderr.contains("order-mailer.toml") && ended.stderr.contains("fule"), "{}", ended.stderr);
    assert_eq!(compiled(&place), [], "and compiles nothing");
}

#[test]
fn the_check_of_the_configuration_finds_what_a_host_would_not_load() {
    let place = place();
    let check = || run(&place, &["config", "check"]);
    let digest = "0".repeat(64);
    for (manifest, part) in [
        (
            "[secrets]\ntoken = \"${env:OUTBOX_PLUGIN_ABSENT}\"\n",
            "secrets.token of order-mailer.toml has no value: ${env:OUTBOX_PLUGIN_ABSENT}",
        ),
        ("[config]\ntoken = \"${env:SHOP_SECRET}\"\n", "may not read the variable SHOP_SECRET"),
        ("[publish]\nsinks = [\"orders\"]\n", "names the sink `orders`, and this host has no sinks"),
        (format!("digest = \"{digest}\"\n").as_str(), format!("asks for {digest}").as_str()),
    ] {
        put(&place, "order-mailer.toml", manifest);
        let ended = check();
        assert_eq!(ended.code, Some(4), "{manifest}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "{manifest}: {}", ended.stderr);
        let writer = run(&place, &["config", "check", "--set", "mode=writer_only"]);
        assert_eq!(writer.code, Some(0), "it loads no plugin: {}", writer.stderr);
    }

    put(&place, "order-mailer.toml", "[config]\ntoken = \"${env:OUTBOX_PLUGIN_MAILER__TOKEN}\"\n");
    assert_eq!(check().code, Some(0), "{}", check().stderr);
    let strict = run(&place, &["config", "check", "--set", "plugins.strict=true"]);
    assert!(strict.code == Some(4) && strict.stderr.contains("order-mailer is not pinned"), "{}", strict.stderr);
    assert_eq!(run(&place, &["plugin", "lock"]).code, Some(0));
    assert_eq!(check().code, Some(0), "{}", check().stderr);
    put(&place, "order-mailer.toml", "isolation = \"batch\"\n");
    let pinned = check();
    assert!(
        pinned.code == Some(4) && pinned.stderr.contains("the manifest of order-mailer has the digest"),
        "{}",
        pinned.stderr
    );

    fs::remove_file(place.path().join("plugins/plugins.lock")).expect("it is there");
    put(&place, "order-mailr.toml", "isolation = \"batch\"\n");
    let stray = check();
    assert_eq!(stray.code, Some(0), "{}", stray.stderr);
    assert!(stray.stderr.contains("warning: order-mailr.toml belongs to no component"), "{}", stray.stderr);
    assert_eq!(compiled(&place), [], "and compiles nothing");
}

#[test]
fn settings_that_are_missing_are_told_once_with_the_file_to_write() {
    let place = place();
    place.plugin("order-webhook");

    for arguments in [&["plugin", "list"][..], &["plugin", "check", "plugins"], &["doctor"]] {
        let ended = run(&place, arguments);
        let said = ended.stdout + &ended.stderr;
        assert_eq!(ended.code, Some(8), "{arguments:?}: {said}");
        assert_eq!(said.matches("does not accept its settings").count(), 1, "{arguments:?}: {said}");
        assert!(said.contains("it has no manifest yet: write plugins/order-webhook.toml"), "{arguments:?}: {said}");
        assert!(!said.contains("ERROR"), "what is told on the page is not logged beside it: {arguments:?}: {said}");
    }
    put(&place, "order-webhook.toml", "[config]\nendpont = \"https://hooks.example.com\"\n");
    let checked = run(&place, &["plugin", "check", "plugins/order-webhook.wasm"]);
    assert!(checked.stderr.contains("its manifest is plugins/order-webhook.toml"), "{}", checked.stderr);
}

/// Looks until a running host has told that the plugin serves: a host is ready before it has compiled everything.
fn wait_until_it_serves(place: &Place) {
    let started = Instant::now();
    let listed = || serde_json::from_str::<serde_json::Value>(&run(place, &["plugin", "list", "--output", "json"]).stdout);
    while !listed().is_ok_and(|list| list[0]["host"].is_string() && list[0]["state"] == "serving") {
        assert!(started.elapsed() < PATIENCE, "expected within {PATIENCE:?}: a host serves the plugin");
        std::thread::sleep(LOOK_AGAIN);
    }
}

#[test]
fn a_directory_with_a_broken_manifest_is_refused_and_never_called_unchanged() {
    let place = place();
    let alone = run(&place, &["plugin", "check", "plugins"]);
    assert_eq!(alone.code, Some(0), "{}{}", alone.stdout, alone.stderr);
    assert!(alone.stdout.contains("added") && alone.stderr.contains("nothing to compare"), "{}{}", alone.stdout, alone.stderr);
    let cache = place.path().join("cache");
    let host = place.host(&[("XDG_CACHE_HOME", cache.to_str().expect("a plain name"))]);
    wait_until_it_serves(&place);
    let same = run(&place, &["plugin", "check", "plugins"]);
    assert!(same.stdout.contains("unchanged"), "{}", same.stdout);

    put(&place, "order-mailer.toml", "isolation = \"thread\"\n");
    let broken = run(&place, &["plugin", "check", "plugins"]);

    assert_eq!(broken.code, Some(8), "{}", broken.stderr);
    let row = broken.stdout.lines().find(|line| line.starts_with("order-mailer ")).unwrap_or_default();
    assert!(row.contains(" refused ") && row.contains(" keeps serving"), "{}", broken.stdout);
    assert!(broken.stdout.contains("order-mailer.toml is not valid"), "{}", broken.stdout);
    drop(host);
    let listed = run(&place, &["plugin", "list", "--here"]);
    assert_eq!(listed.code, Some(8));
    assert!(listed.stdout.contains("would serve an older version"), "nothing serves now: {}", listed.stdout);
}

#[test]
fn a_rollback_of_a_pinned_plugin_changes_nothing_until_it_may_pin_it_anew() {
    let place = place();
    let cache = place.path().join("cache");
    let host = place.host(&[("XDG_CACHE_HOME", cache.to_str().expect("a plain name"))]);
    wait_until_it_serves(&place);
    let file = place.path().join("plugins/order-mailer.wasm");
    let first = fs::read(&file).expect("can be read");
    fs::copy(sample_plugins().join("noop.wasm"), place.path().join("draft")).expect("can be copied");
    fs::rename(place.path().join("draft"), &file).expect("can be renamed");
    let second = fs::read(&file).expect("can be read");
    assert_eq!(run(&place, &["plugin", "lock"]).code, Some(0));
    let lock = fs::read(place.path().join("plugins/plugins.lock")).expect("it was written");

    let refused = run(&place, &["plugin", "rollback", "order-mailer"]);

    assert_eq!(refused.code, Some(7), "{}", refused.stderr);
    assert!(refused.stderr.contains("outbox plugin rollback order-mailer --lock"), "{}", refused.stderr);
    assert!(fs::read(&file).expect("it is there") == second, "the file has changed");
    assert!(fs::read(place.path().join("plugins/plugins.lock")).expect("it is there") == lock, "the pins have changed");
    let done = run(&place, &["plugin", "rollback", "order-mailer", "--lock"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(fs::read(&file).expect("it is there") == first, "the version before lies there again");
    assert_eq!(
        run(&place, &["plugin", "list", "--here", "--set", "plugins.strict=true"]).code,
        Some(0),
        "and is what is pinned"
    );
    drop(host);
}
