//! `cargo xtask bench`: what the host can do, built for release.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use crate::child;
use crate::fault::Fault;
use crate::host::{self, Profile};
use crate::plugins;
use crate::workspace::Workspace;

/// Runs `outbox bench` over the plugin that does nothing.
pub(crate) fn run(workspace: &Workspace, arguments: &[OsString]) -> Result<ExitCode, Fault> {
    let noop = plugins::build_one(workspace, "noop")?;
    let outbox = host::build(workspace, Profile::Release)?;
    child::run(Command::new(outbox).arg("bench").arg("--plugin").arg(noop.path).args(arguments))
}
