//! The sample plugins, as components.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The directory of the sample plugins as components; built now when `cargo xtask test` did not do it before.
///
/// # Panics
/// When they cannot be built.
pub fn sample_plugins() -> &'static Path {
    static PLUGINS: OnceLock<PathBuf> = OnceLock::new();
    PLUGINS.get_or_init(|| given("OUTBOX_TEST_PLUGINS").unwrap_or_else(|| built("plugins").join("plugins")))
}

#[expect(clippy::disallowed_methods, reason = "tests are configured by cargo xtask test, through the environment")]
fn given(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

/// Runs a command of xtask; returns the target directory.
/// As from a fresh shell: what cargo set for this test would make it build everything anew.
fn built(what: &str) -> PathBuf {
    let mut cargo = Command::new("cargo");
    cargo.args(["xtask", what]).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text.starts_with("RUSTC") {
            cargo.env_remove(&name);
        }
    }
    let status = cargo.status().expect("cargo is there");
    assert!(status.success(), "cargo xtask {what} failed");
    let test = std::env::current_exe().expect("a test knows its own file");
    let target = test.ancestors().nth(3).filter(|_| test.parent().is_some_and(|folder| folder.ends_with("deps")));
    // Examples in the documentation are compiled somewhere else.
    target.map_or_else(|| Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target")).to_owned(), Path::to_owned)
}

/// The directory of the samples in other languages than Rust; built now when `cargo xtask test` did not do it before.
///
/// # Panics
/// When they cannot be built.
pub fn sample_languages() -> &'static Path {
    static LANGUAGES: OnceLock<PathBuf> = OnceLock::new();
    LANGUAGES.get_or_init(|| given("OUTBOX_TEST_LANGUAGES").unwrap_or_else(|| built("languages").join("languages/plugins")))
}
