//! What is said to somebody who meant something else.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

use crate::commands::ORDER;
use crate::program::{Ended, Place};

#[test]
fn a_mistake_is_told_with_what_was_probably_meant() {
    let place = Place::migrated();
    place.order("dead", "42");
    place.sql("UPDATE outbox_event SET status = 3, due_at = NULL, done_at = 1");

    for (arguments, code, part) in [
        (&["event", "list", "--limit", "abc"][..], 2, "it must be a whole number, at least 1"),
        (&["event", "list", "--limit", "0"], 2, "it must be a whole number, at least 1"),
        (&["event", "show", "1"], 3, "1 looks like a SEQ"),
        (&["event", "why", "1"], 3, "1 looks like a SEQ"),
        (&["event", "list", "--url", "http://127.0.0.1:1/v1"], 2, "give the address without /v1"),
        (&["plugin", "retry", "nope"], 3, "no such plugin"),
        (
            &["event", "emit", "--type", "A", "--payload", "1", "--header", "a=1", "--header", "a=2"],
            2,
            "--header a is given twice",
        ),
        (&["dead", "replay", "--all"], 2, "set 1 dead event back to new and deliver it again"),
    ] {
        let ended = place.run(arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "{arguments:?}: {}", ended.stderr);
    }
    assert!(!place.run(&["event", "show", "nobody"]).stderr.contains("SEQ"));

    let emitted = place.run(&["event", "emit", "--type", "Order/OrderPlaced", "--payload", "{}"]);
    assert_eq!(emitted.code, Some(0), "a type may hold a slash: {}", emitted.stderr);
    assert!(emitted.stderr.contains("was --aggregate-type Order --type OrderPlaced meant?"), "{}", emitted.stderr);
    for (text, hint) in [
        ("[{\"event_type\":\"A\"}]\n", "this is an array; `jq -c '.[]' FILE`"),
        ("{\n}\n", "this line ends inside one; `jq -c . FILE`"),
        ("{\"event_type\":\"A\",\"payload\":1},\n", "remove anything else that follows, such as a comma"),
        (
            "{\"event_type\":\"A\",\"payload\":1}{\"event_type\":\"B\",\"payload\":2}\n",
            "put a second object on a line of its own",
        ),
        ("{\"event_type\":\"A\",\"payload\":\"abc\n", "this line ends inside one"),
    ] {
        fs::write(place.path().join("events.jsonl"), text).expect("written");
        let ended = place.run(&["event", "emit", "--jsonl", "events.jsonl"]);
        assert_eq!(ended.code, Some(2), "as for --payload: {}", ended.stderr);
        assert!(ended.stderr.contains(hint) && ended.stderr.contains("nothing was written"), "{}", ended.stderr);
    }
}

#[test]
fn a_missing_table_is_told_with_the_one_command_that_makes_it() {
    let place = Place::migrated();
    while place.run(&["migrate", "down", "--yes"]).stdout.contains("APPLIED AT") {}
    let flag = format!("--database-url={}", place.url());

    for command in [&["event", "list"][..], &ORDER, &["stats"]] {
        let plain = place.run(command);
        let flagged = place.run(&[command, &[flag.as_str()]].concat());
        assert_eq!((plain.code, flagged.code), (Some(5), Some(5)), "{}{}", plain.stderr, flagged.stderr);
        assert!(plain.stderr.contains("the table outbox_event is not there"), "{}", plain.stderr);
        assert!(!plain.stderr.contains("--migrate"), "{}", plain.stderr);
        for (ended, wanted) in [
            (plain, "`outbox migrate up`".to_owned()),
            (flagged, format!("`outbox migrate up --database-url {}`", place.url())),
        ] {
            assert_eq!(ended.stderr.matches("outbox migrate up").count(), 1, "{}", ended.stderr);
            assert!(ended.stderr.contains(&wanted), "{}", ended.stderr);
        }
    }
}

#[test]
fn in_a_directory_without_a_configuration_it_is_told_where_the_default_was_looked_for() {
    let place = Place::empty();
    fs::create_dir(place.path().join("plugins")).expect("can be made");
    let without_variable = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        command.env_remove("OUTBOX_DATABASE_URL");
        Ended::of(command).stderr
    };
    let file = place.path().join("outbox.db").display().to_string();

    for command in [&["event", "list"][..], &["run", "--listen", "off"]] {
        let said = without_variable(command);
        assert!(said.contains(&file) && said.contains("no outbox.toml is here either"), "{said}");
        assert!(!said.contains("outbox dev"), "{said}");
    }
    fs::write(place.path().join("outbox-dev.db"), "").expect("written");
    let said = without_variable(&["event", "list"]);
    assert!(said.contains("outbox event list --database-url sqlite:outbox-dev.db"), "{said}");
    let named = without_variable(&["event", "list", "--database-url", "sqlite:other.db"]);
    assert!(named.contains("other.db") && !named.contains("no outbox.toml"), "{named}");
}

