//! `cargo xtask test`: sees to what the tests need, then runs them.

use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use crate::browser::Browser;
use crate::child;
use crate::fault::Fault;
use crate::kafka;
use crate::languages;
use crate::plugins;
use crate::promtool;
use crate::python;
use crate::servers::Servers;
use crate::workspace::{self, Workspace};

/// Where the harness of tests looks for how many of a program run at once.
const THREADS: &str = "RUST_TEST_THREADS";

/// Runs `cargo test` with these arguments, over the whole workspace unless they name packages.
pub(crate) fn run(workspace: &Workspace, arguments: &[OsString]) -> Result<ExitCode, Fault> {
    let (workspace, arguments) = &workspace.with_lints(arguments);
    // Side by side: installing waits for the network, building for the processor.
    let (tools, built) = thread::scope(|scope| {
        let tools = scope.spawn(|| Tools::ensure(workspace));
        let built = build(workspace, arguments);
        (tools.join(), built)
    });
    let Tools { python, promtool, kafka, browser } =
        tools.map_err(|_| Fault::new("installing what the tests need broke"))??;
    built?;
    languages::build_native(workspace)?;
    let servers = Servers::start_missing()?; // they run until the tests have ended, well or not

    let mut cargo = workspace.linting_cargo();
    cargo.arg("test");
    cargo.env("OUTBOX_TEST_PLUGINS", plugins::folder(workspace)).env(python::VARIABLE, python);
    cargo.env(languages::VARIABLE, languages::folder(workspace)).env(promtool::VARIABLE, promtool);
    cargo.envs(languages::caches(workspace));
    cargo.envs(kafka.variables()).envs(browser.variables());
    servers.tell(&mut cargo);
    #[expect(clippy::disallowed_methods, reason = "the environment is how people speak to cargo's tests")]
    let is_said = std::env::var_os(THREADS).is_some();
    if !is_said {
        // Most tests wait: for servers, for processes, for leases. With two threads for each core, the flow tests took a quarter longer.
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        cargo.env(THREADS, (cores * 3).to_string());
    }
    if !names_packages(arguments) {
        cargo.arg("--workspace");
    }
    child::run(cargo.args(arguments))
}

/// Everything beside cargo's own builds that the tests need.
struct Tools {
    python: PathBuf,
    promtool: PathBuf,
    kafka: kafka::Tools,
    browser: Browser,
}

impl Tools {
    /// Installs what is missing, and builds the components that need no program of ours.
    fn ensure(workspace: &Workspace) -> Result<Self, Fault> {
        Servers::install_missing()?;
        let promtool = promtool::ensure()?;
        let browser = Browser::ensure(workspace)?;
        let python = python::ensure(workspace)?;
        let kafka = kafka::Tools::ensure(workspace)?;
        languages::build_interpreted(workspace)?;
        Ok(Self { python, promtool, kafka, browser })
    }
}

/// Builds the sample plugins and the tests.
fn build(workspace: &Workspace, arguments: &[OsString]) -> Result<(), Fault> {
    eprintln!("xtask: building the plugins");
    plugins::build_all(workspace)?;
    eprintln!("xtask: building the tests");
    let mut cargo = workspace.linting_cargo();
    cargo.args(["test", "--no-run", "--quiet"]);
    if !names_packages(arguments) {
        cargo.arg("--workspace");
    }
    let is_new = |argument: &&OsString| *argument != "--no-run" && *argument != "--quiet" && *argument != "-q";
    workspace::run(cargo.args(arguments.iter().take_while(|argument| *argument != "--").filter(is_new)))
}

/// Whether `-p` or one of its other forms stands before the `--` that ends cargo's own arguments.
fn names_packages(arguments: &[OsString]) -> bool {
    arguments
        .iter()
        .filter_map(|argument| argument.to_str())
        .take_while(|argument| *argument != "--")
        .any(|argument| argument.starts_with("-p") || argument.starts_with("--package") || argument == "--workspace")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_named_only_before_the_double_dash() {
        let named = |arguments: &[&str]| names_packages(&arguments.iter().map(OsString::from).collect::<Vec<_>>());

        assert!(named(&["-p", "outbox"]));
        assert!(named(&["--package=outbox"]));
        assert!(!named(&["claim", "--", "-p"]));
    }
}
