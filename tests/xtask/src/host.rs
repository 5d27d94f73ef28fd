//! Building the host's binary.

use std::path::PathBuf;

use crate::fault::Fault;
use crate::workspace::{Workspace, run};

/// What a host is built for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Profile {
    /// Looking at it; dependencies are optimised, the host itself is not.
    Dev,
    /// Measuring it.
    Release,
}

/// Builds `outbox` and tells where it is.
pub(crate) fn build(workspace: &Workspace, profile: Profile) -> Result<PathBuf, Fault> {
    let (folder, flag) = match profile {
        Profile::Dev => ("debug", None),
        Profile::Release => ("release", Some("--release")),
    };
    run(workspace.cargo().args(["build", "--package", "outbox", "--bin", "outbox"]).args(flag))?;
    Ok(workspace.target.join(folder).join("outbox").with_extension(std::env::consts::EXE_EXTENSION))
}
