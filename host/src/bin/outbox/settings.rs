//! `outbox config`: what is set, and by whom.

mod schema;

use clap::{Args, Subcommand, ValueEnum};
use outbox::store::hide_password;
use serde_json::{Map, Value, json};

use crate::config::layers::Leaf;
use crate::config::{self, Settings};
use crate::failure::{Exit, Failure};
use crate::output;
use crate::plugins;

#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// Check the configuration and the manifests of the plugins; exits with 4 when something is wrong
    #[command(after_help = "Example:\n  outbox config check --config /etc/outbox.toml")]
    Check,
    /// Print a JSON Schema of outbox.toml, with which editors complete and check it
    #[command(after_help = "Example:\n  outbox config schema > outbox.schema.json\n\n\
                            To use it in most editors, make this the first line of outbox.toml: #:schema ./outbox.schema.json")]
    Schema,
    /// Show every setting, with secrets hidden
    #[command(after_help = "Example:\n  outbox config show --origin")]
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
            // Whoever gets here has a valid configuration; the manifests beside the components have not been read.
            Self::Check => {
                config::otel::telemetry()?;
                let faults = plugins::manifest_faults(&settings.config);
                if !faults.is_empty() {
                    let dir = settings.config.plugins.dir.display();
                    let what = match faults.len() {
                        1 => format!("1 manifest in {dir} is not valid; the rest of the configuration is"),
                        many => format!("{many} manifests in {dir} are not valid; the rest of the configuration is"),
                    };
                    return Err(Failure::new(Exit::Config, what).details(faults));
                }
                let from = settings.file.as_ref().map_or_else(
                    || "no outbox.toml here; defaults, environment and flags".to_owned(),
                    |file| format!("{}, environment and flags", file.display()),
                );
                eprintln!("the configuration is valid ({from})");
                for warning in settings.layers.warnings() {
                    eprintln!("warning: {warning}");
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

/// A value as it may be shown: nothing that came from a secret, no password.
fn safe(key: &[String], leaf: &Leaf) -> toml::Value {
    let of_plugin = key.first().is_some_and(|first| first == "plugins") && key.iter().any(|part| part == "secrets");
    if of_plugin || config::is_secret(key) {
        return toml::Value::String("***".to_owned());
    }
    without_secrets(&leaf.written)
}

fn without_secrets(value: &toml::Value) -> toml::Value {
    match value {
        toml::Value::String(text) if text.contains("${") => toml::Value::String("***".to_owned()),
        toml::Value::String(text) => toml::Value::String(hide_password(text)),
        toml::Value::Array(values) => toml::Value::Array(values.iter().map(without_secrets).collect()),
        other => other.clone(),
    }
}

fn as_toml(settings: &Settings, origin: bool) -> String {
    let mut text = String::new();
    let mut section: &[String] = &[];
    // A file's own keys come before its first section.
    let (top, rest): (Vec<_>, Vec<_>) = settings.layers.leaves.iter().partition(|(key, _)| key.len() == 1);
    for (key, leaf) in top.into_iter().chain(rest) {
        let (last, parents) = key.split_last().expect("a key has at least one part");
        if parents != section {
            let name: Vec<String> = parents.iter().map(|part| quoted(part)).collect();
            text.push_str(&format!("\n[{}]\n", name.join(".")));
            section = parents;
        }
        let line = format!("{} = {}", quoted(last), safe(key, leaf));
        if origin {
            text.push_str(&format!("{line:<44} # {}\n", leaf.origin));
        } else {
            text.push_str(&format!("{line}\n"));
        }
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
