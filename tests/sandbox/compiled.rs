//! Compiled sample plugins, kept for later tests.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use support::sample_plugins;
use tempfile::TempDir;

const KEY_FILE: &str = "key";
/// A host refuses a cache that other users can read.
const PRIVATE: u32 = 0o700;

/// A cache directory of a test's own, for `PluginsConfig::cache_dir`. It begins with the samples that other tests have compiled, and
/// with nothing else: a quarantine or a last good version of one test is not seen by another.
pub(crate) struct CompiledSamples(TempDir);

impl CompiledSamples {
    pub(crate) fn new() -> Self {
        let own = tempfile::Builder::new().permissions(Permissions::from_mode(PRIVATE)).tempdir_in(shared());
        let own = own.expect("the target directory is ours");
        link(shared(), own.path(), |name| name == KEY_FILE || is_sample(name));
        Self(own)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Keeps what this test was the first to compile.
impl Drop for CompiledSamples {
    fn drop(&mut self) {
        link(self.path(), shared(), is_sample);
    }
}

/// Gives the chosen files of one directory a second name in another, where they have none.
fn link(from: &Path, to: &Path, is_chosen: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(from).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(&is_chosen) {
            // It may be there already. What is missing, a host compiles.
            let _ = fs::hard_link(entry.path(), to.join(name));
        }
    }
}

/// The directory that outlives tests. With a key: a host loads only what was written under its own.
fn shared() -> &'static Path {
    static SHARED: OnceLock<PathBuf> = OnceLock::new();
    SHARED.get_or_init(|| {
        let directory = sample_plugins().join("../compiled-samples");
        fs::DirBuilder::new().recursive(true).mode(PRIVATE).create(&directory).expect("the target directory is ours");
        let mut draft = tempfile::Builder::new().tempfile_in(&directory).expect("the target directory is ours");
        draft.write_all(&rand::random::<[u8; 32]>()).expect("the target directory is ours");
        if let Err(error) = draft.persist_noclobber(directory.join(KEY_FILE)) {
            assert_eq!(error.error.kind(), ErrorKind::AlreadyExists, "{}", error.error);
        }
        directory
    })
}

/// Whether a file of this name is what the compiler made of a sample. The name begins with the SHA-256 of the component.
fn is_sample(name: &str) -> bool {
    static DIGESTS: OnceLock<HashSet<String>> = OnceLock::new();
    let digests = DIGESTS.get_or_init(|| {
        let samples = fs::read_dir(sample_plugins()).expect("the samples are there");
        let bytes = samples.map(|sample| fs::read(sample.expect("it can be listed").path()).expect("it can be read"));
        bytes.map(|bytes| HEXLOWER.encode(&Sha256::digest(bytes))).collect()
    });
    name.split_once('-').is_some_and(|(digest, _)| digests.contains(digest))
}
