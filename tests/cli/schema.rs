//! `outbox init`, `outbox migrate`, and what of `[database]` fits which kind of database.

use crate::program::Place;

#[test]
fn init_writes_a_file_for_each_kind_of_database() {
    let place = Place::empty();

    for kind in ["sqlite", "postgres", "mysql"] {
        let file = format!("{kind}.toml");
        place.ok(&["init", "--db", kind, &file]);
        let text = std::fs::read_to_string(place.path().join(&file)).expect("it was written");
        assert!(text.contains(&format!("url = \"{kind}:")) && text.contains("[dispatcher]"), "{text}");
    }

    place.ok(&["config", "check", "--config", "sqlite.toml"]);
    assert_eq!(place.run(&["init", "sqlite.toml"]).code, Some(7), "a file that is there is not overwritten");
}

#[test]
fn init_refuses_the_flags_that_it_would_not_use() {
    let place = Place::empty();

    for (flags, part) in [
        (&["--database-url", "postgres://db/shop"][..], "does not use --database-url; use --db postgres"),
        (&["--config", "my.toml"], "does not use --config; give only the name of the file: outbox init my.toml"),
        (&["--plugins", "elsewhere"], "does not use --plugins; set plugins.dir in the file"),
        (&["--set", "mode=ordered"], "does not use --set"),
    ] {
        let ended = place.run(&[&["init"], flags].concat());
        assert_eq!(ended.code, Some(2), "{flags:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "{flags:?}: {}", ended.stderr);
    }
    assert_eq!(std::fs::read_dir(place.path()).expect("can be read").count(), 0, "nothing was written");
}

#[test]
fn the_schema_is_printed_without_a_database() {
    let place = Place::empty();

    let sql = place.ok(&["migrate", "sql", "--db", "sqlite", "--database-url", "sqlite:nowhere/outbox.db"]);

    assert!(sql.contains("CREATE TABLE outbox_event ("), "{sql}");
    assert!(!place.path().join("outbox.db").exists());
}

#[test]
fn a_mode_has_its_index_after_migrate_up_and_a_host_without_it_says_so() {
    let place = Place::migrated();
    std::fs::create_dir(place.path().join("plugins")).expect("can be made");
    let sql = |flags: &[&str]| place.ok(&[&["migrate", "sql"], flags].concat());
    const INDEX: &str = "CREATE INDEX outbox_event_open ON outbox_event";
    assert!(!sql(&[]).contains(INDEX) && sql(&["--set", "mode=ordered"]).contains(INDEX));

    let refused = place.run(&["run", "--set", "mode=ordered"]);
    let doctor = place.run(&["doctor", "--set", "mode=ordered"]);

    let fix = "outbox migrate add-index ordered";
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    assert!(refused.stderr.contains(&format!("`{fix}`")), "{}", refused.stderr);
    assert!(doctor.stdout.contains(fix), "{}", doctor.stdout);
    let status = place.run(&["migrate", "status", "--set", "mode=ordered"]);
    assert!(status.code == Some(8) && status.stderr.contains(fix), "{}", status.stderr);
    let migrated = place.run(&["migrate", "up", "--set", "mode=ordered"]);
    assert!(migrated.stderr.contains("the index of the mode ordered was added"), "{}", migrated.stderr);
    assert!(place.run(&["doctor", "--set", "mode=ordered"]).stdout.contains("the index that the mode ordered needs is there"));
    place.ok(&["migrate", "status", "--set", "mode=ordered"]);
    let again = place.run(&["migrate", "add-index", "ordered"]);
    assert!(again.code == Some(0) && again.stderr.contains("is there already"), "{}", again.stderr);
}

#[test]
fn what_does_not_fit_the_database_is_told_and_no_password_is() {
    let place = Place::empty();

    for (set, part) in [
        ("database.schema=app", "SQLite has no schemas"),
        ("database.max_connections=20", "one writer"),
        ("database.url=oracle://app:s3cret@db/shop", "not a database address"),
        ("database.urll=sqlite:x.db", "did you mean database.url?"),
    ] {
        let ended = place.run(&["--set", set, "config", "check"]);
        assert_eq!(ended.code, Some(4), "{set}: {}", ended.stderr);
        assert!(ended.stderr.contains(part) && !ended.stderr.contains("s3cret"), "{set}: {}", ended.stderr);
    }
}

#[test]
fn the_configuration_that_is_shown_is_a_file_that_sets_the_same() {
    let place = Place::empty();
    std::fs::write(place.path().join("password"), "s3cret").expect("can be written");
    // `purge` is left to its defaults, some of which have no effect with this database.
    let written = r#"
mode = "ordered"
[database]
url = "postgres://app@db/shop"
password = "${file:password}"
[dispatcher]
lease = "40s"
[poller]
interval = "1s"
[order]
stop_on_first_failure = false
[retry]
policy = "fixed"
[breaker]
threshold = 3
[metrics]
prefix = "shop"
[plugins]
dir = "served"
[plugins.compile_limits]
memory = "512MiB"
[plugins.quiet]
[plugins."order.mailer".limits]
memory = "16MiB"
[plugins."order.mailer".config]
token = "${file:password}"
[http]
listen = "127.0.0.1:8080"
allowed_hosts = ["shop.example"]
[[http.tokens]]
name = "deploy \"blue\""
role = "operator"
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
[sinks.invoices]
kind = "nats"
url = "nats://127.0.0.1:4222"
user = "app"
password = "${file:password}"
subject = "shop.{aggregate_type}"
[routes."Invoice/*"]
sink = "invoices"
[log]
level = "info,outbox::poller=debug"
"#;
    std::fs::write(place.path().join("written.toml"), written).expect("can be written");
    let without_variable = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        command.env_remove("OUTBOX_DATABASE_URL");
        let ended = crate::program::Ended::of(command);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
        ended.stdout
    };

    let shown = without_variable(&["config", "show", "--config", "written.toml"]);

    let parsed: toml::Table = shown.parse().unwrap_or_else(|error| panic!("it is no TOML: {error}: {shown}"));
    for (section, settings) in written.parse::<toml::Table>().expect("it is TOML") {
        let Some(settings) = settings.as_table() else { continue };
        let named = parsed[&section].as_table().expect("it is a section");
        assert!(settings.keys().all(|key| named.contains_key(key)), "[{section}]: {shown}");
    }
    std::fs::write(place.path().join("shown.toml"), &shown).expect("can be written");
    without_variable(&["config", "check", "--config", "shown.toml"]);
    assert_eq!(without_variable(&["config", "show", "--config", "shown.toml"]), shown, "what it sets is the same");
    assert!(!shown.contains("s3cret") && shown.contains("# workers = "), "{shown}");
    let with_origins = without_variable(&["config", "show", "--config", "written.toml", "--origin"]);
    assert_eq!(with_origins.parse::<toml::Table>().ok(), Some(parsed), "{with_origins}");
}

