//! `outbox state`: the state that plugins keep.

use clap::{Args, Subcommand};
use outbox::Store;
use outbox::event::StateUsage;
use outbox::store::{PluginUsage, StateRecord};
use serde::Serialize;

use crate::audit::Reason;
use crate::config::Config;
use crate::database;
use crate::failure::{Exit, Failure};
use crate::flags::at_least_one;
use crate::output::{self, Format, Output, argument, count, number, relative, short, shown, size};
use crate::plugins::{self, StateQuotaKnown};

/// How many values, or plugins, one statement brings or deletes.
const PAGE: u32 = 500;

#[derive(Subcommand, Debug)]
pub(crate) enum StateCommand {
    /// List the keys that plugins keep, without their values
    #[command(
        after_help = "Examples:\n  outbox state list\n  outbox state list --plugin order-totals --prefix /a --output json"
    )]
    List(List),
    /// Show one value, as text if it is text and in base64 otherwise; --output json always uses base64
    #[command(after_help = "Examples:\n  outbox state get order-totals /ada\n  \
                            outbox state get order-totals /ada --output json | jq -r .value_base64 | base64 -d")]
    Get {
        /// The plugin's name: its file name without .wasm
        plugin: String,
        /// The full key
        #[arg(allow_hyphen_values = true)]
        key: String,
        #[command(flatten)]
        output: Output,
    },
    /// Show how much each plugin keeps, and how much its manifest allows
    #[command(after_help = "Example:\n  outbox state usage --plugin order-totals")]
    Usage {
        /// Only this plugin
        #[arg(long, value_name = "NAME")]
        plugin: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Permanently delete one value of a plugin, or all of them
    ///
    /// Hosts may keep running: a call that read a value before it was deleted is repeated, and does not find it.
    #[command(after_help = "Examples:\n  outbox state delete order-totals /ada --reason 'asked to be forgotten'\n  \
                            outbox state delete order-totals --all --yes")]
    Delete(Delete),
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only values of this plugin
    #[arg(long, value_name = "NAME")]
    plugin: Option<String>,
    /// Only keys that start with this text
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT", allow_hyphen_values = true)]
    prefix: String,
    /// Show at most this many
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = at_least_one::<u32>)]
    limit: u32,
    /// Only values after this one
    #[arg(long, num_args = 2, value_names = ["PLUGIN", "KEY"], allow_hyphen_values = true)]
    after: Option<Vec<String>>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub(crate) struct Delete {
    /// The plugin's name: its file name without .wasm
    plugin: String,
    /// The full key
    #[arg(conflicts_with = "all", allow_hyphen_values = true)]
    key: Option<String>,
    /// Delete everything that the plugin keeps
    #[arg(long)]
    all: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    output: Output,
}

/// A value, whole.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    record: &'a StateRecord,
    value_base64: String,
}

/// How much a plugin keeps of what it may.
#[derive(Serialize)]
struct Used {
    plugin: String,
    used_keys: u64,
    used_bytes: u64,
    /// Whether its manifest lets it keep anything; null where there is no such plugin.
    granted: Option<bool>,
    max_keys: Option<u64>,
    max_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Deleted<'a> {
    plugin: &'a str,
    key: Option<&'a str>,
    count: u64,
}

impl StateCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        match self {
            Self::List(list) => list.run(config).await,
            Self::Get { plugin, key, output } => {
                let store = database::ready(config).await?;
                let Some(record) = store.get_state(&plugin, &key).await? else { return Err(no_value(&plugin, &key)) };
                let value = record.value.as_deref().unwrap_or_default();
                let whole = Whole { record: &record, value_base64: data_encoding::BASE64.encode(value) };
                output::one(&whole, output.output, |_| for_people(&record, value))
            }
            Self::Usage { plugin, output } => usage(plugin, output.output, config).await,
            Self::Delete(delete) => delete.run(config).await,
        }
    }
}

