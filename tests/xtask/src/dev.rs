//! `cargo xtask dev`: everything on one machine, for trying it out and for writing plugins.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::child;
use crate::fault::Fault;
use crate::host::{self, Profile};
use crate::plugins::{self, Plugin};
use crate::watch::Watch;
use crate::workspace::Workspace;

/// Plugins that have nothing to show: one is for the benchmark, one needs an endpoint to call, the others are for the tests.
const NOT_FOR_SHOW: [&str; 6] = ["batches", "effects", "noop", "order-webhook", "recorder", "trouble"];

/// Builds, runs `outbox dev`, rebuilds what changes, and ends as the host ends.
pub(crate) fn run(workspace: &Workspace, arguments: &[OsString]) -> Result<ExitCode, Fault> {
    let folder = workspace.target.join("outbox-dev");
    let served = folder.join("plugins");

    eprintln!("xtask: building the plugins");
    let watch = Watch::new(workspace.clone(), served.clone()); // before building: what changes meanwhile is built again
    let shown = shown(workspace)?;
    plugins::build(workspace, &shown)?;
    for plugin in &shown {
        plugins::install(workspace, plugin, &served)?;
    }

    eprintln!("xtask: building the host (the first time takes some minutes)");
    // Not for release: with its dependencies optimised, the dev profile is fast enough to look at, and tests use it as well.
    let outbox = host::build(workspace, Profile::Dev)?;

    let mut dev = Command::new(outbox);
    dev.arg("dev");
    if !is_given(arguments, "--plugins") {
        dev.arg("--plugins").arg(as_seen_from_here(&served));
    }
    if !is_given(arguments, "--database-url") {
        dev.arg("--database-url").arg(sqlite_url(&as_seen_from_here(&folder.join("outbox.db"))));
    }
    dev.args(arguments);

    let watching = watch.start();
    let code = child::run(&mut dev);
    watching.stop();
    code
}

/// The plugins that a developer wants to see at work.
pub(crate) fn shown(workspace: &Workspace) -> Result<Vec<Plugin>, Fault> {
    let mut plugins = plugins::all(workspace)?;
    plugins.retain(|plugin| !NOT_FOR_SHOW.contains(&plugin.name.as_str()));
    Ok(plugins)
}

/// Whether the user gave this flag, as `--flag VALUE` or as `--flag=VALUE`.
fn is_given(arguments: &[OsString], flag: &str) -> bool {
    arguments
        .iter()
        .filter_map(|argument| argument.to_str())
        .any(|argument| argument.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
}

/// The path without the current directory in front, which is easier to read in what the host prints.
fn as_seen_from_here(path: &Path) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path).to_owned()
}

/// In a URL `%` and `?` have a meaning that they do not have in a path.
fn sqlite_url(path: &Path) -> String {
    format!("sqlite:{}", path.display().to_string().replace('%', "%25").replace('?', "%3f"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_found_in_both_its_forms_and_not_in_a_longer_one() {
        let given = |argument: &str| is_given(&[argument.into()], "--plugins");

        assert!(given("--plugins"));
        assert!(given("--plugins=mine"));
        assert!(!given("--plugins-only"));
    }

    #[test]
    fn a_path_stays_a_path_inside_a_url() {
        assert_eq!(sqlite_url(Path::new("100%/why?.db")), "sqlite:100%25/why%3f.db");
    }
}
