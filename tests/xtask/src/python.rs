//! Python environments of our own, in the target directory: for the tests, and for tools that pip installs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fault::Fault;
use crate::workspace::{Workspace, environment, run};

/// Where the tests look for their Python.
pub(crate) const VARIABLE: &str = "OUTBOX_TEST_PYTHON";

/// What pip installs for one purpose, each package by its version and its hashes.
pub(crate) struct Packages {
    /// What the person who waits is told.
    what: &'static str,
    requirements: &'static str,
}

/// The tests write events from another language by these, and have requests made up for the API.
const TESTS: Packages = Packages { what: "a Python for the tests", requirements: include_str!("../packages/tests.txt") };
pub(crate) const NODE: Packages = Packages { what: "Node.js", requirements: include_str!("../packages/node.txt") };
pub(crate) const KAFKA: Packages =
    Packages { what: "what Kafka's tests need", requirements: include_str!("../packages/kafka.txt") };
pub(crate) const TOOLCHAINS: Packages =
    Packages { what: "a C compiler for WebAssembly, and Go", requirements: include_str!("../packages/toolchains.txt") };

/// The interpreter of the tests, made now if it is missing; one that the environment variable already names is left alone.
pub(crate) fn ensure(workspace: &Workspace) -> Result<PathBuf, Fault> {
    environment(VARIABLE).map_or_else(|| TESTS.ensure(&workspace.target.join("python")), Ok)
}

impl Packages {
    /// The interpreter of the environment in this folder, which is made anew when it is not there with these packages.
    pub(crate) fn ensure(&self, folder: &Path) -> Result<PathBuf, Fault> {
        let python = interpreter(folder);
        // Written last, so what it says is there in full.
        let stamp = folder.join("installed.txt");
        if python.is_file() && fs::read_to_string(&stamp).is_ok_and(|installed| installed == self.requirements) {
            return Ok(python);
        }
        eprintln!("xtask: installing {}", self.what);
        make_environment(folder)?;
        let asked = folder.join("requirements.txt");
        let write = |file: &Path| fs::write(file, self.requirements).map_err(|error| Fault::file("write", file, &error));
        write(&asked)?;
        run(pip_install(&python).args(["--only-binary", ":all:", "--require-hashes", "--requirement"]).arg(&asked))?;
        write(&stamp)?;
        Ok(python)
    }
}

/// An empty environment in this folder.
pub(crate) fn make_environment(folder: &Path) -> Result<(), Fault> {
    has_venv()?;
    run(Command::new(PYTHON).args(["-m", "venv", "--clear"]).arg(folder))
}

/// `pip install`, to be told what.
pub(crate) fn pip_install(python: &Path) -> Command {
    let mut install = Command::new(python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    install
}

#[cfg(unix)]
const PYTHON: &str = "python3";
#[cfg(not(unix))]
const PYTHON: &str = "python";

#[cfg(unix)]
pub(crate) fn interpreter(folder: &Path) -> PathBuf {
    folder.join("bin/python")
}

#[cfg(not(unix))]
pub(crate) fn interpreter(folder: &Path) -> PathBuf {
    folder.join("Scripts/python.exe")
}

/// Debian has Python without the parts by which it makes environments.
fn has_venv() -> Result<(), Fault> {
    let there = Command::new(PYTHON).args(["-c", "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"]).output();
    if there.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    Err(Fault::new(
        "the tests need Python 3.11 or later with its modules venv and ensurepip; type: sudo apt-get install python3-venv",
    ))
}
