//! `outbox config`: what is set, and by whom.

mod schema;

use std::collections::BTreeMap;

use clap::{Args, Subcommand, ValueEnum};
use outbox::store::hide_password;
use serde_json::{Map, Value, json};

use crate::config::layers::{Leaf, Origin};
use crate::config::{self, Config, Settings};
use crate::doctor::advice::advice;
use crate::failure::Failure;
use crate::host;
use crate::output;
use crate::plugins;
use crate::telemetry;

#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// Check the configuration, and the manifests and pins of the plugins; exits with 4 when something is wrong
    ///
    /// Warns of settings that have no effect or do not fit together.
    #[command(after_help = "Example:\n  outbox config check --config /etc/outbox.toml")]
    Check,
    /// Print a JSON Schema of outbox.toml, with which editors complete and check it
    #[command(after_help = "Example:\n  outbox config schema > outbox.schema.json\n\n\
                            To use it in most editors, make this the first line of outbox.toml: #:schema ./outbox.schema.json")]
    Schema,
    /// Show every setting, with secrets hidden
    #[command(after_help = "Example:\n  outbox config show --origin\n\n\
                            The output is a configuration file with the same settings. References such as ${env:NAME} are \
                            shown as they are written; *** replaces a secret that is written in the configuration itself. Defaults that have \
                            no effect \
                            with the other settings, and that would be refused if they were set, are commented out.")]
    Show(Show),
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    /// Show where each value comes from
    #[arg(long)]
    origin: bool,
    /// The output format
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    output: Language,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Language {
    /// As a configuration file
    #[default]
    Toml,
    /// As one JSON document
    Json,
}

impl ConfigCommand {
    /// Needs no configuration.
    pub(crate) fn schema() -> Result<(), Failure> {
        output::one(&schema::schema(), output::Format::Json, |_| String::new())
    }

    pub(crate) fn run(self, settings: &Settings) -> Result<(), Failure> {
        match self {
            // Whoever gets here has a valid configuration.
            Self::Check => {
                let from = settings.file.as_ref().map_or_else(
                    || "no outbox.toml here; defaults, environment and flags".to_owned(),
                    |file| format!("{}, environment and flags", file.display()),
                );
                eprintln!("the configuration is valid ({from})");
                for warning in settings.layers.warnings() {
                    eprintln!("warning: {warning}");
                }
                let Settings { config, layers, .. } = settings;
                for finding in advice(config, &config.plugins.manifests, &|key| layers.is_set(key)) {
                    let fix = finding.fix.map_or_else(String::new, |fix| format!("; {fix}"));
                    eprintln!("warning: {}{fix}", output::shown(&finding.found));
                }
                for warning in host::plugins_missing(&settings.config) {
                    eprintln!("warning: {warning}");
                }
                for stray in plugins::strays(&settings.config.plugins.dir) {
                    eprintln!("warning: {}", output::shown(&stray));
                }
                Ok(())
            }
            Self::Schema => Self::schema(),
            Self::Show(Show { origin, output: Language::Toml }) => output::print(&as_toml(settings, origin)),
            Self::Show(Show { origin, output: Language::Json }) => {
                output::one(&as_json(settings, origin), output::Format::Json, |_| String::new())
            }
        }
    }
}

/// Faults beside those of the values, for `config check`: manifests and pins of plugins, and the variables of OpenTelemetry.
pub(crate) fn faults_beside(config: &Config) -> Vec<String> {
    telemetry::faults().into_iter().chain(plugins::manifest_faults(config)).collect()
}

/// What stands in the place of a secret that is written in the configuration itself.
const HIDDEN: &str = "***";

/// A value as it may be shown: no secret and no password, but for a reference to one, which tells nothing.
fn safe(key: &[String], leaf: &Leaf) -> toml::Value {
    let of_plugin = key.first().is_some_and(|first| first == "plugins") && key.iter().any(|part| part == "secrets");
    without_secrets(&leaf.written, of_plugin || config::is_secret(key))
}

fn without_secrets(value: &toml::Value, is_secret: bool) -> toml::Value {
    match value {
        toml::Value::String(text) if is_reference(text) => value.clone(),
        toml::Value::String(text) if !is_secret => toml::Value::String(without_password(text)),
        toml::Value::Array(values) => {
            toml::Value::Array(values.iter().map(|value| without_secrets(value, is_secret)).collect())
        }
        toml::Value::Table(table) => {
            toml::Value::Table(table.iter().map(|(key, value)| (key.clone(), without_secrets(value, is_secret))).collect())
        }
        _ if is_secret => toml::Value::String(HIDDEN.to_owned()),
        other => other.clone(),
    }
}

/// Whether a text is one reference, `${env:NAME}`, and nothing else.
fn is_reference(text: &str) -> bool {
    text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).is_some_and(|inner| !inner.contains(['$', '}']))
}

/// An address without its password, unless that is a reference.
fn without_password(text: &str) -> String {
    let hidden = hide_password(text);
    let is_kept = hidden.split_once(HIDDEN).is_some_and(|(before, after)| {
        text.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)).is_some_and(is_reference)
    });
    if is_kept { text.to_owned() } else { hidden }
}

/// The settings as a file that sets the same, as far as it may be shown.
fn as_toml(settings: &Settings, origin: bool) -> String {
    let leaves = &settings.layers.leaves;
    // An empty section that has got settings from elsewhere is named by them.
    let is_empty = |key: &[String], leaf: &Leaf| {
        leaf.written.is_table() && leaves.keys().any(|other| other.len() > key.len() && other.starts_with(key))
    };
    // A section is written once, and a file's own keys come before its first section.
    let mut sections: BTreeMap<&[String], Vec<String>> = BTreeMap::new();
    for (key, leaf) in leaves.iter().filter(|(key, leaf)| !is_empty(key, leaf)) {
        let (last, parents) = key.split_last().expect("a key has at least one part");
        let mut line = format!("{} = {}", quoted(last), safe(key, leaf));
        if leaf.origin == Origin::Default && settings.would_be_refused(key) {
            line = format!("# {line}");
        }
        if origin {
            line = format!("{line:<44} # {}", leaf.origin);
        }
        sections.entry(parents).or_default().push(line);
    }
    let mut text = String::new();
    for (section, lines) in sections {
        if !section.is_empty() {
            let name: Vec<String> = section.iter().map(|part| quoted(part)).collect();
            text.push_str(&format!("\n[{}]\n", name.join(".")));
        }
        text.extend(lines.into_iter().map(|line| line + "\n"));
    }
    if text.contains(HIDDEN) {
        text.insert_str(0, &format!("# {HIDDEN} replaces a secret that is written in the configuration itself\n"));
    }
    text
}

/// A key as TOML wants it.
fn quoted(key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if bare { key.to_owned() } else { toml::Value::String(key.to_owned()).to_string() }
}

/// The settings nested as in the file; with `origin`, each value is `{"value": …, "origin": …}`.
fn as_json(settings: &Settings, origin: bool) -> Value {
    let mut whole = Map::new();
    for (key, leaf) in &settings.layers.leaves {
        let (last, parents) = key.split_last().expect("a key has at least one part");
        let mut place = &mut whole;
        for part in parents {
            let next = place.entry(part.clone()).or_insert_with(|| json!({}));
            place = next.as_object_mut().expect("a section holds only sections and values");
        }
        let value = serde_json::to_value(safe(key, leaf)).unwrap_or(Value::Null);
        let shown = if origin { json!({ "value": value, "origin": leaf.origin.to_string() }) } else { value };
        place.insert(last.clone(), shown);
    }
    Value::Object(whole)
}
