//! Values by key, each with the place that set it; later layers win.

mod lines;
mod origin;
mod values;
mod variables;

use std::collections::{BTreeMap, BTreeSet};

use outbox::wording::{Misfit, in_words, nearest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::de::DeTable;
use toml::{Table, Value};

use super::plugins::{MANIFESTS, is_setting};
use lines::Lines;
pub(crate) use origin::Origin;
pub(crate) use values::refusal;
pub(super) use values::{expand, expand_all, mentions};
use values::{first_that_fits, has_reference, is_of_sinks, is_of_tokens, resolved, tokens};
use variables::{Ignored, Variable, variable};

/// A value that a flag sets: key, value, and the flag's name for messages.
#[derive(Clone, Debug)]
pub(crate) struct Override {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) flag: String,
}

impl Override {
    pub(crate) fn new(key: &str, value: impl Into<String>, flag: &str) -> Self {
        Self { key: key.to_owned(), value: value.into(), flag: flag.to_owned() }
    }
}

/// The parts of a key: `["plugins", "mailer", "limits", "fuel"]`. Not one string: a plugin's name may hold a dot.
type Key = Vec<String>;

/// One value and what set it.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    /// As it was written, references and all.
    pub(crate) written: Value,
    pub(crate) origin: Origin,
}

/// All values, by key.
#[derive(Debug)]
pub(crate) struct Layers {
    pub(crate) leaves: BTreeMap<Key, Leaf>,
    known: Vec<String>,
    /// Of the file.
    lines: Lines,
    /// Whether the text of the file has an error.
    has_syntax_error: bool,
    /// Keys that are meant by what is no setting.
    near_keys: Vec<String>,
    /// What was written of settings in whose place others count.
    left_out: Vec<Value>,
    faults: Vec<String>,
    /// Variables that are almost settings, each with what to write instead.
    mistyped: Vec<(String, String)>,
    /// Variables that are no settings, and may be somebody else's.
    ignored: Vec<Ignored>,
}

/// Keys that are absent by default, so that the default configuration does not show them.
const WITHOUT_DEFAULT: [&str; 14] = [
    "database.user",
    "database.password",
    "database.password_command",
    "database.host",
    "database.port",
    "database.name",
    "database.schema",
    "database.max_connections",
    "purge.dead_retention",
    "purge.undelivered_retention",
    "plugins.cache_dir",
    "plugins.files_dir",
    "plugins.lock",
    "plugins.ca_file",
];

impl Layers {
    /// The lowest layer.
    pub(crate) fn new<T: Serialize>(defaults: &T) -> Self {
        let table = Table::try_from(defaults).expect("the default configuration is plain data");
        let mut leaves = BTreeMap::new();
        flatten(&mut Vec::new(), &Value::Table(table), &mut |key, value| {
            // What people name themselves has no default.
            if key != ["plugins", MANIFESTS] && key != ["sinks"] && key != ["routes"] {
                leaves.insert(key.to_vec(), Leaf { written: value.clone(), origin: Origin::Default });
            }
        });
        let known = leaves.keys().map(|key| key.join(".")).chain(WITHOUT_DEFAULT.map(str::to_owned)).collect();
        Self {
            leaves,
            known,
            lines: Lines::default(),
            has_syntax_error: false,
            near_keys: Vec::new(),
            left_out: Vec::new(),
            faults: Vec::new(),
            mistyped: Vec::new(),
            ignored: Vec::new(),
        }
    }

    /// The keys of all settings, those without a default included.
    pub(crate) fn known(&self) -> &[String] {
        &self.known
    }

