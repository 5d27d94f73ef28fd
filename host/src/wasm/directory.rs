//! The plugins directory: what in it is a plugin, and what its operator wrote beside it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::LoadError;
use super::file::{Bytes, Settled, open};
use super::manifest::Manifest;

const MAX_MANIFEST_BYTES: u64 = 256 << 10;
/// A file that nobody wrote to for so long is complete.
const QUIET: Duration = Duration::from_secs(1);

/// Refuses a directory that cannot be read, or that anybody can put code into.
pub(super) fn check(dir: &Path) -> Result<(), LoadError> {
    let wrong = |reason: String| LoadError::Directory { dir: dir.to_owned(), reason };
    let metadata = fs::metadata(dir).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => wrong("it does not exist; create it, or set plugins.dir".to_owned()),
        _ => wrong(format!("{error}; check that this process's user may read it")),
    })?;
    if !metadata.is_dir() {
        return Err(wrong("it is not a directory; set plugins.dir to the directory of the .wasm files".to_owned()));
    }
    if metadata.permissions().mode() & 0o002 != 0 {
        return Err(wrong("anybody can write to it, and so run code in this host; run `chmod o-w` on it".to_owned()));
    }
    list(dir).map(|_| ()).map_err(|error| wrong(format!("{error}; check that this process's user may read it")))
}

/// The component files of the directory by plugin name, sorted.
pub(super) fn list(dir: &Path) -> std::io::Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if let Some(name) = plugin_name(&path) {
            found.insert(name, path);
        }
    }
    Ok(found)
}

/// The plugin's name, if the path is one of a component file; `None` for what is hidden, half-written or something else.
pub(super) fn plugin_name(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let stem = name.strip_suffix(".wasm")?;
    (!stem.is_empty() && !name.starts_with('.')).then(|| stem.to_owned())
}

/// Whether a change of this path can change a plugin. `..data` is what Kubernetes swaps when it updates a mounted volume.
pub(super) fn matters(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name == "..data" || (!name.starts_with('.') && (name.ends_with(".wasm") || name.ends_with(".toml")))
}

/// Reads a component file, and waits a moment if somebody wrote to it just now. Blocks.
pub(super) fn read(dir: &Path, file: &Path) -> Result<Bytes, LoadError> {
    let quiet = fs::metadata(file)
        .and_then(|metadata| metadata.modified())
        .is_ok_and(|modified| modified.elapsed().is_ok_and(|since| since >= QUIET));
    Bytes::read(dir, file, if quiet { Settled::Yes } else { Settled::No })
}

/// A manifest and the text it came from, which tells whether it changed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Written {
    pub(super) text: String,
    pub(super) manifest: Result<Manifest, String>,
}

/// The manifest beside a component file; the default when there is none. Blocks.
pub(super) fn manifest_beside(dir: &Path, file: &Path) -> Result<Written, LoadError> {
    let path = file.with_extension("toml");
    if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(Written { text: String::new(), manifest: Ok(Manifest::default()) });
    }
    let mut text = String::new();
    open(dir, &path)?
        .take(MAX_MANIFEST_BYTES)
        .read_to_string(&mut text)
        .map_err(|source| LoadError::Read { file: path.clone(), source })?;
    let manifest = toml::from_str(&text).map_err(|error| error.to_string().trim_end().to_owned());
    Ok(Written { text, manifest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_visible_finished_components_are_plugins() {
        for (path, name) in [("/p/mailer.wasm", Some("mailer")), ("/p/a.b.wasm", Some("a.b"))] {
            assert_eq!(plugin_name(path.as_ref()).as_deref(), name);
        }
        for path in
            ["/p/.mailer.wasm", "/p/mailer.wasm~", "/p/mailer.wasm.tmp", "/p/mailer.wasm.part", "/p/x.cwasm", "/p/.wasm"]
        {
            assert_eq!(plugin_name(path.as_ref()), None, "{path}");
            assert!(!matters(path.as_ref()), "{path}");
        }
        assert!(matters("/p/mailer.toml".as_ref()) && matters("/p/..data".as_ref()));
    }
}
