//! Component files, read once: everything later uses those bytes.

use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outbox_event::time::Timestamp;
use sha2::{Digest as _, Sha256};

use super::open_dir::OpenDir;
use crate::error::LoadError;
use crate::limits::MAX_FILE_BYTES;

/// A bare header: eight bytes that are a valid, empty component.
const HEADER_BYTES: usize = 8;
/// A file that nobody touched for this long is complete: below the debounce, so that a file just noticed need not wait.
const QUIET: Duration = Duration::from_millis(220);
const COARSE_QUIET: Duration = Duration::from_millis(1_250);

/// The bytes of a component, and their name.
#[derive(Clone)]
pub(crate) struct Bytes {
    pub(crate) file: PathBuf,
    pub(crate) bytes: Vec<u8>,
    /// SHA-256, in hex.
    pub(crate) digest: String,
}

impl Bytes {
    pub(crate) fn of(file: &Path, bytes: Vec<u8>) -> Self {
        let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(&bytes));
        Self { file: file.to_owned(), bytes, digest }
    }

    /// Reads a file of the directory. Blocks.
    pub(crate) fn read(open_dir: &OpenDir, file: &Path) -> Result<Self, LoadError> {
        let read = |source| LoadError::Read { file: file.to_owned(), source };
        let (mut opened, before) = open_dir.read(file.file_name().unwrap_or_default())?;
        if before.len() > MAX_FILE_BYTES {
            return Err(LoadError::TooLarge { file: file.to_owned(), bytes: before.len() });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(before.len()).expect("at most 32 MiB"));
        // One byte more than allowed: the file may have grown since.
        (&mut opened).take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(read)?;
        let after = opened.metadata().map_err(read)?;
        if Stamp::of(&before) != Stamp::of(&after) || bytes.len() as u64 != after.len() {
            return Err(LoadError::Changing { file: file.to_owned() });
        }
        let bytes = Self::of(file, bytes);
        bytes.check_kind()?;
        Ok(bytes)
    }

    /// Tells a component from everything else that ends in `.wasm`.
    pub(crate) fn check_kind(&self) -> Result<(), LoadError> {
        let not = |reason: &str| Err(LoadError::NotAComponent { file: self.file.clone(), reason: reason.to_owned() });
        match self.bytes.as_slice() {
            [] => not("it is empty; was it copied completely?"),
            bytes if wasmtime::Engine::detect_precompiled(bytes).is_some() => not(
                "it is precompiled, and loading such a file runs it unchecked; put the .wasm there, the host keeps its own cache",
            ),
            bytes if !bytes.starts_with(b"\0asm") => {
                let text = bytes.iter().take(512).all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
                if text {
                    not("it is text; translate it with `wasm-tools parse`, or build for wasm32-wasip2")
                } else {
                    not("it does not begin like one; is it another kind of file, or an archive?")
                }
            }
            bytes if bytes.len() < HEADER_BYTES => not("it ends within its header; was it copied completely?"),
            bytes if bytes[6..8] == [0, 0] => {
                not("it is a core module; build for wasm32-wasip2, or make a component of it with `outbox plugin componentize`")
            }
            bytes if bytes.len() == HEADER_BYTES => not("it holds a header and nothing else; was it copied completely?"),
            _ => Ok(()),
        }
    }
}

/// What changes when somebody writes a file, or puts another one in its place, or changes who may.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether nobody has touched the file for a while, so that the next touch will change this stamp. Some file systems count in
    /// whole seconds.
    pub(crate) fn is_quiet(&self, now: Timestamp) -> bool {
        let (seconds, nanos) = self.changed;
        let rest = if nanos == 0 { COARSE_QUIET } else { QUIET };
        now.since(Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(nanos / 1_000))) >= rest
    }
}
