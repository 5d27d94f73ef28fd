//! The configuration: `outbox.toml` < environment < flags. The one room of the program that reads the environment.
//!
//! Each room owns its section; this composes them, finds every fault at once and says where each stands.

mod address;
mod database;
mod environment;
mod flags;
mod kind;
pub(crate) mod layers;
#[cfg(feature = "otel")]
pub(crate) mod otel;
mod plugins;
mod sink_files;
mod sinks;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outbox::Mode;
use outbox::deceptive::argument;
use outbox::dispatcher::DispatcherConfig;
use outbox::listener::{BreakerConfig, Exponential};
use outbox::metrics::MetricsConfig;
use outbox::order::OrderConfig;
use outbox::poller::PollerConfig;
use outbox::purge::PurgeConfig;
use outbox::sink::SinkConfig;
use outbox::units::duration;
use outbox::wasm::{PluginsConfig, ReadyWhen};
use outbox::{RelayConfig, Route};
use outbox_http::HttpConfig;
use serde::{Deserialize, Serialize};

use crate::failure::{Exit, Failure};
use crate::remote::Remote;
use address::ChangingAddress;
pub(crate) use database::DatabaseConfig;
pub(crate) use environment::{cache_dir, reference, rust_log, token, user_called, user_name};
pub(crate) use flags::Flags;
pub(crate) use kind::Kind;
pub(crate) use layers::Override;
use layers::{Layers, Origin};
pub(crate) use outbox::store::hide_password;
pub(crate) use sink_files::SinkFiles;

/// The file that is read when it is there and no other is named.
pub(crate) const FILE: &str = "outbox.toml";

/// Everything that can be set.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) mode: Mode,
    pub(crate) database: DatabaseConfig,
    pub(crate) dispatcher: DispatcherConfig,
    pub(crate) poller: PollerConfig,
    pub(crate) order: OrderConfig,
    pub(crate) retry: RetryConfig,
    pub(crate) breaker: BreakerConfig,
    pub(crate) purge: PurgeConfig,
    pub(crate) metrics: MetricsConfig,
    pub(crate) plugins: PluginsConfig,
    pub(crate) http: HttpConfig,
    /// As they are written: a kind decides what the other keys mean, so that none can be read alone.
    pub(crate) sinks: BTreeMap<String, toml::Value>,
    /// Sinks with a reference that leads nowhere; `sinks` lacks them. Empty for a command that uses sinks.
    #[serde(skip)]
    pub(crate) incomplete_sinks: BTreeSet<String>,
    /// The sinks some of whose settings are in files.
    #[serde(skip)]
    pub(crate) sink_files: Vec<SinkFiles>,
    pub(crate) routes: BTreeMap<String, toml::Value>,
    pub(crate) log: LogConfig,
    #[serde(skip)]
    pub(crate) flags: Flags,
    /// The host of `--url`; `None` for commands that go to the database.
    #[serde(skip)]
    pub(crate) remote: Option<Remote>,
    /// Whether a file was read.
    #[serde(skip)]
    pub(crate) has_file: bool,
}

impl Config {
    /// The sinks, which were checked when the configuration was read.
    pub(crate) fn sinks(&self) -> BTreeMap<String, SinkConfig> {
        sinks::read(&self.sinks).unwrap_or_default()
    }

    /// The relays, which were checked when the configuration was read.
    pub(crate) fn relays(&self) -> Vec<(Route, RelayConfig)> {
        sinks::relays(&self.routes).unwrap_or_default()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            database: DatabaseConfig::default(),
            dispatcher: DispatcherConfig::default(),
            // A program that others write into from their own processes has only its polls to find their events.
            poller: PollerConfig { interval: Duration::from_millis(250), ..PollerConfig::default() },
            order: OrderConfig::default(),
            retry: RetryConfig::default(),
            breaker: BreakerConfig::default(),
            purge: PurgeConfig::default(),
            metrics: MetricsConfig::default(),
            // A component may take half a minute to compile, and the others need not wait for it.
            plugins: PluginsConfig { ready_when: ReadyWhen::Cached, ..PluginsConfig::default() },
            http: HttpConfig::default(),
            sinks: BTreeMap::new(),
            incomplete_sinks: BTreeSet::new(),
            sink_files: Vec::new(),
            routes: BTreeMap::new(),
            log: LogConfig::default(),
            flags: Flags::default(),
            remote: None,
            has_file: false,
        }
    }
}