    /// A file's text. Its faults are kept until [`finish`](Self::finish).
    pub(crate) fn file(&mut self, name: &str, text: &str) {
        let line = |at: usize| 1 + text[..at.min(text.len())].matches('\n').count();
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let at = error.span().map_or(1, |span| line(span.start));
            self.faults.push(format!("{name}:{at}: {}", in_words(error.message())));
        }
        self.has_syntax_error = !errors.is_empty();
        let first_error = errors.iter().filter_map(|error| error.span()).map(|span| line(span.start)).min();
        // Of a text with an error in it, what comes before is checked: better all faults at once than one after another. What comes
        // after may have lost its section.
        let Ok(values) = Table::deserialize(toml::de::Deserializer::from(table.clone())) else { return };
        self.lines = Lines::of(table.get_ref(), &line);
        flatten(&mut Vec::new(), &Value::Table(values), &mut |key, value| {
            let at = self.lines.of_key(key);
            if first_error.is_some_and(|error| at >= error) {
                return;
            }
            self.set(key.to_vec(), value.clone(), Origin::File(name.to_owned(), at));
        });
    }

    /// What of the environment is ours. A variable that is almost a setting is a fault, as in a file: passed over, it would let
    /// a host run on the wrong database. One that may belong to another program is only [told of](Self::warnings).
    pub(crate) fn environment(&mut self, variables: impl Iterator<Item = (String, String)>) {
        let mut ours: Vec<(String, String)> = variables.filter(|(name, _)| name.starts_with("OUTBOX_")).collect();
        ours.sort();
        for (name, value) in ours {
            match variable(&name, &value, &self.known) {
                Variable::Setting(key) => self.set(key, Value::String(value), Origin::Environment(name)),
                Variable::Mistyped(fix) => self.mistyped.push((name, fix)),
                Variable::Ignored(ignored) => self.ignored.push(ignored),
                Variable::Foreign => {}
            }
        }
    }

    /// The variables that are ignored, and to which no setting refers.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &Ignored> {
        self.ignored.iter().filter(|ignored| !self.refers_to(&ignored.variable))
    }

    fn refers_to(&self, variable: &str) -> bool {
        let reference = format!("${{env:{variable}}}");
        let mut written = self.leaves.values().map(|leaf| &leaf.written).chain(&self.left_out);
        written.any(|written| written.to_string().contains(&reference))
    }

    /// One flag.
    pub(crate) fn flag(&mut self, one: &Override) {
        let key = one.key.split('.').map(str::to_owned).collect();
        self.set(key, Value::String(one.value.clone()), Origin::Flag(one.flag.clone()));
    }

    fn set(&mut self, key: Key, written: Value, origin: Origin) {
        let name = key.join(".");
        let of_plugin = key.len() > 1 && key[0] == "plugins" && !is_setting(&key[1]) && (key.len() > 2 || written.is_table());
        let is_named = of_plugin || is_of_sinks(&key) && (key.len() > 2 || written.is_table());
        if is_of_sinks(&key) && key.len() == 1 && written.as_table().is_some_and(Table::is_empty) {
            return; // `[sinks]` with nothing in it.
        }
        if !is_named && !self.known.contains(&name) {
            let section = format!("{name}.");
            let is_section = self.known.iter().any(|known| known.starts_with(&section));
            let fault = if is_section || is_of_sinks(&key) {
                if written.as_table().is_some_and(Table::is_empty) {
                    return; // `[dispatcher]` with nothing in it.
                }
                let name = shown(&key);
                let name = if is_section || key.len() > 1 { name } else { format!("{name}.NAME") };
                format!("{name} is a section, not a value; write [{name}] and its settings below it")
            } else {
                let near = meant(&name, &self.known);
                self.near_keys.extend(near.map(str::to_owned));
                let near = near.map(|near| format!("did you mean {near}?"));
                format!("{name} is not a setting; {}", near.unwrap_or_else(|| "`outbox config show` shows them all".to_owned()))
            };
            self.faults.push(format!("{origin}: {fault}"));
            return;
        }
        self.leaves.insert(key, Leaf { written, origin });
    }

    /// Takes the key for not set when `later` was set by a later layer, which says the same.
    pub(crate) fn leave_out_before(&mut self, key: &str, later: &str) {
        let layer = |key: &str| self.origin(key).map_or(0, Origin::layer);
        if layer(key) < layer(later) {
            let left_out = self.leaves.remove(&key.split('.').map(str::to_owned).collect::<Key>());
            self.left_out.extend(left_out.map(|leaf| leaf.written));
        }
    }

    /// What set this key.
    pub(crate) fn origin(&self, key: &str) -> Option<&Origin> {
        self.leaves.get(&key.split('.').map(str::to_owned).collect::<Key>()).map(|leaf| &leaf.origin)
    }

    /// What set this key, and the text that it set it to; `None` when that is no text.
    pub(crate) fn written(&self, key: &str) -> Option<(&Origin, &str)> {
        let leaf = self.leaves.get(&key.split('.').map(str::to_owned).collect::<Key>())?;
        Some((&leaf.origin, leaf.written.as_str()?))
    }

    /// Whether somebody set this key.
    pub(crate) fn is_set(&self, key: &str) -> bool {
        self.origin(key).is_some_and(|origin| *origin != Origin::Default)
    }

    /// A fault with the place of the first key that it names.
    pub(crate) fn placed(&self, fault: String) -> String {
        let word = fault.split([' ', ':']).next().unwrap_or_default();
        let origin =
            self.origin(word).cloned().or_else(|| self.origin_in_list(word)).or_else(|| self.origin_below(&fault).cloned());
        match origin {
            Some(Origin::Default) | None => fault,
            Some(origin) => format!("{origin}: {fault}"),
        }
    }

    /// What set an entry of a list, such as `http.tokens[1]`, or a field of it.
    fn origin_in_list(&self, entry: &str) -> Option<Origin> {
        let (list, _) = entry.split_once('[')?;
        Some(self.lines.of_entry(self.origin(list)?, entry))
    }

    /// What set the longest key of a sink or relay with which a fault begins, or the first key below it.
    fn origin_below(&self, fault: &str) -> Option<&Origin> {
        let begins = |key: &Key| (2..=key.len()).rev().find(|parts| fault.starts_with(&shown(&key[..*parts])));
        let keys = self.leaves.iter().filter(|(key, _)| is_of_sinks(key));
        let found = keys.filter_map(|(key, leaf)| Some((begins(key)?, key, leaf)));
        // Of several below it the first, which for a file is the one nearest to the name of its section.
        found.max_by_key(|(parts, key, _)| (*parts, std::cmp::Reverse(*key))).map(|(_, _, leaf)| &leaf.origin)
    }

    /// The configuration, and everything that is wrong with the values. Each is tried alone first: so every fault is found, and
    /// belongs to one place.
    pub(crate) fn finish<T: DeserializeOwned>(
        &mut self,
        reference: &dyn Fn(&str, &str) -> Result<String, String>,
    ) -> Finished<T> {
        let mut faults = std::mem::take(&mut self.faults);
        let mistyped = std::mem::take(&mut self.mistyped).into_iter().filter(|(name, _)| !self.refers_to(name));
        faults.extend(mistyped.map(|(name, fix)| format!("{name} is not a setting; {fix}")));
        let mut suspect_keys = std::mem::take(&mut self.near_keys);
        let mut whole = Table::new();
        let (mut unresolved, mut incomplete_sinks) = (Vec::new(), BTreeSet::new());
        for (key, leaf) in &mut self.leaves {
            let found = resolved(key, leaf, reference);
            if let Err(words) = &found
                && let Some(section) = sink_or_plugin(key)
            {
                let name = key.join(".");
                unresolved.push(format!("{}: {name}: {words}", self.lines.of_entry(&leaf.origin, &name)));
                suspect_keys.push(name);
                match section {
                    SinkOrPlugin::Sink(sink) => {
                        incomplete_sinks.insert(sink.to_owned());
                    }
                    // The plugin's loader resolves it again.
                    SinkOrPlugin::Plugin => {
                        if let Ok(written) = first_that_fits::<T>(key, vec![leaf.written.clone()]) {
                            insert(&mut whole, key, written);
                        }
                    }
                }
                continue;
            }
            let found = found.map_err(|words| vec![Misfit { path: String::new(), words }]);
            let (value, misfits) = match found {
                Ok(values) if is_of_tokens(key) => tokens::<T>(key, values),
                Ok(values) => match first_that_fits::<T>(key, values) {
                    Ok(value) => (Some(value), Vec::new()),
                    Err(misfit) => (None, vec![misfit]),
                },
                Err(misfits) => (None, misfits),
            };
            if !misfits.is_empty() {
                suspect_keys.push(key.join("."));
            } else if let Some(value) = value.as_ref().filter(|_| !has_reference(&leaf.written)) {
                // Shown with the type that it turned out to have; a reference stays as it was written.
                leaf.written = value.clone();
            }
            for Misfit { path, words } in misfits {
                let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
                let place = format!("{}{dot}{path}", key.join("."));
                faults.push(format!("{}: {place}: {words}", self.lines.of_entry(&leaf.origin, &place)));
            }
            if let Some(value) = value {
                insert(&mut whole, key, value);
            }
        }
        let config = match whole.clone().try_into() {
            _ if self.has_syntax_error => None,
            Ok(config) => Some(config),
            // What is wrong with one value has been told.
            Err(_) if !faults.is_empty() || !unresolved.is_empty() => None,
            Err(error) => {
                faults.push(Misfit::of::<T>(whole, error.message()).to_string());
                None
            }
        };
        Finished { config, faults, unresolved, incomplete_sinks, suspect_keys }
    }
}