#[test]
fn a_check_of_the_configuration_warns_of_settings_without_an_effect() {
    let place = Place::migrated();
    let ended = place.run(&[
        "config",
        "check",
        "--set",
        "order.on_dead=skip",
        "--set",
        "retry.policy=jittered",
        "--set",
        "retry.max=1h",
    ]);
    assert_eq!((ended.code, ended.stderr.contains("the configuration is valid")), (Some(0), true), "{}", ended.stderr);
    let warnings = [
        "warning: order.on_dead is set, but the mode is single_node",
        "warning: retry.max is set, but retry.policy is jittered",
    ];
    for warning in warnings {
        assert!(ended.stderr.contains(warning), "{warning}: {}", ended.stderr);
    }
}

#[test]
fn a_check_of_the_configuration_tells_what_a_host_would_miss_of_its_plugins() {
    let place = Place::migrated();
    let required = "plugins.required=[\"order-mailer\", \"mailer\"]";
    // Nothing of this makes a configuration wrong: the directory may be filled after it was checked.
    let check = |more: &[&str]| {
        let ended = place.run(&[&["config", "check", "--set", "plugins.dir=listeners"], more].concat());
        assert_eq!((ended.code, ended.stderr.contains("the configuration is valid")), (Some(0), true), "{}", ended.stderr);
        ended.stderr
    };

    let said = check(&[]);
    assert!(said.contains("the plugins directory listeners does not exist"), "{said}");
    fs::write(place.path().join("listeners"), "").expect("written");
    let said = check(&[]);
    assert!(said.contains("the plugins directory listeners is not a directory"), "{said}");
    fs::remove_file(place.path().join("listeners")).expect("removed");
    fs::create_dir(place.path().join("listeners")).expect("made");
    fs::write(place.path().join("listeners/order-mailer.wasm"), "").expect("written");
    let said = check(&["--set", required]);
    assert!(
        said.contains("names mailer, but listeners holds no mailer.wasm") && !said.contains("no order-mailer.wasm"),
        "{said}"
    );
    let said = check(&["--set", "plugins.ca_file=nowhere.pem"]);
    assert!(said.contains("plugins.ca_file nowhere.pem cannot be read, so no plugin"), "{said}");
    let said = check(&["--set", required, "--set", "mode=writer_only"]);
    assert!(!said.contains("mailer.wasm"), "it needs none: {said}");
}

/// Runs the program without the capabilities by which root may use every file.
fn unprivileged(place: &Place, arguments: &[&str]) -> Ended {
    let command = place.command(arguments);
    if fs::metadata("/proc/self").expect("this is Linux").uid() != 0 {
        return Ended::of(command);
    }
    let mut dropped = Command::new("setpriv");
    dropped.args(["--bounding-set", "-dac_override,-dac_read_search", "--"]).arg(command.get_program());
    dropped.args(command.get_args()).current_dir(place.path()).stdin(Stdio::null());
    dropped.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Ended::of(dropped)
}

#[test]
fn a_user_who_may_not_use_the_file_is_told_whose_it_is_and_what_is_lacking() {
    let place = Place::migrated();
    let mode = |path: &str, mode| {
        fs::set_permissions(place.path().join(path), fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    let us = Command::new("id").arg("-un").output().expect("it runs").stdout;
    let owner = format!("belongs to {}", String::from_utf8(us).expect("a name").trim());
    for (path, shut, open, arguments, lacking) in [
        ("outbox.db", 0o000, 0o600, &["stats"][..], "which may not read it"),
        ("", 0o500, 0o700, &["migrate", "up", "--database-url", "sqlite:new.db"], "which may not make files in it"),
        ("", 0o600, 0o700, &["migrate", "up"], "which may not enter it"),
    ] {
        mode(path, shut);
        let ended = unprivileged(&place, arguments);
        mode(path, open);
        let said = &ended.stderr;
        assert_eq!(ended.code, Some(5), "{arguments:?}: {said}");
        assert!(said.contains(&owner), "{arguments:?}: {said}");
        assert!(said.contains(lacking) && said.contains(&format!("with the mode {shut:03o}")), "{arguments:?}: {said}");
        assert!(said.contains("or give") && said.contains("with chown or chmod"), "{said}");
    }
}
