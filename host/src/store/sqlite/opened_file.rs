//! Whether the file still stands where it was opened. Moved, deleted or replaced under a host, it can be written as before, and nobody
//! else sees what is written; what is written to a deleted one is gone with the last program that has it open.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;

use crate::store::StoreError;

/// Where the file was opened, and which one it is.
#[derive(Debug, Default)]
pub(super) struct OpenedFile {
    /// In full, whatever becomes the working directory; `None` for a database in memory.
    path: Option<Box<Path>>,
    /// Device and inode, as the first look found them. Of a pool that somebody lends, the file may be there later only.
    file: OnceLock<(u64, u64)>,
}

impl OpenedFile {
    /// Of a file that is open, or will be.
    pub(super) fn of(path: &Path) -> Self {
        Self { path: std::path::absolute(path).ok().map(Into::into), ..Self::default() }
    }

    /// The path in full; `None` for a database in memory.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Looks whether it still stands there.
    ///
    /// # Errors
    /// `Unreachable` when another file stands there, or none.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let Some(path) = &self.path else { return Ok(()) };
        let found = found(path);
        let opened = match (self.file.get(), found) {
            (Some(opened), _) => *opened,
            (None, Some(found)) => *self.file.get_or_init(|| found),
            (None, None) => return Ok(()),
        };
        if found == Some(opened) {
            return Ok(());
        }
        Err(StoreError::Unreachable {
            database: path.display().to_string(),
            why: "the file was moved, deleted or replaced while this program had it open, so nobody would see what is written. Put \
                  it back with its -wal, and the host goes on; or stop the host to let it use what stands there now"
                .to_owned(),
            source: None,
        })
    }
}

fn found(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_moved_or_replaced_is_found_out_and_one_that_was_put_back_is_good() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let (file, elsewhere) = (directory.path().join("outbox.db"), directory.path().join("elsewhere.db"));
        let early = OpenedFile::of(&file);
        assert!(early.check().is_ok(), "it is not there yet");
        fs::write(&file, "one").expect("written");
        let opened = OpenedFile::of(&file);
        assert!(opened.check().is_ok() && early.check().is_ok(), "the first look finds which one it is");

        fs::rename(&file, &elsewhere).expect("moved");
        let error = opened.check().expect_err("it is gone").to_string();
        assert!(error.contains("moved, deleted or replaced") && early.check().is_err(), "{error}");
        fs::write(&file, "another").expect("written");
        assert!(opened.check().is_err(), "it is another file");

        fs::rename(&elsewhere, &file).expect("put back");
        assert!(opened.check().is_ok());
        assert!(OpenedFile::default().check().is_ok(), "in memory there is no file");
    }
}
