//! `cargo xtask dev`: everything on one machine, for trying it out and for writing plugins.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::child;
use crate::fault::Fault;
use crate::host::{self, Extent, Profile};
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
    let outbox = host::build(workspace, Profile::Dev, extent(workspace, arguments, std::env::vars_os().map(|(name, _)| name)))?;

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

/// Returns how much of the program this run may need. Arguments, an `outbox.toml` and variables of the host can ask for another
/// database, a sink or a collector; the first run of a newcomer does not.
fn extent(workspace: &Workspace, arguments: &[OsString], variables: impl IntoIterator<Item = OsString>) -> Extent {
    let is_setting = |name: &str| name.starts_with("OUTBOX_") || name.starts_with("OTEL_");
    let is_configured = variables.into_iter().any(|name| name.to_str().is_some_and(is_setting));
    let has_file = [workspace.root.as_path(), Path::new(".")].iter().any(|folder| folder.join("outbox.toml").exists());
    if arguments.is_empty() && !is_configured && !has_file { Extent::Sqlite } else { Extent::Whole }
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
    fn a_first_run_builds_sqlite_alone_and_a_configured_one_builds_everything() {
        let root = std::env::temp_dir().join("a-folder-without-a-configuration");
        let workspace = Workspace { target: root.join("target"), root, clippy: false };
        let extent = |arguments: &[&str], variables: &[&str]| {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            extent(&workspace, &arguments, variables.iter().map(OsString::from))
        };

        assert_eq!(extent(&[], &["PATH", "HOME"]), Extent::Sqlite);
        assert_eq!(extent(&["--database-url", "postgres:"], &[]), Extent::Whole);
        assert_eq!(extent(&[], &["OUTBOX_DATABASE__USER"]), Extent::Whole);
        assert_eq!(extent(&[], &["OTEL_EXPORTER_OTLP_ENDPOINT"]), Extent::Whole);
    }

    #[test]
    fn a_path_stays_a_path_inside_a_url() {
        assert_eq!(sqlite_url(Path::new("100%/why?.db")), "sqlite:100%25/why%3f.db");
    }
}
