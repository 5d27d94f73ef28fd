//! A Python of our own: the tests write events from another language by it, and have requests made up for the API.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fault::Fault;
use crate::workspace::{Workspace, environment, run};

/// Where the tests look for it.
pub(crate) const VARIABLE: &str = "OUTBOX_TEST_PYTHON";

/// As pip names them: drivers for the databases (SQLite's is a part of Python), the SDK of CloudEvents, and what makes up requests from
/// an OpenAPI document.
const PACKAGES: [&str; 4] = ["psycopg[binary]==3.3.9", "PyMySQL==1.2.4", "cloudevents==2.2.0", "schemathesis==4.32.5"];

/// The interpreter of the environment, made now when it is not there with these packages; the one that the environment variable
/// names already is left as it is.
pub(crate) fn ensure(workspace: &Workspace) -> Result<PathBuf, Fault> {
    if let Some(given) = environment(VARIABLE) {
        return Ok(given);
    }
    let folder = workspace.target.join("python");
    let python = interpreter(&folder);
    // Written last, so what it says is there in full.
    let stamp = folder.join("packages.txt");
    if python.is_file() && fs::read_to_string(&stamp).is_ok_and(|text| text == PACKAGES.join("\n")) {
        return Ok(python);
    }
    has_venv()?;
    eprintln!("xtask: making a Python with {}", PACKAGES.join(", "));
    run(Command::new(PYTHON).args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    run(install.args(PACKAGES))?;
    fs::write(&stamp, PACKAGES.join("\n")).map_err(|error| Fault::file("write", &stamp, &error))?;
    Ok(python)
}

#[cfg(unix)]
pub(crate) const PYTHON: &str = "python3";
#[cfg(not(unix))]
pub(crate) const PYTHON: &str = "python";

#[cfg(unix)]
pub(crate) fn interpreter(folder: &Path) -> PathBuf {
    folder.join("bin/python")
}

#[cfg(not(unix))]
pub(crate) fn interpreter(folder: &Path) -> PathBuf {
    folder.join("Scripts/python.exe")
}

/// Debian has Python without the parts by which it makes environments.
pub(crate) fn has_venv() -> Result<(), Fault> {
    let there = Command::new(PYTHON).args(["-c", "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"]).output();
    if there.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    Err(Fault::new(
        "the tests need Python 3.11 or later with its modules venv and ensurepip; type: sudo apt-get install python3-venv",
    ))
}
