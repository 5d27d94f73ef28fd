//! The sample plugins in Rust: which there are, and making components of them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::fault::Fault;
use crate::wasm_target::{self, WASM_TARGET};
use crate::workspace::{Workspace, run};

/// A plugin's project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plugin {
    /// Its package, and its component's file name without `.wasm`.
    pub(crate) name: String,
    /// Its folder.
    pub(crate) folder: PathBuf,
}

/// A plugin that was built.
#[derive(Debug)]
pub(crate) struct Component {
    pub(crate) path: PathBuf,
    pub(crate) bytes: usize,
}

/// All plugins in Rust, by name: the folders of `plugins/` that hold a Cargo.toml.
pub(crate) fn all(workspace: &Workspace) -> Result<Vec<Plugin>, Fault> {
    let folder = workspace.root.join("plugins");
    let mut plugins = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|error| Fault::file("read", &folder, &error))? {
        let folder = entry.map_err(|error| Fault::file("read", &folder, &error))?.path();
        let manifest = folder.join("Cargo.toml");
        if manifest.is_file() {
            let text = fs::read_to_string(&manifest).map_err(|error| Fault::file("read", &manifest, &error))?;
            let name = package_name(&text)
                .ok_or_else(|| Fault::new(format!("{} has no line `name = \"…\"` under [package]", manifest.display())))?;
            plugins.push(Plugin { name: name.to_owned(), folder });
        }
    }
    plugins.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(plugins)
}

/// Where [`build_all`] and [`build_one`] put components for tests and benchmarks.
pub(crate) fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("plugins")
}

/// Builds every plugin into [`folder`].
pub(crate) fn build_all(workspace: &Workspace) -> Result<Vec<Component>, Fault> {
    let plugins = all(workspace)?;
    build(workspace, &plugins)?;
    plugins.iter().map(|plugin| install(workspace, plugin, &folder(workspace))).collect()
}

/// Builds the plugin of this name into [`folder`].
pub(crate) fn build_one(workspace: &Workspace, name: &str) -> Result<Component, Fault> {
    let mut plugins = all(workspace)?;
    plugins.retain(|plugin| plugin.name == name);
    let [plugin] = plugins.as_slice() else {
        return Err(Fault::new(format!("there is no plugin {name} in {}", workspace.root.join("plugins").display())));
    };
    build(workspace, &plugins)?;
    install(workspace, plugin, &folder(workspace))
}

/// Builds plugins as components, into cargo's own folders.
pub(crate) fn build(workspace: &Workspace, plugins: &[Plugin]) -> Result<(), Fault> {
    if plugins.is_empty() {
        return Ok(()); // without a package, cargo would take the host
    }
    wasm_target::ensure(workspace)?;
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--target", WASM_TARGET, "--profile", "plugin"]);
    cargo.env_remove("RUSTFLAGS"); // meant for this machine: its processor, its linker
    for plugin in plugins {
        cargo.args(["--package", &plugin.name]);
    }
    run(&mut cargo)
}

/// Copies a built component into a folder, under its package's name. Whoever looks sees the old file or the new one, never a part,
/// and nothing at all when the bytes are the same.
pub(crate) fn install(workspace: &Workspace, plugin: &Plugin, folder: &Path) -> Result<Component, Fault> {
    let file = format!("{}.wasm", plugin.name);
    let built = workspace.target.join(WASM_TARGET).join("plugin").join(file.replace('-', "_"));
    let bytes = fs::read(&built).map_err(|error| Fault::file("read", &built, &error))?;

    fs::create_dir_all(folder).map_err(|error| Fault::file("make", folder, &error))?;
    let path = folder.join(&file);
    if fs::read(&path).is_ok_and(|present| present == bytes) {
        return Ok(Component { path, bytes: bytes.len() });
    }
    let half = folder.join(format!(".{file}.{}.tmp", std::process::id()));
    fs::write(&half, &bytes).map_err(|error| Fault::file("write", &half, &error))?;
    fs::rename(&half, &path).map_err(|error| Fault::file("rename to", &path, &error))?;
    Ok(Component { path, bytes: bytes.len() })
}

/// The package's name in the text of a Cargo.toml.
fn package_name(manifest: &str) -> Option<&str> {
    manifest
        .lines()
        .map(str::trim)
        .skip_while(|line| *line != "[package]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .find_map(|line| {
            line.strip_prefix("name")?.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?.split('"').next()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_name_is_found_and_no_other() {
        let manifest = "[lib]\nname = \"other\"\n\n[package]\nversion = \"1\"\nname=\"order-mailer\"\n";

        assert_eq!(package_name(manifest), Some("order-mailer"));
        assert_eq!(package_name("[package]\nversion = \"1\"\n[lib]\nname = \"other\"\n"), None);
    }
}