#[test]
fn a_reset_of_a_test_suite_names_its_database_and_deletes_nothing_without_a_yes() {
    let place = Place::migrated();
    place.order("one", "1");
    place.ok(&["route", "pause", "*/*"]);
    let events = || place.json(&["event", "list", "--output", "json"]).as_array().map(Vec::len);

    let refused = place.run(&["testing", "reset"]);

    assert_eq!((refused.code, events()), (Some(2), Some(1)), "{}", refused.stderr);
    assert!(refused.stderr.contains("outbox.db") && refused.stderr.contains("add --yes"), "{}", refused.stderr);
    let reset = place.run(&["testing", "reset", "--yes"]);
    assert_eq!((reset.code, events()), (Some(0), Some(0)), "{}", reset.stderr);
    assert!(reset.stderr.contains("1 event of outbox_event deleted from sqlite:"), "{}", reset.stderr);
    assert!(reset.stderr.contains("audit records"), "no audit record stays: {}", reset.stderr);
    for list in ["route", "audit"] {
        assert_eq!(place.json(&[list, "list", "--output", "json"]).as_array().map(Vec::len), Some(0), "{list}");
    }
}

#[test]
fn a_reset_of_the_schema_says_before_and_after_that_the_audit_records_go_too() {
    let place = Place::migrated();
    place.ok(&["route", "pause", "*/*"]);
    // The migration that follows a reset is a record too.
    let records = || place.json(&["audit", "list", "--action", "pause", "--output", "json"]).as_array().map(Vec::len);

    let refused = place.run(&["migrate", "reset"]);

    assert_eq!((refused.code, records()), (Some(2), Some(1)), "{}", refused.stderr);
    assert!(refused.stderr.contains("audit records") && refused.stderr.contains("add --yes"), "{}", refused.stderr);
    let reset = place.run(&["migrate", "reset", "--yes"]);
    assert_eq!((reset.code, records()), (Some(0), Some(0)), "{}", reset.stderr);
    assert!(reset.stderr.contains("audit records"), "{}", reset.stderr);
    let audit = place.json(&["audit", "list", "--output", "json"]);
    let reasons: Vec<_> = audit.as_array().expect("a list").iter().map(|record| record["reason"].as_str()).collect();
    assert_eq!(reasons, [Some("reset: all tables were deleted with their events")], "{audit}");
}
