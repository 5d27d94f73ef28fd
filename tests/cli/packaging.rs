//! `host/packaging`: what it tells the program is what the program takes.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_yaml_ng::Value;

use crate::program::{Ended, Place};

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The program reads these arguments to their end: a word that it does not know is refused before its help is printed.
fn accepts(arguments: &[&str]) {
    let ended = Place::empty().run(&[arguments, &["--help"]].concat());
    assert_eq!(ended.code, Some(0), "outbox {arguments:?}: {}", ended.stderr);
}

/// The documents of `kubernetes.yaml`.
fn kubernetes() -> Vec<Value> {
    let text = file("kubernetes.yaml");
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    documents.map(|document| Value::deserialize(document).unwrap_or_else(|error| panic!("kubernetes.yaml: {error}"))).collect()
}

fn words(list: &Value) -> Vec<&str> {
    let list = list.as_sequence().expect("a list");
    list.iter().map(|word| word.as_str().expect("a text")).collect()
}

#[test]
fn the_program_takes_the_arguments_of_every_container_and_probe() {
    let mut seen = Vec::new();
    for document in kubernetes() {
        let containers = &document["spec"]["template"]["spec"]["containers"];
        for container in containers.as_sequence().into_iter().flatten() {
            let arguments = words(&container["args"]);
            accepts(&arguments);
            seen.push(arguments.join(" "));
            if let Some(probe) = container.get("readinessProbe") {
                let command = words(&probe["exec"]["command"]);
                assert_eq!(command[0], "/usr/bin/outbox");
                accepts(&command[1..]);
                seen.push(command[1..].join(" "));
            }
        }
    }
    assert_eq!(seen, ["migrate up", "run", "migrate status"]);
}

#[test]
fn the_configuration_of_the_deployment_is_valid() {
    let documents = kubernetes();
    let map = documents.iter().find(|document| document["kind"] == "ConfigMap").expect("there is one");
    let place = Place::empty();
    fs::write(place.path().join("outbox.toml"), map["data"]["outbox.toml"].as_str().expect("a text")).expect("written");

    let mut command = place.command(&["config", "check"]);
    command.env_remove("OUTBOX_DATABASE_URL").env("DATABASE_PASSWORD", "p@ss/word");
    let ended = Ended::of(command);

    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn the_unit_and_the_image_start_the_program_as_it_is() {
    let unit = file("outbox.service");
    let setting =
        |name: &str| unit.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}… is set"));
    let start: Vec<&str> = setting("ExecStart=").split_whitespace().collect();
    assert_eq!(start[0], "/usr/bin/outbox");
    accepts(&start[1..]);
    assert_eq!(setting("Type="), "notify", "the program speaks it: see systemd.rs");

    let image = file("Dockerfile");
    let command = image.lines().find_map(|line| line.strip_prefix("CMD ")).expect("it has one");
    let command: Vec<String> = serde_json::from_str(command).expect("a list");
    accepts(&command.iter().map(String::as_str).collect::<Vec<_>>());
}