impl List {
    async fn run(self, config: &Config) -> Result<(), Failure> {
        let store = database::ready(config).await?;
        let mut records = self.page(&*store).await?;
        let more = records.len() > usize::try_from(self.limit).unwrap_or(usize::MAX);
        if more {
            records.pop();
        }
        let format = self.output.output;
        output::many(&records, format, |records| if records.is_empty() { String::new() } else { table(records) })?;
        if format == Format::Table {
            let mut plugins: Vec<&str> = records.iter().map(|record| record.plugin.as_str()).collect();
            plugins.dedup();
            for plugin in plugins {
                let usage = store.state_usage(plugin).await?;
                eprintln!("{}", Used::of(PluginUsage { plugin: plugin.to_owned(), usage }, config).sentence());
            }
            if records.is_empty() {
                eprintln!("no plugin has state that matches");
            }
        }
        if let (true, Some(last)) = (more, records.last()) {
            let (plugin, key) = (argument(&last.plugin), argument(&last.key));
            eprintln!("there are more; continue with --after {plugin} {key}, or raise --limit");
        }
        Ok(())
    }

    /// One value more than asked for, if there is one.
    async fn page(&self, store: &dyn Store) -> Result<Vec<StateRecord>, Failure> {
        let after = self.after.as_deref().and_then(|after| Some((after.first()?.as_str(), after.get(1)?.as_str())));
        let most = self.limit.saturating_add(1);
        let mut found = Vec::new();
        let mut plugins = self.plugins(store, None, after).await?;
        while !plugins.is_empty() {
            for plugin in &plugins {
                let after = match after {
                    Some((last, _)) if last > plugin.as_str() => continue,
                    Some((last, key)) => (last == plugin).then_some(key),
                    None => None,
                };
                let left = most.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
                found.extend(store.list_state(plugin, &self.prefix, after, left).await?);
                if found.len() >= usize::try_from(most).unwrap_or(usize::MAX) {
                    return Ok(found);
                }
            }
            plugins = self.plugins(store, plugins.last().map(String::as_str), after).await?;
        }
        Ok(found)
    }

    /// The next plugins to look at, by name.
    async fn plugins(
        &self,
        store: &dyn Store,
        last: Option<&str>,
        after: Option<(&str, &str)>,
    ) -> Result<Vec<String>, Failure> {
        match (last, &self.plugin, after) {
            (None, Some(plugin), _) => Ok(vec![plugin.clone()]),
            (Some(_), Some(_), _) => Ok(Vec::new()),
            (None, None, Some((plugin, _))) => Ok(vec![plugin.to_owned()]),
            (last, None, _) => Ok(store.state_usages(last, PAGE).await?.into_iter().map(|used| used.plugin).collect()),
        }
    }
}

impl Delete {
    async fn run(self, config: &Config) -> Result<(), Failure> {
        let store = database::ready(config).await?;
        let count = match &self.key {
            Some(key) => self.one(&*store, key).await?,
            None if self.all => self.everything(&*store).await?,
            None => {
                let name = shown(&self.plugin);
                let what = format!("no value of {name} is named; give the key of a value, or --all for all values");
                let see = config.flags.command(&format!("outbox state list --plugin {}", argument(&self.plugin)));
                return Err(Failure::new(Exit::Usage, what).details(vec![format!("its keys: {see}")]));
            }
        };
        let deleted = Deleted { plugin: &self.plugin, key: self.key.as_deref(), count };
        output::one(&deleted, self.output.output, |_| format!("{} deleted\n", output::count(count, "value")))
    }

    async fn one(&self, store: &dyn Store, key: &str) -> Result<u64, Failure> {
        // Listed, not read: the question needs the size, not the bytes. A key sorts first among those that begin with it.
        let found = store.list_state(&self.plugin, key, None, 1).await?;
        let Some(record) = found.first().filter(|record| record.key == key) else { return Err(no_value(&self.plugin, key)) };
        let (plugin, size) = (shown(&self.plugin), size(record.value_bytes));
        output::confirm(&format!("delete the value of {plugin} under {} ({size}) for good", shown(key)), self.yes)?;
        if store.delete_state(&self.plugin, key, &self.reason.audit()).await? {
            Ok(1)
        } else {
            Err(no_value(&self.plugin, key))
        }
    }

    async fn everything(&self, store: &dyn Store) -> Result<u64, Failure> {
        let StateUsage { keys, bytes } = store.state_usage(&self.plugin).await?;
        let plugin = shown(&self.plugin);
        if keys == 0 {
            return Err(Failure::new(Exit::NotFound, format!("{plugin} has no state; see `outbox state usage`")));
        }
        let (values, size) = (count(keys, "value"), size(bytes));
        output::confirm(&format!("delete {values} of {plugin} ({size}) for good"), self.yes)?;
        let audit = self.reason.audit();
        let bar = output::progress("deleting", Some(keys));
        let mut deleted = 0;
        loop {
            let batch = store.delete_all_state(&self.plugin, PAGE, &audit).await?;
            deleted += batch;
            bar.set_position(deleted);
            if batch < u64::from(PAGE) {
                bar.finish_and_clear();
                return Ok(deleted);
            }
        }
    }
}

