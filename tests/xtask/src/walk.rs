//! `cargo xtask walk`: whole hosts under a paused clock.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::child;
use crate::fault::Fault;
use crate::workspace::Workspace;

/// Runs `walk` with these arguments. It is a package outside the workspace, since it needs another tokio.
pub(crate) fn run(workspace: &Workspace, arguments: &[OsString]) -> Result<ExitCode, Fault> {
    let mut cargo = workspace.cargo();
    cargo.args(["run", "--quiet", "--locked", "--manifest-path", "tests/walk/Cargo.toml", "--"]);
    child::run(cargo.args(arguments))
}
