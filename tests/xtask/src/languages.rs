//! SDKs and sample plugins in other languages than Rust: their toolchains, their unit tests, their components.
//!
//! Each toolchain is installed below the target directory from its ordinary registry, and kept there. What has been built is built
//! again when a source has changed, not otherwise.

mod javascript;
mod native;
mod python;

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::fault::Fault;
use crate::workspace::Workspace;

/// Where the tests look for the components.
pub(crate) const VARIABLE: &str = "OUTBOX_TEST_LANGUAGES";

/// Where the components are put.
pub(crate) fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("languages/plugins")
}

/// Where the compilers of C and Go keep what they have compiled, as variables of their environment. The tests start them too.
pub(crate) fn caches(workspace: &Workspace) -> [(&'static str, PathBuf); 2] {
    let native = workspace.target.join("languages/native");
    [("ZIG_GLOBAL_CACHE_DIR", native.join("zig")), ("GOCACHE", native.join("go"))]
}

/// Tests every SDK and sample, and builds every sample into [`folder`]. Returns the components.
pub(crate) fn build_all(workspace: &Workspace) -> Result<Vec<PathBuf>, Fault> {
    let mut components = build_interpreted(workspace)?;
    components.extend(build_native(workspace)?);
    Ok(components)
}

/// The part of [`build_all`] that needs no program of ours: JavaScript and Python. Installs the toolchains of the other part as well.
pub(crate) fn build_interpreted(workspace: &Workspace) -> Result<Vec<PathBuf>, Fault> {
    let folder = folder(workspace);
    fs::create_dir_all(&folder).map_err(|error| Fault::file("make", &folder, &error))?;
    native::Tools::ensure(workspace)?;
    Ok(vec![javascript::build(workspace, &folder)?, python::build(workspace, &folder)?])
}

/// The part of [`build_all`] that needs the program `outbox`: C and Go.
pub(crate) fn build_native(workspace: &Workspace) -> Result<Vec<PathBuf>, Fault> {
    let folder = folder(workspace);
    fs::create_dir_all(&folder).map_err(|error| Fault::file("make", &folder, &error))?;
    native::build(workspace, &folder)
}

/// Something that was made from sources, and need not be made again while they stay as they are.
struct Made {
    stamp: PathBuf,
    sources: String,
}

impl Made {
    /// What is made from these files and folders of the workspace, noted under this name.
    fn of(workspace: &Workspace, name: &str, sources: &[&str]) -> Result<Self, Fault> {
        let folder = workspace.target.join("languages");
        fs::create_dir_all(&folder).map_err(|error| Fault::file("make", &folder, &error))?;
        let mut files = BTreeMap::new();
        for source in sources {
            read(&workspace.root.join(source), &mut files)?;
        }
        let mut hasher = DefaultHasher::new();
        files.hash(&mut hasher);
        Ok(Self { stamp: folder.join(name).with_extension("stamp"), sources: format!("{:016x}\n", hasher.finish()) })
    }

    /// Whether it was made from the sources as they are.
    fn is_current(&self) -> bool {
        fs::read_to_string(&self.stamp).is_ok_and(|text| text == self.sources)
    }

    /// Notes that it has been made.
    fn note(&self) -> Result<(), Fault> {
        fs::write(&self.stamp, &self.sources).map_err(|error| Fault::file("write", &self.stamp, &error))
    }
}

/// Adds a file, or all files of a folder but for what tools leave there.
fn read(path: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<(), Fault> {
    if !path.is_dir() {
        files.insert(path.to_owned(), fs::read(path).map_err(|error| Fault::file("read", path, &error))?);
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(|error| Fault::file("read", path, &error))? {
        let path = entry.map_err(|error| Fault::file("read", path, &error))?.path();
        if is_source(&path) {
            read(&path, files)?;
        }
    }
    Ok(())
}

/// Copies a file, or a folder but for what tools leave there.
fn copy(from: &Path, to: &Path) -> Result<(), Fault> {
    let mut files = BTreeMap::new();
    read(from, &mut files)?;
    for path in files.into_keys() {
        let copy = path.strip_prefix(from).map_or_else(|_| to.to_owned(), |part| to.join(part));
        // A file is itself, with no part below it.
        let copy = if path == from { to.to_owned() } else { copy };
        let folder = copy.parent().unwrap_or(to);
        fs::create_dir_all(folder).map_err(|error| Fault::file("make", folder, &error))?;
        // With its rights: programs must stay programs.
        fs::copy(&path, &copy).map_err(|error| Fault::file("write", &copy, &error))?;
    }
    Ok(())
}

fn is_source(path: &Path) -> bool {
    const LEFT_BY_TOOLS: [&str; 4] = ["node_modules", "__pycache__", ".mypy_cache", ".ruff_cache"];
    !path.file_name().is_some_and(|name| LEFT_BY_TOOLS.iter().any(|left| name == *left))
}