/// When failed events are tried again.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RetryConfig {
    pub(crate) policy: Policy,
    #[serde(with = "duration")]
    pub(crate) base: Duration,
    #[serde(with = "duration")]
    pub(crate) max: Duration,
}

/// The shape of the rests between attempts.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Policy {
    /// Doubling from `base` to `max`, varied by half either way.
    #[default]
    Exponential,
    /// Always `base`.
    Fixed,
    /// `base`, varied by half either way.
    Jittered,
}

impl Default for RetryConfig {
    fn default() -> Self {
        let Exponential { base, max } = Exponential::default();
        Self { policy: Policy::default(), base, max }
    }
}

/// What is told on stderr, and how.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogConfig {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines, one object a line.
    Json,
}

/// A configuration and where each value of it came from.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) layers: Layers,
    /// The file that was read; `None` when there was none.
    pub(crate) file: Option<PathBuf>,
    /// Whether a flag named the file.
    is_file_a_flag: bool,
}

impl Settings {
    /// Reads everything and checks what the command needs.
    ///
    /// # Errors
    /// All faults together, each with its place.
    pub(crate) fn load(file: Option<&Path>, overrides: &[Override], checks: Checks<'_>) -> Result<Self, Failure> {
        let file = file.map(Path::to_owned);
        let is_file_a_flag = file.is_some();
        #[expect(clippy::disallowed_methods, reason = "part of the one room that reads the environment")]
        let named = file.or_else(|| std::env::var_os("OUTBOX_CONFIG").map(PathBuf::from));
        let file = named.or_else(|| Path::new(FILE).exists().then(|| PathBuf::from(FILE)));
        Self::read(file, is_file_a_flag, overrides, checks)
    }

    /// Those of a command that goes to a host: no file of this machine belongs to it, unless a flag names one.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub(crate) fn of_host(
        file: Option<&Path>,
        overrides: &[Override],
        remote: Remote,
        token: Option<&str>,
    ) -> Result<Self, Failure> {
        let mut settings = Self::read(file.map(Path::to_owned), file.is_some(), overrides, Checks::WITHOUT_SINKS_AND_PLUGINS)?;
        let mut text = format!("{} --url {}", settings.flags(&[]), argument(remote.base()));
        // A token that was typed is repeated nowhere; a reference tells nothing.
        if let Some(reference) = token.filter(|token| token.starts_with("${") && token.find('}') == Some(token.len() - 1)) {
            text.push_str(&format!(" --token {}", argument(reference)));
        }
        settings.config.flags = Flags { text, are_of_host: true };
        settings.config.remote = Some(remote);
        Ok(settings)
    }

    fn read(file: Option<PathBuf>, is_file_a_flag: bool, overrides: &[Override], checks: Checks<'_>) -> Result<Self, Failure> {
        let text = match &file {
            None => None,
            Some(path) => Some(std::fs::read_to_string(path).map_err(|error| {
                let hint = "check the path, or write one with `outbox init`";
                let what = format!("the configuration {} cannot be read; {hint}", path.display());
                Failure::unreadable(what, error, Exit::Config)
            })?),
        };
        // Lossy: a variable that is not ours may hold anything.
        let environment = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
        let name = file.as_ref().map_or_else(|| FILE.to_owned(), |path| path.display().to_string());
        let (config, layers) =
            compose(text.as_deref().map(|text| (name.as_str(), text)), environment, overrides, &reference, checks).map_err(
                |faults| {
                    let what = if faults.len() == 1 { "1 fault".to_owned() } else { format!("{} faults", faults.len()) };
                    Failure::new(Exit::Config, format!("the configuration is not valid ({what})")).details(faults)
                },
            )?;
        let mut settings = Self { config, layers, file, is_file_a_flag };
        if settings.config.database.password_command.is_some()
            && let Some(objection) = settings.file.as_deref().and_then(may_be_written_by_others)
        {
            let what = format!("{name} sets database.password_command, and {objection}");
            return Err(Failure::new(Exit::Config, what));
        }
        settings.config.has_file = settings.file.is_some();
        settings.config.flags = Flags { text: settings.flags(&Flags::KEYS), are_of_host: false };
        Ok(settings)
    }

    /// Whether this setting would be refused beside the others if somebody set it to what it is by default.
    pub(crate) fn would_be_refused(&self, key: &[String]) -> bool {
        let name = key.join(".");
        let faults = |extra: &str| cross_checks(&self.config, &|key| key == extra || self.layers.is_set(key)).len();
        faults(&name) > faults("")
    }

    /// The flags that another command needs to see the same file and the same values of these keys, with a space before each.
    pub(crate) fn flags(&self, keys: &[&str]) -> String {
        let file = self.file.as_ref().filter(|_| self.is_file_a_flag);
        let mut flags = file.map_or_else(String::new, |file| format!(" --config {}", argument(&file.to_string_lossy())));
        for key in keys {
            if let Some((Origin::Flag(flag), value)) = self.layers.written(key) {
                // A command that is printed is read by more people than the one who typed the password.
                let value = hide_password(value);
                // `outbox dev` sets some without a flag.
                let is_of_key = flag.starts_with("--") && flag != "--set";
                let (flag, value) = if is_of_key { (flag.as_str(), value) } else { ("--set", format!("{key}={value}")) };
                flags.push_str(&format!(" {flag} {}", argument(&value)));
            }
        }
        flags
    }
}

