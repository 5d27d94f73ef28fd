//! The dashboard in a real browser. What is looked at stands in `tests/browser`, in JavaScript; each file there is one test
//! here, against the program that cargo built.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::{python, sample_plugins};

use crate::home::Home;
use crate::program::{Ended, Place, binary};

/// How long one file may take: every step in it has a deadline of its own, and says which it was.
const PATIENCE: Duration = Duration::from_secs(600);

/// What `cargo xtask test` tells of the browser.
#[expect(clippy::disallowed_methods, reason = "tests are configured by cargo xtask test, through the environment")]
fn given(variable: &str) -> std::ffi::OsString {
    std::env::var_os(variable)
        .unwrap_or_else(|| panic!("{variable} must name a part of the browser for tests; `cargo xtask test` installs it"))
}

/// Runs one file of tests; a failure says what the file said.
fn run(file: &str, settings: &[(&str, &str)]) {
    let place = Place::empty();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/browser").join(file);
    let mut node = Command::new(given("OUTBOX_TEST_NODE"));
    node.args(["--test-reporter=spec", "--test-reporter-destination=stdout"]).arg(&file).current_dir(place.path());
    for variable in ["OUTBOX_TEST_BROWSER", "OUTBOX_TEST_CHROMIUM"] {
        node.env(variable, given(variable));
    }
    node.env("OUTBOX_TEST_PROGRAM", binary()).env("OUTBOX_TEST_DIRECTORY", place.path());
    node.env("OUTBOX_TEST_PLUGINS", sample_plugins()).env("OUTBOX_TEST_PYTHON", python().get_program());
    node.envs(settings.iter().copied()).env("NO_COLOR", "1");

    let ended = Ended::within(PATIENCE, node);

    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.stderr);
}

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn every_page_fits_every_screen_and_is_accessible_and_light() {
    run("pages.test.js", &[]);
}

#[test]
fn everything_can_be_done_with_a_mouse_by_keys_and_without_a_script() {
    run("actions.test.js", &[]);
}

#[test]
fn tokens_decide_who_sees_and_does_what() {
    run("tokens.test.js", &[]);
}

#[test]
fn nothing_that_a_writer_wrote_runs() {
    run("hostile.test.js", &[]);
}

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn what_is_wrong_is_seen_at_once() {
    let home = Home::on_postgres();
    run("states.test.js", &[("OUTBOX_TEST_OWN_POSTGRES_URL", home.url())]);
}
