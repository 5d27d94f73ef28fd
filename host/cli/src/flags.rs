//! The flags of every command, and what they set.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use crate::config::{self, Override, Settings};
use crate::failure::{Exit, Failure};
use crate::remote::Remote;

/// Flags of every command.
#[derive(Args, Debug)]
#[command(next_help_heading = "Settings")]
pub(crate) struct Global {
    /// The configuration file; default outbox.toml if it exists [env: OUTBOX_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The database: sqlite:outbox.db, postgres://user@host/database, mysql://user@host/database [env: OUTBOX_DATABASE_URL]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) database_url: Option<String>,
    /// Ask a running host over HTTP instead of the database, like http://127.0.0.1:8080
    #[arg(long, global = true, value_name = "URL", conflicts_with = "database_url")]
    pub(crate) url: Option<String>,
    /// The token for --url: ${file:PATH} or ${env:NAME}, so that no list of processes shows it [env: OUTBOX_TOKEN]
    #[arg(long, global = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// The plugins directory
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) plugins: Option<String>,
    /// The log level: error, warn, info, debug, trace, or a list by module [env: OUTBOX_LOG, else RUST_LOG]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log: Option<String>,
    /// Log more: -v for debug, -vv for trace
    #[arg(long, short, global = true, action = ArgAction::Count, conflicts_with = "log")]
    pub(crate) verbose: u8,
    /// When to use colours; auto follows NO_COLOR, CLICOLOR_FORCE and TERM, and uses none when the output is not a terminal
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: clap::ColorChoice,
    /// Set any configuration key, like --set poller.interval=1s; may be repeated
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

// Flags of the host. No doc comment: it would become the help of the commands that take them.
#[derive(Args, Debug)]
#[command(next_help_heading = "Host")]
pub(crate) struct HostArgs {
    /// How the host delivers events: single_node, multi_node, ordered, ordered_by_aggregate, writer_only
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// How many events are delivered at the same time
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<String>,
    /// Load only plugins that `outbox plugin lock` has pinned
    #[arg(long)]
    pub(crate) strict: bool,
    /// Serve the HTTP API on this address, such as 127.0.0.1:8080; `off` for none
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
}

/// What the flags set. `host` are those of a command that starts a host; `defaults` come before all of them.
pub(crate) fn overrides(global: &Global, host: Option<&HostArgs>, defaults: Vec<Override>) -> Result<Vec<Override>, Failure> {
    let mut overrides = defaults;
    for set in &global.set {
        let Some((key, value)) = set.split_once('=') else {
            // The rest may be a secret.
            let key: String = set.chars().take_while(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).collect();
            return Err(Failure::new(Exit::Usage, format!("--set {key} has no `=`; write it like --set poller.interval=1s")));
        };
        overrides.push(Override::new(key.trim(), value.trim(), "--set"));
    }
    let level = match global.verbose {
        0 => global.log.clone(),
        1 => Some("debug".to_owned()),
        _ => Some("trace".to_owned()),
    };
    let flags = [
        ("database.url", "--database-url", global.database_url.clone()),
        ("plugins.dir", "--plugins", global.plugins.clone()),
        ("log.level", if global.verbose > 0 { "-v" } else { "--log" }, level),
        ("mode", "--mode", host.and_then(|host| host.mode.clone())),
        ("plugins.strict", "--strict", host.and_then(|host| host.strict.then(|| "true".to_owned()))),
        ("dispatcher.workers", "--workers", host.and_then(|host| host.workers.clone())),
        ("http.listen", "--listen", host.and_then(|host| host.listen.clone())),
    ];
    overrides.extend(flags.into_iter().filter_map(|(key, flag, value)| Some(Override::new(key, value?, flag))));
    Ok(overrides)
}

/// A whole number of something, at least one.
pub(crate) fn at_least_one<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let not_a_count = || "it must be a whole number, at least 1".to_owned();
    let digits = text.trim().trim_start_matches('+');
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(not_a_count());
    }
    match digits.parse().map(|number: u64| (number, T::try_from(number))) {
        Ok((0, _)) => Err(not_a_count()),
        Ok((_, Ok(number))) => Ok(number),
        _ => Err("it is too large".to_owned()),
    }
}

impl Global {
    /// The settings of a command that goes to the host of `--url`.
    ///
    /// # Errors
    /// When the address, the token or a setting is not valid.
    pub(crate) fn settings_of_host(&self, url: &str, overrides: &[Override]) -> Result<Settings, Failure> {
        let remote = Remote::new(url, config::token(self.token.as_deref())?)?;
        Settings::of_host(self.config.as_deref(), overrides, remote, self.token.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn flags_of_the_host_become_settings() {
        let cli = crate::Cli::parse_from([
            "outbox",
            "run",
            "--workers",
            "8",
            "--database-url",
            "sqlite:x.db",
            "--set",
            "poller.interval=1s",
        ]);
        let crate::Command::Run { host, .. } = &cli.command else { panic!("it is run") };
        let overrides = overrides(&cli.global, Some(host), Vec::new()).unwrap();
        let keys: Vec<&str> = overrides.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, ["poller.interval", "database.url", "dispatcher.workers"]);
    }

    #[test]
    fn a_value_without_its_key_is_not_repeated() {
        let cli = crate::Cli::parse_from(["outbox", "stats", "--set", "database.password:s3cret"]);
        let failure = overrides(&cli.global, None, Vec::new()).unwrap_err();
        assert!(failure.message().contains("--set database.password has no `=`"), "{}", failure.message());
        assert!(!failure.message().contains("s3cret"));
    }
}