/// What came of all values.
pub(crate) struct Finished<T> {
    /// Values that are wrong have their defaults in it. `None` where that would mislead, as in a file whose text breaks off.
    pub(crate) config: Option<T>,
    /// One text each, with its place.
    pub(crate) faults: Vec<String>,
    /// References of sinks and plugins that lead nowhere, one text each, with its place.
    pub(crate) unresolved: Vec<String>,
    /// The sinks that such references belong to. Their settings lack these values.
    pub(crate) incomplete_sinks: BTreeSet<String>,
    /// The keys whose values are wrong, and those of which a mistyped one is probably meant.
    suspect_keys: Vec<String>,
}

impl<T> Finished<T> {
    /// Whether a fault may come from a value that is wrong, and in whose place the default was looked at.
    pub(crate) fn may_follow(&self, fault: &str) -> bool {
        let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let names = |key: &str| fault.split(|c| !is_key(c)).any(|word| word.trim_end_matches('.') == key);
        self.suspect_keys.iter().any(|key| match key.as_str() {
            // The address decides what the other settings of a database mean.
            "database.url" => fault.starts_with("database."),
            "http.tokens" => fault.contains("no token is configured"),
            key => names(key),
        })
    }
}

/// A section that only commands with sinks or plugins use.
enum SinkOrPlugin<'k> {
    /// The sink with this name.
    Sink(&'k str),
    Plugin,
}

