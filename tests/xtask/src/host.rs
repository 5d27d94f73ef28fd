//! Building the host's binary.

use std::path::PathBuf;

use crate::fault::Fault;
use crate::workspace::{Workspace, run};

/// What a host is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Looking at it and testing it; only what would make that slow is optimised.
    Dev,
    /// Measuring it while it changes: optimised, and built again soon after a changed line.
    Fast,
    /// Measuring what is shipped.
    Release,
}

impl Profile {
    /// Its name in Cargo.toml, and its folder under the target directory.
    const fn name_and_folder(self) -> (&'static str, &'static str) {
        match self {
            Self::Dev => ("dev", "debug"),
            Self::Fast => ("fast", "fast"),
            Self::Release => ("release", "release"),
        }
    }
}

/// How much of the program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of it.
    Whole,
    /// SQLite, plugins and the HTTP API: a hundred crates fewer.
    Sqlite,
}

/// Builds `outbox` and returns its path.
pub(crate) fn build(workspace: &Workspace, profile: Profile, extent: Extent) -> Result<PathBuf, Fault> {
    let (name, folder) = profile.name_and_folder();
    let mut cargo = workspace.linting_cargo();
    cargo.args(["build", "--package", "outbox-cli", "--bin", "outbox", "--profile", name]);
    if extent == Extent::Sqlite {
        cargo.arg("--no-default-features");
    }
    run(&mut cargo)?;
    Ok(workspace.target.join(folder).join("outbox").with_extension(std::env::consts::EXE_EXTENSION))
}
