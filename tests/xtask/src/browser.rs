//! The browser in which the tests look at the dashboard: Debian's Chromium, and what drives it, in target/browser.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::fault::Fault;
use crate::install;
use crate::npm::Npm;
use crate::workspace::{Workspace, environment, run};

/// Where the packages that drive the browser are.
const PACKAGES: &str = "tests/browser";
/// Where the tests look for the installed packages, and leave their pictures.
const FOLDER: &str = "OUTBOX_TEST_BROWSER";
/// Where the tests look for Node.js.
const NODE: &str = "OUTBOX_TEST_NODE";
/// Where the tests look for the browser.
const CHROMIUM: &str = "OUTBOX_TEST_CHROMIUM";
/// What Chromium is called on one system or another.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A browser and what drives it.
pub(crate) struct Browser {
    folder: PathBuf,
    node: PathBuf,
    chromium: PathBuf,
}

impl Browser {
    /// Everything, installed now where it is not there; the browser that the environment variable names already is left as it is.
    pub(crate) fn ensure(workspace: &Workspace) -> Result<Self, Fault> {
        let chromium = match environment(CHROMIUM) {
            Some(given) => given,
            None => {
                install::ensure("Chromium", "chromium", || program().is_some())?;
                program().ok_or_else(|| Fault::new("Chromium was there a moment ago, and is not any more"))?
            }
        };
        let npm = Npm::ensure(workspace)?;
        Ok(Self { folder: packages(workspace, &npm)?, node: npm.node(), chromium })
    }

    /// What tells the tests of it.
    pub(crate) fn variables(&self) -> [(&'static str, &PathBuf); 3] {
        [(FOLDER, &self.folder), (NODE, &self.node), (CHROMIUM, &self.chromium)]
    }
}

fn program() -> Option<PathBuf> {
    let answers = |name: &&str| {
        let mut version = Command::new(name);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    let name = NAMES.into_iter().find(answers)?;
    // As a whole path: what drives the browser looks for it nowhere else.
    std::env::split_paths(&environment("PATH")?).map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// The folder with the packages of the lock file.
fn packages(workspace: &Workspace, npm: &Npm) -> Result<PathBuf, Fault> {
    let (from, folder) = (workspace.root.join(PACKAGES), workspace.target.join("browser"));
    let read = |name: &str| {
        let file = from.join(name);
        fs::read_to_string(&file).map_err(|error| Fault::file("read", &file, &error))
    };
    let lock = read("package-lock.json")?;
    // Written last, so what it says is there in full.
    let stamp = folder.join("installed.json");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(folder);
    }
    fs::create_dir_all(&folder).map_err(|error| Fault::file("make", &folder, &error))?;
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::write(&file, text).map_err(|error| Fault::file("write", &file, &error))
    };
    write("package.json", &read("package.json")?)?;
    write("package-lock.json", &lock)?;
    eprintln!("xtask: installing what drives the browser of the tests");
    run(npm.of(&workspace.target, "browser").args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]))?;
    write("installed.json", &lock)?;
    Ok(folder)
}
