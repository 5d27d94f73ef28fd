//! What an operator does to plugins by hand, beside the host that serves them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outbox_event::time::system_clock;
use serde::Serialize;

use crate::config::PluginsConfig;
use crate::directory;
use crate::directory::file::Bytes;
use crate::directory::open_dir::OpenDir;
use crate::directory::pins::{Pin, Pins};
use crate::directory::trust::Trust;
use crate::directory::{ManifestFile, pins};
use crate::error::LoadError;
use crate::load::accepted;
use crate::private::Private;
use crate::private::last_good::LastGood;
use crate::private::quarantine::Quarantine;

/// Lets a component be compiled again whose compiler had to be stopped: true when it was not to be. A running host sees it with its
/// next scan, after [`rescan_interval`](PluginsConfig::rescan_interval) at the latest.
///
/// # Errors
/// When the plugin's file cannot be read, or the private directory cannot be used.
pub fn retry(config: &PluginsConfig, name: &str) -> Result<bool, LoadError> {
    let file = config.dir.join(format!("{name}.wasm"));
    let open_dir = OpenDir::open(&config.dir, Some(Trust::of(&config.trusted_owners)))?;
    let bytes = Bytes::read(&open_dir, &file)?;
    let private = private(config)?;
    Ok(Quarantine::new(Some(private), system_clock()).lift(&bytes.digest))
}

fn private(config: &PluginsConfig) -> Result<Arc<Private>, LoadError> {
    let none = |dir, reason: &str| LoadError::Directory { dir, reason: reason.to_owned() };
    let Some(dir) = &config.cache_dir else {
        return Err(none(config.dir.clone(), "the host has no private directory to note anything in; set plugins.cache_dir"));
    };
    let private = Private::open(dir).ok_or_else(|| none(dir.clone(), "it cannot be used as a private directory"))?;
    Ok(Arc::new(private))
}

/// What `plugin lock` has written of one plugin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Locked {
    /// The plugin's name.
    pub name: String,
    /// SHA-256 of the component, in hex.
    pub digest: String,
    /// How the pin differs from the file as it was.
    pub change: LockChange,
}

/// What became of a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LockChange {
    /// It was not pinned before.
    Added,
    /// It was pinned to another component or manifest.
    Changed,
    /// The pin is as it was.
    Unchanged,
    /// Its file is gone, and so is its pin; `digest` is the one that was pinned.
    Removed,
}

/// Pins every plugin of the directory to what lies there now, in [`lock`](PluginsConfig::lock) or `plugins.lock`. Returns the
/// pins by name, and the file.
///
/// # Errors
/// When the directory or one of its files cannot be read or trusted: then nothing is written.
pub fn lock(config: &PluginsConfig) -> Result<(PathBuf, Vec<Locked>), LoadError> {
    let trust = Trust::of(&config.trusted_owners);
    let open_dir = OpenDir::open(&config.dir, Some(trust.clone()))?;
    let unreadable = |error: std::io::Error| LoadError::Directory { dir: config.dir.clone(), reason: error.to_string() };
    let (rule, mut pins) = (config.rule(), BTreeMap::new());
    for (name, file) in open_dir.list().map_err(unreadable)? {
        let bytes = Bytes::read(&open_dir, &file)?;
        let written = match config.manifests.get(&name) {
            Some(manifest) => ManifestFile::from_config(manifest.clone()),
            None => directory::manifest_beside(&open_dir, &file)?,
        };
        accepted(&name, &file, &bytes.digest, &written)?;
        pins.insert(name, Pin::of(&bytes.digest, &written));
    }
    // A file that cannot be used is written anew.
    let before = rule.read(&config.dir, &open_dir, &trust).map(Pins::into_plugins).unwrap_or_default();
    let file = rule.file(&config.dir);
    write_pins(&file, pins.clone())?;
    let names: BTreeSet<&String> = before.keys().chain(pins.keys()).collect();
    let locked = |name: &String| {
        let (change, pin) = match (before.get(name), pins.get(name)) {
            (None, Some(pin)) => (LockChange::Added, pin),
            (Some(old), Some(pin)) if old == pin => (LockChange::Unchanged, pin),
            (_, Some(pin)) => (LockChange::Changed, pin),
            (old, None) => (LockChange::Removed, old?),
        };
        Some(Locked { name: name.clone(), digest: pin.component().to_owned(), change })
    };
    let locked = names.into_iter().filter_map(locked).collect();
    Ok((file, locked))
}

