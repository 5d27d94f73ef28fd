//! Whether the file still stands where it was opened. Moved, deleted or replaced under a host, it can be written as before, and nobody
//! else sees what is written; what is written to a deleted one is gone with the last program that has it open.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::store::StoreError;

/// Where the file was opened, and which one it is.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// In full, whatever becomes the working directory; `None` for a database in memory.
    path: Option<Box<Path>>,
    /// Device and inode, as the first look found them. Of a pool that somebody lends, the file may be there later only.
    file: OnceLock<(u64, u64)>,
    /// Whether the last look found another file there, or none.
    is_elsewhere: AtomicBool,
}

impl Place {
    /// Of a file that is open, or will be.
    pub(super) fn of(path: &Path) -> Self {
        Self { path: std::path::absolute(path).ok().map(Into::into), ..Self::default() }
    }

    /// The path in full; `None` for a database in memory.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Looks.
    ///
    /// # Errors
    /// `Unreachable` when another file stands there, or none.
    pub(super) fn look(&self) -> Result<(), StoreError> {
        let found = self.found();
        let opened = match (self.file.get(), found) {
            (Some(opened), _) => *opened,
            (None, Some(found)) => *self.file.get_or_init(|| found),
            (None, None) => return Ok(()),
        };
        self.is_elsewhere.store(found != Some(opened), Ordering::Relaxed);
        self.known()
    }

    /// What the last look found: for those who have no time to look.
    ///
    /// # Errors
    /// See [`look`](Self::look).
    pub(super) fn known(&self) -> Result<(), StoreError> {
        match &self.path {
            Some(path) if self.is_elsewhere.load(Ordering::Relaxed) => Err(StoreError::Unreachable {
                database: path.display().to_string(),
                why: "the file was moved, deleted or replaced while this program had it open, so nobody would see what is written. Put \
                      it back with its -wal, and the host goes on; or stop the host to let it use what stands there now"
                    .to_owned(),
                source: None,
            }),
            _ => Ok(()),
        }
    }

    fn found(&self) -> Option<(u64, u64)> {
        let metadata = fs::metadata(self.path.as_deref()?).ok()?;
        Some((metadata.dev(), metadata.ino()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_moved_or_replaced_is_found_out_and_one_that_was_put_back_is_good() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let (file, elsewhere) = (directory.path().join("outbox.db"), directory.path().join("elsewhere.db"));
        let early = Place::of(&file);
        assert!(early.look().is_ok(), "it is not there yet");
        fs::write(&file, "one").expect("written");
        let place = Place::of(&file);
        assert!(place.look().is_ok() && early.look().is_ok(), "the first look finds which one it is");

        fs::rename(&file, &elsewhere).expect("moved");
        assert!(place.known().is_ok(), "nobody has looked");
        let error = place.look().expect_err("it is gone").to_string();
        assert!(error.contains("moved, deleted or replaced") && place.known().is_err() && early.look().is_err(), "{error}");
        fs::write(&file, "another").expect("written");
        assert!(place.look().is_err(), "it is another file");

        fs::rename(&elsewhere, &file).expect("put back");
        assert!(place.look().is_ok() && place.known().is_ok());
        assert!(Place::default().look().is_ok(), "in memory there is no file");
    }
}