/// Why a file that names a program to run is not trusted, and what to do; `None` if only root and this user may write it.
fn may_be_written_by_others(file: &Path) -> Option<String> {
    let found = std::fs::metadata(file).ok()?;
    let (owner, us) = (found.uid(), rustix::process::geteuid().as_raw());
    if owner != 0 && owner != us {
        return Some(format!("it belongs to {}; change its owner to root or to the user of this program", user_called(owner)));
    }
    let by_others = found.mode() & 0o002 != 0 || found.mode() & 0o020 != 0 && found.gid() != owner;
    by_others.then(|| "other users may write to it, and so run programs as this user; run `chmod go-w` on it".to_owned())
}

/// Whether this key holds what nobody may see.
pub(crate) fn is_secret(key: &[String]) -> bool {
    database::is_secret(key) || sinks::is_secret(key)
}

/// The checks that a command needs.
#[derive(Clone, Copy)]
pub(crate) struct Checks<'m> {
    /// Whether the command uses sinks or loads plugins. If not, their references may lead nowhere: an operator need not have the
    /// secrets of a host.
    pub(crate) uses_sinks_or_plugins: bool,
    /// Checks beside the values.
    pub(crate) more: &'m dyn Fn(&Config) -> Vec<String>,
}

impl Checks<'_> {
    /// For a command that uses neither sinks nor plugins.
    pub(crate) const WITHOUT_SINKS_AND_PLUGINS: Checks<'static> =
        Checks { uses_sinks_or_plugins: false, more: &|_| Vec::new() };
    /// For a command that may use all of the configuration.
    pub(crate) const ALL: Checks<'static> = Checks { uses_sinks_or_plugins: true, more: &|_| Vec::new() };
}

/// Puts the layers together; all that is wrong with them.
fn compose(
    file: Option<(&str, &str)>,
    environment: impl Iterator<Item = (String, String)>,
    overrides: &[Override],
    reference: &dyn Fn(&str, &str) -> Result<String, String>,
    checks: Checks<'_>,
) -> Result<(Config, Layers), Vec<String>> {
    let mut layers = Layers::new(&Config::default());
    if let Some((name, text)) = file {
        layers.file(name, text);
    }
    layers.environment(environment);
    for one in overrides {
        layers.flag(one);
    }
    let address = layers.written("database.url").map(|(_, url)| url.to_owned()).unwrap_or_default();
    for part in database::parts_of(&address) {
        layers.leave_out_before(&format!("database.{part}"), "database.url");
        if part == "password" {
            layers.leave_out_before("database.password_command", "database.url");
        }
    }
    // The file of `outbox init` refers to a variable. Whoever gives another address, which may need no password, need not set it.
    let is_unset = |name: &str| reference("env", name).is_err();
    if layers.written("database.password").and_then(|(_, written)| of_variable(written)).is_some_and(is_unset) {
        layers.leave_out_before("database.password", "database.url");
    }
    let mut finished = layers.finish::<Config>(reference);
    // Without a configuration, the other faults are not known: what is known is reported.
    if checks.uses_sinks_or_plugins || finished.config.is_none() {
        finished.faults.append(&mut finished.unresolved);
    }
    let Some(mut config) = finished.config.take() else { return Err(in_order(finished.faults)) };
    let written = |part: &str| layers.written(&format!("database.{part}")).map(|(_, written)| written.to_owned());
    config.incomplete_sinks = std::mem::take(&mut finished.incomplete_sinks);
    if !checks.uses_sinks_or_plugins {
        config.sinks.retain(|name, _| !config.incomplete_sinks.contains(name));
    }
    config.sink_files = SinkFiles::of(&config.sinks, &layers);
    config.database.changing = ChangingAddress::of(&config.database, written).map(|address| Arc::new(address) as _);
    let mut faults = config.database.put_parts_into_url().err().unwrap_or_default();
    faults.extend(cross_checks(&config, &|key| layers.is_set(key)));
    faults.extend((checks.more)(&config));
    faults.retain(|fault| !finished.may_follow(fault));
    finished.faults.extend(faults.into_iter().map(|fault| layers.placed(fault)));
    if finished.faults.is_empty() { Ok((config, layers)) } else { Err(in_order(finished.faults)) }
}

