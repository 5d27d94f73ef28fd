//! Which languages there are, and which one a project is in.

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

/// A language that has an SDK here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// Compiled by cargo.
    Rust,
    /// With QuickJS in the component.
    #[value(alias = "javascript")]
    Js,
    /// As JavaScript, with its types checked.
    #[value(alias = "typescript")]
    Ts,
    /// With CPython in the component.
    #[value(alias = "py")]
    Python,
    /// Compiled by the stock compiler.
    #[value(alias = "golang")]
    Go,
    /// Compiled by zig cc.
    C,
}

impl Language {
    /// Its name, as people write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rust => "Rust",
            Self::Js => "JavaScript",
            Self::Ts => "TypeScript",
            Self::Python => "Python",
            Self::Go => "Go",
            Self::C => "C",
        }
    }

    /// The language of the project in a folder; `None` when none is seen there.
    pub(super) fn of(folder: &Path) -> Option<Self> {
        let has = |file: &str| folder.join(file).is_file();
        if has("Cargo.toml") {
            Some(Self::Rust)
        } else if has("package.json") {
            Some(if javascript_entry(folder).is_some_and(|entry| is_typescript(&entry)) { Self::Ts } else { Self::Js })
        } else if has("pyproject.toml") {
            Some(Self::Python)
        } else if has("go.mod") {
            Some(Self::Go)
        } else {
            (!c_sources(folder).is_empty()).then_some(Self::C)
        }
    }
}

/// The module of a project in JavaScript or TypeScript that a component is made of.
pub(super) fn javascript_entry(folder: &Path) -> Option<PathBuf> {
    let places = ["src/listener.ts", "src/listener.js", "listener.ts", "listener.js", "src/index.ts", "src/index.js"];
    places.into_iter().map(|place| folder.join(place)).find(|file| file.is_file())
}

fn is_typescript(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "ts")
}

/// The module of a project in Python: `listener.py`, or the only one that is no test.
pub(super) fn python_module(folder: &Path) -> Option<PathBuf> {
    let listener = folder.join("listener.py");
    if listener.is_file() {
        return Some(listener);
    }
    let mut modules = files(folder, "py");
    modules.retain(|file| !is_test(file));
    if modules.len() == 1 { modules.pop() } else { None }
}

/// The C files of a project that are no tests.
pub(super) fn c_sources(folder: &Path) -> Vec<PathBuf> {
    let mut sources = files(folder, "c");
    sources.extend(files(&folder.join("src"), "c"));
    sources.retain(|file| !is_test(file));
    sources
}

fn is_test(file: &Path) -> bool {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    stem.starts_with("test_") || stem.ends_with("_test")
}

/// The files of a folder with this extension, sorted.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    files.sort();
    files
}

/// The plugin's name: that of its manifest, the only `NAME.toml` in the folder that is nobody else's; or else the folder's own.
pub(super) fn plugin_name(folder: &Path) -> String {
    const OTHERS: [&str; 7] = ["Cargo", "pyproject", "rust-toolchain", "rustfmt", "clippy", "outbox", "deny"];
    let stems = files(folder, "toml").into_iter().filter_map(|file| Some(file.file_stem()?.to_string_lossy().into_owned()));
    let mut names: Vec<String> = stems.filter(|stem| !stem.starts_with('.') && !OTHERS.contains(&stem.as_str())).collect();
    if names.len() == 1 {
        return names.remove(0);
    }
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    folder.file_name().map_or_else(|| "plugin".to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        folder
    }

    #[test]
    fn a_project_is_known_by_its_files() {
        let of = |files: &[&str]| Language::of(folder(files).path());

        assert_eq!(of(&["Cargo.toml", "src/lib.rs"]), Some(Language::Rust));
        assert_eq!(of(&["package.json", "src/listener.js"]), Some(Language::Js));
        assert_eq!(of(&["package.json", "src/listener.ts"]), Some(Language::Ts));
        assert_eq!(of(&["pyproject.toml", "listener.py"]), Some(Language::Python));
        assert_eq!(of(&["go.mod", "main.go"]), Some(Language::Go));
        assert_eq!(of(&["plugin.c", "plugin_test.c"]), Some(Language::C));
        assert_eq!(of(&["plugin_test.c", "README.md"]), None);
    }

    #[test]
    fn a_plugin_is_called_as_its_manifest_is() {
        assert_eq!(plugin_name(folder(&["Cargo.toml", "greeter.toml"]).path()), "greeter");
        let two = folder(&["a.toml", "b.toml"]);
        assert_eq!(plugin_name(two.path()), two.path().file_name().unwrap().to_string_lossy());
    }
}
