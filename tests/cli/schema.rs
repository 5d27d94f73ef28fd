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
fn the_schema_is_printed_without_a_database() {
    let place = Place::empty();

    let sql = place.ok(&["migrate", "sql", "--db", "sqlite", "--database-url", "sqlite:nowhere/outbox.db"]);

    assert!(sql.contains("CREATE TABLE outbox_event ("), "{sql}");
    assert!(!place.path().join("outbox.db").exists());
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