/// Writes the pins, whole or not at all. Blocks.
fn write_pins(file: &Path, pins: BTreeMap<String, Pin>) -> Result<(), LoadError> {
    put(file, pins::text(pins).as_bytes()).map_err(|error| LoadError::Lock { file: file.to_owned(), reason: error.to_string() })
}

/// Writes a file, whole or not at all. Blocks.
fn put(file: &Path, content: &[u8]) -> std::io::Result<()> {
    let draft = file.with_extension(format!("{:016x}.tmp", rand::random::<u64>()));
    let written = std::fs::write(&draft, content).and_then(|()| std::fs::rename(&draft, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    written
}

/// What a rollback does about a plugin that is pinned to another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WherePinned {
    /// It changes nothing: no host would load what it puts back.
    Refuse,
    /// It pins the plugin to the version that it puts back.
    PinAnew,
}

/// The components of a rollback, each by its SHA-256 in hex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolledBack {
    /// The component that was replaced; `None` if no component could be read.
    pub from: Option<String>,
    /// The component that is there now.
    pub to: String,
}

/// Puts the version that served before the last one back into the directory: component, and the manifest beside it. A running host
/// swaps it in as it does any other file.
///
/// # Errors
/// When no earlier version is known, no host would load it since the plugin is pinned to another, or the pins cannot be read or
/// written: nothing has changed then. When the files cannot be written.
pub fn rollback(config: &PluginsConfig, name: &str, pinned: WherePinned) -> Result<RolledBack, LoadError> {
    let file = config.dir.join(format!("{name}.wasm"));
    let refused = |reason: String| LoadError::Directory { dir: config.dir.clone(), reason };
    let trust = Trust::of(&config.trusted_owners);
    let open_dir = OpenDir::open(&config.dir, Some(trust.clone()))?;
    let good = LastGood::new(private(config)?, &config.dir);
    // Whatever lies there now, broken or good, is what is rolled back.
    let now = Bytes::read(&open_dir, &file).map(|bytes| bytes.digest).ok();
    let versions = good.versions(name);
    let earlier = versions.iter().find(|version| Some(&version.digest) != now.as_ref());
    let earlier = earlier.ok_or_else(|| refused(format!("no earlier version of {name} is known that served from here")))?;
    let bytes =
        good.bytes(&earlier.digest).ok_or_else(|| refused(format!("the earlier version of {name} is not kept any more")))?;
    let written = match (config.manifests.get(name), &earlier.manifest) {
        (Some(manifest), _) => ManifestFile::from_config(manifest.clone()),
        (None, Some(text)) => ManifestFile::noted(text.clone()),
        // What lies there stays.
        (None, None) => directory::manifest_beside(&open_dir, &file)?,
    };
    let rule = config.rule();
    let pins = rule.read(&config.dir, &open_dir, &trust).map_err(|(file, reason)| LoadError::Lock { file, reason })?;
    if let Err(error) = pins.check(name, &earlier.digest, &written) {
        if pinned == WherePinned::Refuse {
            return Err(error);
        }
        // Before the files: until they are there, what serves goes on, and if this cannot be written, nothing has changed.
        let mut pins = pins.into_plugins();
        pins.insert(name.to_owned(), Pin::of(&earlier.digest, &written));
        write_pins(&rule.file(&config.dir), pins)?;
    }
    let put_back = |file: &Path, content: &[u8]| {
        put(file, content).map_err(|error| refused(format!("{} cannot be written: {error}", file.display())))
    };
    if let Some(manifest) = &earlier.manifest {
        let beside = file.with_extension("toml");
        if manifest.is_empty() {
            // None lay there, and none is left.
            let _ = std::fs::remove_file(beside);
        } else {
            put_back(&beside, manifest.as_bytes())?;
        }
    }
    put_back(&file, &bytes)?;
    Ok(RolledBack { from: now, to: earlier.digest.clone() })
}
