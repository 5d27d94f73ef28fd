//! `cargo xtask interleavings`: the host's shared structures under chosen schedules.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::child;
use crate::fault::Fault;
use crate::workspace::Workspace;

/// Builds `tests/interleavings`, which is no part of the workspace, in a target directory of its own, and runs it.
pub(crate) fn run(workspace: &Workspace, arguments: &[OsString]) -> Result<ExitCode, Fault> {
    let (workspace, arguments) = workspace.with_lints(arguments);
    let mut cargo = workspace.linting_cargo();
    cargo.args(["run", "--quiet", "--locked", "--manifest-path", "tests/interleavings/Cargo.toml"]);
    cargo.env("CARGO_TARGET_DIR", workspace.target.join("interleavings"));
    child::run(cargo.arg("--").args(arguments))
}