/// The name of the variable that a value consists of.
fn of_variable(written: &str) -> Option<&str> {
    written.strip_prefix("${env:")?.strip_suffix('}')
}

/// In the order of reading: a file from top to bottom.
fn in_order(mut faults: Vec<String>) -> Vec<String> {
    faults.sort_by_cached_key(|fault| fault.split(':').nth(1).and_then(|line| line.parse::<usize>().ok()));
    faults
}

/// A file's settings, as [`Settings::load`] reads them where nothing else is set.
#[cfg(test)]
pub(crate) fn of_text(text: &str) -> Result<(Config, Layers), Vec<String>> {
    compose(Some((FILE, text)), std::iter::empty(), &[], &|_, name| Err(format!("{name} is not there")), Checks::ALL)
}

fn cross_checks(config: &Config, is_set: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut faults = config.dispatcher.faults("dispatcher");
    faults.extend(config.poller.faults("poller"));
    faults.extend(config.breaker.faults("breaker"));
    faults.extend(config.purge.faults("purge"));
    faults.extend(config.metrics.faults("metrics"));
    faults.extend(config.mode.purge_fault(&config.purge, "purge"));
    faults.extend(plugins::faults(&config.plugins));
    faults.extend(config.http.faults("http"));
    faults.extend(sinks::faults(&config.sinks, &config.incomplete_sinks, &config.routes, config.dispatcher.lease));
    faults.extend(config.database.faults(is_set));
    if config.mode == Mode::Ordered {
        let one = [
            ("dispatcher.workers", config.dispatcher.workers != 1),
            ("dispatcher.max_attempts", config.dispatcher.max_attempts != 1),
        ];
        faults.extend(one.into_iter().filter(|(key, other)| *other && is_set(key)).map(|(key, _)| {
            format!("{key} is set, but in the mode ordered it is always 1; leave it out, or choose ordered_by_aggregate")
        }));
    }
    let RetryConfig { policy, base, max } = config.retry;
    if matches!(policy, Policy::Exponential) {
        faults.extend(Exponential { base, max }.fault().map(str::to_owned));
    }
    let retries = config.plugins.manifests.iter().filter_map(|(name, manifest)| Some((name, manifest.retry?.fault()?)));
    faults.extend(retries.map(|(name, fault)| format!("plugins.{name}.{fault}")));
    let level = &config.log.level;
    let hint = "write error, warn, info, debug or trace, or a list like info,outbox::poller=debug";
    if let Err(error) = tracing_subscriber::EnvFilter::try_new(level) {
        faults.push(format!("log.level is `{level}`, which is not a level ({error}); {hint}"));
    } else if let Some(word) = level.split(',').map(str::trim).find(|part| !part.contains(['=', '[']) && !is_level(part)) {
        // Taken for the name of a module, it would silence everything else.
        faults.push(format!("log.level is `{level}`, but `{word}` is not a level; {hint}"));
    }
    faults
}

fn is_level(word: &str) -> bool {
    word.parse::<tracing_subscriber::filter::LevelFilter>().is_ok()
}

#[cfg(test)]
mod tests;
