//! `cargo xtask test`: sees to what the tests need, then runs them.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::fault::Fault;
use crate::plugins;
use crate::workspace::{Workspace, run_for_code};

/// One thing that the tests need and find through the environment.
type Need = fn(&Workspace) -> Result<(&'static str, OsString), Fault>;

/// Each is met before the first test starts.
const NEEDS: [Need; 1] = [sample_plugins];

/// Runs `cargo test` with these arguments, over the whole workspace unless they name packages.
pub(crate) fn run(workspace: &Workspace, arguments: &[OsString]) -> Result<ExitCode, Fault> {
    let mut cargo = workspace.cargo();
    for need in NEEDS {
        let (name, value) = need(workspace)?;
        cargo.env(name, value);
    }
    cargo.arg("test");
    if !names_packages(arguments) {
        cargo.arg("--workspace");
    }
    run_for_code(cargo.args(arguments))
}

/// The sample plugins as components, in one folder.
fn sample_plugins(workspace: &Workspace) -> Result<(&'static str, OsString), Fault> {
    eprintln!("xtask: building the plugins");
    plugins::build_all(workspace)?;
    Ok(("OUTBOX_TEST_PLUGINS", plugins::folder(workspace).into()))
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
