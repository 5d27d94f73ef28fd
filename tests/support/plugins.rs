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
    PLUGINS.get_or_init(|| {
        if let Some(given) = given() {
            return given;
        }
        build();
        let test = std::env::current_exe().expect("a test knows its own file");
        test.ancestors().nth(3).expect("tests lie in target/debug/deps").join("plugins")
    })
}

#[expect(clippy::disallowed_methods, reason = "tests are configured by cargo xtask test, through the environment")]
fn given() -> Option<PathBuf> {
    std::env::var_os("OUTBOX_TEST_PLUGINS").map(PathBuf::from)
}

/// As from a fresh shell: what cargo set for this test would make it build everything anew.
fn build() {
    let mut cargo = Command::new("cargo");
    cargo.args(["xtask", "plugins"]).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text.starts_with("RUSTC") {
            cargo.env_remove(&name);
        }
    }
    let status = cargo.status().expect("cargo is there");
    assert!(status.success(), "cargo xtask plugins failed");
}
