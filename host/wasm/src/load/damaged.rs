//! The error for bytes that are no whole component.

use crate::directory::file::Bytes;
use crate::error::LoadError;

/// The reader cannot read these bytes.
pub(super) fn damaged(bytes: &Bytes, error: &wasmparser::BinaryReaderError) -> LoadError {
    LoadError::Damaged {
        file: bytes.file.clone(),
        offset: error.offset() as u64,
        bytes: bytes.bytes.len() as u64,
        reason: error.message().to_owned(),
    }
}
