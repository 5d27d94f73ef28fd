//! The steps that `outbox plugin new` prints, as one script, beside a host that serves another plugin already.

use std::os::unix::fs::symlink;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::commands::ORDER;
use crate::program::{LOOK_AGAIN, Place};
use crate::project::{PACKAGES, building, ended, kept};

/// How long the host may compile the component: it finds nothing in its cache, and components of some languages are large.
const LONG: Duration = Duration::from_secs(600);

/// Runs the steps that are printed for a project in this language. The event of the last step comes before the host has loaded the
/// plugin: it waits, and is delivered.
pub(crate) fn delivers_by_the_printed_steps(language: &str) {
    let place = Place::migrated();
    let cache = place.path().join("cache-of-the-host");
    let host = place.host(&[("XDG_CACHE_HOME", cache.to_str().expect("a plain name"))]);
    place.ok(&ORDER);
    place.wait_for("done", 1);
    let printed = place.ok(&["plugin", "new", "greeter", "--lang", language, "--route", "User/UserRegistered"]);
    link_toolchain(&place, language);

    let event = run(&place, &steps(&place, &printed));

    let started = Instant::now();
    loop {
        let why = place.json(&["event", "why", &event, "--output", "json"]);
        match why["state"].as_str() {
            Some("done") => break,
            Some("dead") => panic!("{language}: {why}"),
            // A host may claim it for a moment.
            Some("claimed") => {}
            // Read later: until then, no host had a listener.
            _ if !has_listener(&place) => {
                let sentence = why["sentence"].as_str().unwrap_or_default();
                assert!(sentence.contains("listener") && sentence.contains("User/UserRegistered"), "{language}: {why}");
            }
            _ => {}
        }
        assert!(started.elapsed() < LONG, "{language}: expected within {LONG:?}: the event is delivered: {why}");
        thread::sleep(LOOK_AGAIN);
    }
    drop(host);
}

/// The printed commands as one script, with the plugins directory of the host. Without the command that installs the toolchain, which
/// is there, and without `outbox plugin dev`, which does not end.
fn steps(place: &Place, printed: &str) -> String {
    let (_, next) = printed.split_once("\nnext:\n").unwrap_or_else(|| panic!("no steps: {printed}"));
    let is_step = |line: &&str| {
        ["cd ", "cp ", "outbox "].iter().any(|start| line.starts_with(start)) && !line.starts_with("outbox plugin dev")
    };
    let steps: Vec<&str> = next.lines().map(str::trim_start).filter(is_step).collect();
    assert_eq!(steps.len(), 6, "{printed}");
    assert!(steps[5].starts_with("outbox event emit "), "{printed}");
    let plugins = place.path().join("plugins");
    format!("set -e\n{}\n", steps.join("\n").replace("/path/to/plugins", &format!("'{}'", plugins.display())))
}

/// Runs the script. Returns the ID of the event that it wrote.
fn run(place: &Place, script: &str) -> String {
    let mut command = place.shell(script);
    command.env("OUTBOX_DATABASE_URL", place.url());
    building(place, &mut command);
    let ended = ended(command);
    assert_eq!(ended.code, Some(0), "{script}: {}{}", ended.stdout, ended.stderr);
    let event = ended.stdout.lines().last().unwrap_or_default();
    assert!(!event.is_empty(), "{script}: {}", ended.stderr);
    event.to_owned()
}

/// Whether the database knows that a host has had a listener for the route of the project.
fn has_listener(place: &Place) -> bool {
    let routes = place.json(&["route", "list", "--output", "json"]);
    let is_it = |route: &Value| route["event_type"] == "UserRegistered" && !route["first_seen_at"].is_null();
    routes.as_array().is_some_and(|routes| routes.iter().any(is_it))
}

/// Puts the toolchain where the project's setup command would put it.
fn link_toolchain(place: &Place, language: &str) {
    let project = place.path().join("greeter");
    let (kept, link) = match language {
        "rust" => return,
        "js" | "ts" => (kept(PACKAGES), "node_modules"),
        "python" => (kept("python"), ".venv"),
        _ => (kept("toolchains"), ".venv"),
    };
    symlink(kept, project.join(link)).expect("can be made");
}
