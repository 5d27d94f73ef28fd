//! Python: the SDK as a user installs it, and the sample that keeps totals.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Made;
use crate::fault::Fault;
use crate::python;
use crate::workspace::{Workspace, run};

const SDK: &str = "sdk/python";
const SAMPLE: &str = "plugins/order-totals-python";
const WIT: &str = "wit/0.1.0";

/// Installs the SDK, runs its unit tests and the sample's, and builds the sample.
pub(super) fn build(workspace: &Workspace, folder: &Path) -> Result<PathBuf, Fault> {
    let component = folder.join("order-totals.wasm");
    let made = Made::of(workspace, "python", &[SDK, SAMPLE, WIT])?;
    if made.is_current() && component.is_file() {
        return Ok(component);
    }
    let python = install(workspace)?;
    for tests in [format!("{SDK}/tests"), SAMPLE.to_owned()] {
        let mut unittest = at_root(workspace, &python);
        // In the sources: the generated modules stand in for what only a build makes.
        unittest.env("PYTHONPATH", workspace.root.join(SDK).join("src"));
        run(unittest.args(["-m", "unittest", "discover", "--quiet", "-s"]).arg(tests))?;
    }
    eprintln!("xtask: building order-totals.wasm, with CPython in it");
    let mut build = at_root(workspace, &python);
    build.args(["-m", "outbox_sdk", "build"]).arg(Path::new(SAMPLE).join("order_totals.py"));
    run(build.arg("-o").arg(folder))?;
    made.note()?;
    Ok(component)
}

/// An environment of its own with the SDK in it, as `pip install` makes it of this repository.
fn install(workspace: &Workspace) -> Result<PathBuf, Fault> {
    let environment = workspace.target.join("languages/python");
    let interpreter = python::interpreter(&environment);
    let made = Made::of(workspace, "python-sdk", &[SDK, WIT])?;
    if made.is_current() && interpreter.is_file() {
        return Ok(interpreter);
    }
    eprintln!("xtask: installing the Python SDK, and componentize-py for it");
    python::make_environment(&environment)?;
    run(python::pip_install(&interpreter).arg(format!("./{SDK}")).current_dir(&workspace.root))?;
    made.note()?;
    Ok(interpreter)
}

fn at_root(workspace: &Workspace, python: &Path) -> Command {
    let mut command = Command::new(python);
    command.current_dir(&workspace.root).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}