/// The sink or plugin that a key belongs to. `None` for all other keys.
fn sink_or_plugin(key: &[String]) -> Option<SinkOrPlugin<'_>> {
    match key {
        [sinks, name, _, ..] if sinks == "sinks" => Some(SinkOrPlugin::Sink(name)),
        [plugins, name, _, ..] if plugins == "plugins" && !is_setting(name) => Some(SinkOrPlugin::Plugin),
        _ => None,
    }
}

/// Where the value of a key stands in a configuration. Manifests have a place of their own, which people do not write.
fn place(key: &[String]) -> Key {
    let mut key = key.to_vec();
    if key.len() > 1 && key[0] == "plugins" && !is_setting(&key[1]) {
        key.insert(1, MANIFESTS.to_owned());
    }
    key
}

/// Puts a value at its key.
pub(super) fn insert(table: &mut Table, key: &[String], value: Value) {
    let mut key = place(key);
    let last = key.pop().expect("a key has at least one part");
    let mut place = table;
    for part in key {
        let next = place.entry(part).or_insert_with(|| Value::Table(Table::new()));
        if !next.is_table() {
            *next = Value::Table(Table::new());
        }
        place = next.as_table_mut().expect("made one just now");
    }
    place.insert(last, value);
}

fn flatten(key: &mut Key, value: &Value, leaf: &mut dyn FnMut(&[String], &Value)) {
    match value {
        Value::Table(table) if !table.is_empty() => {
            for (part, value) in table {
                key.push(part.clone());
                flatten(key, value, leaf);
                key.pop();
            }
        }
        _ if key.is_empty() => {}
        value => leaf(key, value),
    }
}

/// A key as the faults of sinks and relays name it.
fn shown(key: &[String]) -> String {
    match key {
        [routes, route, rest @ ..] if routes == "routes" => {
            std::iter::once(format!("routes.{route:?}")).chain(rest.iter().cloned()).collect::<Vec<_>>().join(".")
        }
        key => key.join("."),
    }
}

/// The known key that was probably meant: a similar one, or one of this name in another section. A dot and an underscore are
/// the same here, so that a variable's name can be looked for as well.
fn meant<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    let flat: BTreeMap<String, &str> = known.iter().map(|known| (flat(known), known.as_str())).collect();
    let last = name.rsplit('.').next().unwrap_or(name);
    let misplaced = || known.iter().find(|known| known.rsplit('.').next() == Some(last)).map(String::as_str);
    nearest(&self::flat(name), flat.keys().map(String::as_str)).map(|near| flat[near]).or_else(misplaced)
}

/// A key as a variable would have it, had it no double underscores.
fn flat(key: &str) -> String {
    key.replace('.', "_")
}
