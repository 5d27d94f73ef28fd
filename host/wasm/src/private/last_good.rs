//! The last versions of each plugin that served, kept for a start at which the file in the directory does not load.
//!
//! Bytes and manifest are kept, and not only what was compiled of them: an update of the host compiles anew. Of a plugin whose file
//! was removed nothing is remembered, so that it stays removed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outbox_event::time::Timestamp;
use outbox_event::units::ByteSize;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Listed, Private};

const POINTER: &str = ".good";
const COMPONENT: &str = ".component";
/// How many versions of a plugin are remembered.
const VERSIONS: usize = 3;
/// A plugins directory that no host has looked at for this long is forgotten.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3_600);
/// A component that nothing points to is deleted after this long: whoever has just written it may be about to point to it.
const GRACE: Duration = Duration::from_secs(24 * 3_600);

/// A version that served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Version {
    /// SHA-256 of the component, in hex.
    pub(crate) digest: String,
    /// The manifest beside the component; `None` when the host's own counted.
    pub(crate) manifest: Option<String>,
    /// When it began to serve.
    pub(crate) since: Timestamp,
}

/// The versions that served from one plugins directory.
pub(crate) struct LastGood {
    private: Arc<Private>,
    /// A digest of the directory's path: several hosts of one user share the private directory.
    place: String,
}

impl LastGood {
    pub(crate) fn new(private: Arc<Private>, dir: &Path) -> Self {
        // The configured path: a deployment may replace a symbolic link in it, and the earlier versions must remain known.
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        // Without a trailing slash.
        let dir: PathBuf = dir.components().collect();
        let digest = Sha256::digest(dir.as_os_str().as_encoded_bytes());
        Self { private, place: data_encoding::HEXLOWER.encode(&digest[..8]) }
    }

    /// Keeps the bytes of a component, so that it may be noted once it serves. Blocks.
    pub(crate) fn keep(&self, digest: &str, bytes: &[u8]) {
        let name = format!("{digest}{COMPONENT}");
        if self.private.has(&name) {
            self.private.touch(&name);
        } else if let Err(error) = self.private.write(&name, bytes) {
            tracing::warn!(
                target: "outbox::wasm::private::last_good",
                "a restart cannot fall back on {digest}: {} cannot be written: {error}",
                self.private.path(&name).display()
            );
        }
    }

    /// Notes that a version serves now. Blocks.
    pub(crate) fn note(&self, plugin: &str, version: Version) {
        let mut versions = self.versions(plugin);
        if versions.first().is_some_and(|last| last.digest == version.digest && last.manifest == version.manifest) {
            return;
        }
        versions.retain(|other| other.digest != version.digest || other.manifest != version.manifest);
        versions.insert(0, version);
        versions.truncate(VERSIONS);
        let content = serde_json::to_vec(&versions).expect("versions are plain data");
        if let Err(error) = self.private.write(&self.pointer(plugin), &content) {
            tracing::warn!(
                target: "outbox::wasm::private::last_good",
                "a restart cannot fall back on the last good version of {plugin}: it cannot be noted: {error}"
            );
        }
    }

    /// The versions of a plugin that served, the last one first.
    pub(crate) fn versions(&self, plugin: &str) -> Vec<Version> {
        let noted = self.private.read(&self.pointer(plugin));
        noted.and_then(|content| serde_json::from_slice(&content).ok()).unwrap_or_default()
    }

    /// The bytes of a version, if they are what they were. Blocks.
    pub(crate) fn bytes(&self, digest: &str) -> Option<Vec<u8>> {
        self.private.read(&format!("{digest}{COMPONENT}"))
    }

    /// Forgets a plugin that was removed. Blocks.
    pub(crate) fn forget(&self, plugin: &str) {
        self.private.remove(&self.pointer(plugin));
    }

    /// Forgets the plugins of this directory that are not among these. Blocks.
    pub(crate) fn forget_others(&self, plugins: &BTreeSet<String>) {
        let own = self.pointer("");
        let own = own.strip_suffix(POINTER).unwrap_or_default();
        for pointer in self.private.list(POINTER) {
            let plugin = pointer.name.strip_prefix(own).and_then(|name| name.strip_suffix(POINTER));
            if plugin.is_some_and(|plugin| !plugins.contains(plugin)) {
                self.private.remove(&pointer.name);
            }
        }
    }

    /// Throws away what is remembered of directories that no host looks at any more, then the components that no version of any
    /// plugin points to, and then, until at most `max` bytes are kept, earlier versions: those first that have not served for the
    /// longest. The last version of each plugin stays. Returns the digests of those that are kept. Blocks.
    pub(crate) fn shrink(&self, max: ByteSize, now: Timestamp) -> BTreeSet<String> {
        let mut versions: Vec<Vec<Version>> = Vec::new();
        for pointer in self.private.list(POINTER) {
            if pointer.name.starts_with(&self.place) {
                self.private.touch(&pointer.name);
            } else if now.since(pointer.used) > MAX_AGE {
                self.private.remove(&pointer.name);
                continue;
            }
            versions.extend(self.private.read(&pointer.name).and_then(|content| serde_json::from_slice(&content).ok()));
        }
        let digests = |versions: &[Version]| versions.iter().map(|version| version.digest.clone()).collect::<Vec<_>>();
        let last: BTreeSet<String> = versions.iter().flat_map(|of_one| digests(&of_one[..of_one.len().min(1)])).collect();
        let mut earlier: Vec<Version> = versions.into_iter().flat_map(|of_one| of_one.into_iter().skip(1)).collect();
        earlier.sort_by_key(|version| std::cmp::Reverse(version.since));
        let mut files: BTreeMap<String, Listed> = self.private.list(COMPONENT).into_iter().filter_map(by_digest).collect();
        let mut bytes: u64 = last.iter().filter_map(|digest| files.remove(digest)).map(|file| file.bytes).sum();
        let mut kept = last;
        for version in earlier {
            let Some(file) = files.remove(&version.digest) else { continue };
            if bytes + file.bytes > max.0 {
                self.private.remove(&file.name);
            } else {
                bytes += file.bytes;
                kept.insert(version.digest);
            }
        }
        for file in files.values().filter(|file| now.since(file.used) > GRACE) {
            self.private.remove(&file.name);
        }
        kept
    }

    /// A plugin's name has no character that a file name may not have.
    fn pointer(&self, plugin: &str) -> String {
        format!("{}-{plugin}{POINTER}", self.place)
    }
}

fn by_digest(file: Listed) -> Option<(String, Listed)> {
    Some((file.name.strip_suffix(COMPONENT)?.to_owned(), file))
}
