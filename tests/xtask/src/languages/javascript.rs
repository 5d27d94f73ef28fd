//! JavaScript: the SDK, and the sample that publishes orders. Worked on in a copy below the target directory, where npm may leave
//! what it installs.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Made, copy};
use crate::fault::Fault;
use crate::npm::Npm;
use crate::workspace::{Workspace, run};

const SDK: &str = "sdk/js";
const SAMPLE: &str = "plugins/order-publisher-js";
/// What the two refer to by relative paths lies where it does in the repository.
const SOURCES: [&str; 5] = [SDK, SAMPLE, "wit", "LICENSE-APACHE", "LICENSE-MIT"];

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
