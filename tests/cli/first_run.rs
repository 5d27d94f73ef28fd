//! What somebody meets who has just begun: the commands that the program prints must work as they are printed.

use std::fs;

use serde_json::Value;

use crate::program::{Ended, Host, Place};

/// Something that is wrong, and the first line of what to do about it.
fn faults(place: &Place, doctor: &[&str]) -> Vec<(String, String)> {
    let ended = place.run(&[&["doctor", "--output", "json"], doctor].concat());
    let findings: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("no document: {}", ended.stderr));
    let faults = findings.into_iter().filter(|finding| finding["severity"] == "fault");
    let text = |value: &Value| value.as_str().and_then(|text| text.lines().next()).unwrap_or_default().to_owned();
    faults.map(|finding| (text(&finding["check"]), text(&finding["fix"]))).collect()
}

#[test]
fn what_a_new_place_lacks_is_found_with_commands_that_make_it() {
    for (flags, migrate) in [
        (vec![], "outbox migrate up"),
        (vec!["--database-url", "sqlite:my shop.db"], "outbox migrate up --database-url 'sqlite:my shop.db'"),
        (vec!["--config", "my.toml"], "outbox migrate up --config my.toml"),
    ] {
        let place = Place::empty();
        fs::write(place.path().join("my.toml"), "[plugins]\ndir = \"my plugins\"\n").expect("can be written");
        let dir = if flags.first() == Some(&"--config") { "'my plugins'" } else { "plugins" };

        let lacks = faults(&place, &flags);

        let commands: Vec<&str> = lacks.iter().map(|(_, fix)| fix.as_str()).collect();
        assert_eq!(commands, [&format!("mkdir -p {dir}"), migrate], "{flags:?}");
        for fix in commands {
            let mut shell = place.shell(fix);
            shell.env("OUTBOX_DATABASE_URL", place.url());
            let ended = Ended::of(shell);
            assert_eq!(ended.code, Some(0), "{fix}: {}", ended.stderr);
        }
        assert_eq!(faults(&place, &flags), [], "{flags:?}: what it said has helped");
    }
}

#[test]
fn a_host_that_only_relays_needs_no_plugins_directory_and_is_not_told_to_make_one() {
    let place = Place::migrated();
    let relay = "[sinks.console]\nkind = \"stdout\"\n[routes.\"Order/*\"]\nsink = \"console\"\n";
    fs::write(place.path().join("outbox.toml"), relay).expect("can be written");

    assert_eq!(faults(&place, &[]), []);
}

#[test]
fn what_init_prints_as_next_runs_a_host() {
    for file in [&[][..], &["conf/my outbox.toml"]] {
        let place = Place::empty();
        fs::create_dir(place.path().join("conf")).expect("can be made");
        let mut init = place.command(&[&["init"], file].concat());
        init.env_remove("OUTBOX_DATABASE_URL");
        let said = Ended::of(init).stderr;
        let next = said.lines().find_map(|line| line.strip_prefix("next: ")).unwrap_or_else(|| panic!("no next: {said}"));

        let mut host = Host::of(place.shell(next));

        host.wait_for_line("it says that it is ready", |line| line == "ready");
        host.signal_group("TERM");
        host.end();
        assert!(place.path().join("outbox.db").is_file(), "{next}");
    }
}
