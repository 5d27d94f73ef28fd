//! Component files, opened without following links out of the directory, and read once: everything later uses those bytes.

use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use super::error::LoadError;

/// The largest component file.
pub(super) const MAX_FILE_BYTES: u64 = 32 << 20;
/// A bare header: eight bytes that are a valid, empty component.
const HEADER_BYTES: usize = 8;

/// The bytes of a component, and their name.
#[derive(Clone)]
pub(super) struct Bytes {
    pub(super) file: PathBuf,
    pub(super) bytes: Vec<u8>,
    /// SHA-256, in hex.
    pub(super) digest: String,
}

impl Bytes {
    pub(super) fn of(file: &Path, bytes: Vec<u8>) -> Self {
        let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(&bytes));
        Self { file: file.to_owned(), bytes, digest }
    }

    /// Reads a file of the directory. Blocks.
    pub(super) fn read(dir: &Path, file: &Path) -> Result<Self, LoadError> {
        let read = |source| LoadError::Read { file: file.to_owned(), source };
        let mut opened = open(dir, file)?;
        let before = opened.metadata().map_err(read)?;
        if !before.is_file() {
            return Err(LoadError::NotAFile { file: file.to_owned() });
        }
        if before.len() > MAX_FILE_BYTES {
            return Err(LoadError::TooLarge { file: file.to_owned(), bytes: before.len() });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(before.len()).expect("at most 32 MiB"));
        // One byte more than allowed: the file may have grown since.
        (&mut opened).take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(read)?;
        let after = opened.metadata().map_err(read)?;
        if stamp(&before) != stamp(&after) || bytes.len() as u64 != after.len() {
            return Err(LoadError::Changing { file: file.to_owned() });
        }
        let bytes = Self::of(file, bytes);
        bytes.check_kind()?;
        Ok(bytes)
    }

    /// Tells a component from everything else that ends in `.wasm`.
    pub(super) fn check_kind(&self) -> Result<(), LoadError> {
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
                not("it is a core module; build for wasm32-wasip2, or wrap it with `wasm-tools component new`")
            }
            bytes if bytes.len() == HEADER_BYTES => not("it holds a header and nothing else; was it copied completely?"),
            _ => Ok(()),
        }
    }
}

/// Opens without following a link; a link that stays within the directory is followed first, by name.
pub(super) fn open(dir: &Path, file: &Path) -> Result<File, LoadError> {
    let read = |source| LoadError::Read { file: file.to_owned(), source };
    let dir = dir.canonicalize().map_err(read)?;
    let target = file.canonicalize().map_err(read)?;
    if !target.starts_with(&dir) {
        return Err(LoadError::Outside { file: file.to_owned(), target });
    }
    // Not to wait for the other end of a pipe, and not to follow a link that was put there since.
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(&target)
        .map_err(read)
}

/// What changes when somebody writes a file, or puts another one in its place.
pub(super) type Stamp = (u64, u64, u64, Option<SystemTime>);

/// The file's stamp.
pub(super) fn stamp(metadata: &Metadata) -> Stamp {
    (metadata.dev(), metadata.ino(), metadata.len(), metadata.modified().ok())
}
