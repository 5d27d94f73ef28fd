//! npm and Node.js: the system's, or one of our own.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fault::Fault;
use crate::python;
use crate::workspace::Workspace;

/// The oldest Node.js that the SDK for JavaScript and the tests in a browser support.
const NODE: u32 = 20;

/// How npm is called.
pub(crate) struct Npm {
    /// Where node and npm are; `None` for the system's.
    bin: Option<PathBuf>,
}

impl Npm {
    /// The system's, or one of our own where that is missing or too old.
    pub(crate) fn ensure(workspace: &Workspace) -> Result<Self, Fault> {
        if version_of("node").is_some_and(|major| major >= NODE) && version_of("npm").is_some() {
            return Ok(Self { bin: None });
        }
        let python = python::NODE.ensure(&workspace.target.join("languages/node"))?;
        let bin = python.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Self { bin: Some(bin) })
    }

    /// Node.js itself.
    pub(crate) fn node(&self) -> PathBuf {
        self.bin.as_ref().map_or_else(|| PathBuf::from("node"), |bin| bin.join("node"))
    }

    /// npm, in the folder of a package.
    #[expect(clippy::disallowed_methods, reason = "npm looks for node on the PATH")]
    pub(crate) fn of(&self, work: &Path, package: &str) -> Command {
        let mut npm = Command::new(self.bin.as_ref().map_or_else(|| PathBuf::from("npm"), |bin| bin.join("npm")));
        if let Some(bin) = &self.bin {
            let others = std::env::var_os("PATH").unwrap_or_default();
            let path = std::env::join_paths(std::iter::once(bin.clone()).chain(std::env::split_paths(&others)));
            npm.env("PATH", path.unwrap_or(others));
        }
        npm.current_dir(work.join(package));
        npm
    }
}

/// The major version that a program says; `None` when it is not there.
fn version_of(program: &str) -> Option<u32> {
    let output = Command::new(program).arg("--version").output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().trim_start_matches('v').split('.').next()?.parse().ok()
}