async fn usage(plugin: Option<String>, format: Format, config: &Config) -> Result<(), Failure> {
    let store = database::ready(config).await?;
    let mut used = Vec::new();
    if let Some(plugin) = plugin {
        let usage = store.state_usage(&plugin).await?;
        used.push(Used::of(PluginUsage { plugin, usage }, config));
    } else {
        loop {
            let last = used.last().map(|used: &Used| used.plugin.clone());
            let page = store.state_usages(last.as_deref(), PAGE).await?;
            if page.is_empty() {
                break;
            }
            used.extend(page.into_iter().map(|one| Used::of(one, config)));
        }
    }
    output::many(&used, format, |used| if used.is_empty() { String::new() } else { usage_table(used) })?;
    if used.is_empty() && format == Format::Table {
        eprintln!("no plugin has state");
    }
    Ok(())
}

impl Used {
    fn of(used: PluginUsage, config: &Config) -> Self {
        let PluginUsage { plugin, usage: StateUsage { keys: used_keys, bytes: used_bytes } } = used;
        let (granted, state) = match plugins::state_grant(&plugin, config) {
            StateQuotaKnown::Granted(state) => (Some(true), Some(state)),
            StateQuotaKnown::NotGranted => (Some(false), None),
            StateQuotaKnown::Unknown => (None, None),
        };
        let (max_keys, max_bytes) = state.map(|state| (state.max_keys, state.max_bytes.0)).unzip();
        Self { plugin, used_keys, used_bytes, granted, max_keys, max_bytes }
    }

    fn sentence(&self) -> String {
        let plugin = shown(&self.plugin);
        let (keys, bytes) = (self.used_keys, self.used_bytes);
        if let Some((max_keys, max_bytes)) = self.max_keys.zip(self.max_bytes) {
            let (keys, max_keys) = (number(keys), number(max_keys));
            return format!("{plugin} keeps {keys} of {max_keys} keys and {} of {}", size(bytes), size(max_bytes));
        }
        let why = if self.granted.is_some() {
            "its manifest grants it no state"
        } else {
            "its limit is not known: the plugins directory (--plugins DIR) has no plugin of this name"
        };
        format!("{plugin} keeps {} and {}; {why}", count(keys, "key"), size(bytes))
    }
}

fn usage_table(used: &[Used]) -> String {
    let rows = used.iter().map(|used| {
        let most = |number: Option<u64>, text: fn(u64) -> String| match (number, used.granted) {
            (Some(number), _) => text(number),
            (None, Some(_)) => "none".to_owned(),
            (None, None) => "-".to_owned(),
        };
        let (keys, max_keys) = (number(used.used_keys), most(used.max_keys, number));
        [short(&used.plugin, 48), keys, max_keys, size(used.used_bytes), most(used.max_bytes, size)]
    });
    output::table(&["plugin", ">keys", ">most keys", ">size", ">largest size"], rows)
}

fn table(records: &[StateRecord]) -> String {
    let rows = records.iter().map(|record| {
        [
            short(&record.plugin, 48),
            short(&record.key, 80),
            record.version.to_string(),
            size(record.value_bytes),
            relative(record.updated_at),
        ]
    });
    output::table(&["plugin", "key", ">version", ">size", "updated"], rows)
}

fn for_people(record: &StateRecord, value: &[u8]) -> String {
    let pairs = [
        ("plugin", shown(&record.plugin).into_owned()),
        ("key", shown(&record.key).into_owned()),
        ("version", record.version.to_string()),
        ("updated_at", format!("{} ({})", record.updated_at, relative(record.updated_at))),
        ("value", size(record.value_bytes)),
    ];
    format!("{}\n{}", output::pairs(&pairs), output::bytes_text(value))
}

fn no_value(plugin: &str, key: &str) -> Failure {
    let what = format!("{} has no value under the key {}; see `outbox state list`", shown(plugin), shown(key));
    Failure::new(Exit::NotFound, what)
}
