//! Whether the file and its `-wal` still stand where they were opened. Moved, deleted or replaced under a host, they can be read and
//! written as before, and nobody else sees what is written; what is written to a deleted one is gone with the last program that has
//! it open.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::StoreError;

/// Where the file was opened, and which one it is.
#[derive(Debug, Default)]
pub(super) struct OpenedFile {
    /// In full, whatever becomes the working directory; `None` for a database in memory.
    path: Option<Box<Path>>,
    /// The file as the first look found it. Of a pool that somebody lends, it may be there later only.
    file: OnceLock<Inode>,
    /// Its `-wal`, as the connections of this process have it open, and where.
    wal: OnceLock<(PathBuf, Inode)>,
    /// When the file itself was changed last, as the last look found it while all was well.
    changed: Mutex<Option<Changed>>,
    /// Whether the connections were closed: what becomes of the files then is others' business.
    is_closed: AtomicBool,
    /// Whether the `-wal` was gone at an earlier look.
    wal_was_gone: AtomicBool,
    /// Whether others may have written to the file without that `-wal`, which must not come back then.
    may_be_written_by_others: AtomicBool,
}

/// Device and number.
type Inode = (u64, u64);
/// Seconds and nanoseconds.
type Changed = (i64, i64);

impl OpenedFile {
    /// Of a file that is open, or will be.
    pub(super) fn of(path: &Path) -> Self {
        Self { path: std::path::absolute(path).ok().map(Into::into), ..Self::default() }
    }

    /// The path in full; `None` for a database in memory.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Notes which `-wal` is open. To be called when a connection of this process that stays open has read from the file: as long
    /// as it is open, SQLite neither removes the `-wal` nor makes another.
    pub(super) fn note_wal(&self) {
        // It stands beside the file, whatever link led to that.
        let Some(wal) = self.path().and_then(|path| path.canonicalize().ok()).map(|file| with_suffix(&file, "-wal")) else {
            return;
        };
        if let Some(found) = found(&wal) {
            let _ = self.wal.set((wal, found));
        }
    }

    /// Looks whether the file and its `-wal` still stand there.
    ///
    /// # Errors
    /// `Moved` when another one stands there, or none.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let Some(path) = self.path() else { return Ok(()) };
        let metadata = fs::metadata(path).ok();
        let found = metadata.as_ref().map(inode);
        let opened = match (self.file.get(), found) {
            (Some(opened), _) => *opened,
            (None, Some(found)) => *self.file.get_or_init(|| found),
            (None, None) => return Ok(()),
        };
        let Some(metadata) = metadata.filter(|_| found == Some(opened)) else {
            let advice =
                "Put it back with its -wal, and this program goes on; or restart this program, which then uses what is there";
            return Err(moved(path, "the file was moved, deleted or replaced while it was open", advice));
        };
        if let Some((wal, _)) = self.wal.get() {
            let has_wal = self.has_wal();
            self.note_wal_state(has_wal, wal, &metadata);
            if self.may_be_written_by_others.load(Ordering::Relaxed) {
                let why =
                    "the -wal was moved, deleted or replaced while it was open, and others have written to the file since";
                return Err(moved(wal, why, "Do not put the old -wal back; restart this program"));
            }
            if !has_wal {
                let advice = "If nothing else has written to the file since, put the -wal back, and this program goes on; otherwise restart \
                              this program";
                return Err(moved(wal, "the -wal was moved, deleted or replaced while it was open", advice));
            }
        }
        *self.changed.lock().unwrap_or_else(PoisonError::into_inner) = Some(changed(&metadata));
        Ok(())
    }

    /// Notes that the connections of this process are about to be closed.
    pub(super) fn note_closing(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Whether the `-wal` that is open stands there, if any is.
    fn has_wal(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed) || self.wal.get().is_none_or(|(wal, opened)| found(wal) == Some(*opened))
    }

    /// Notes what a look found while the `-wal` was gone, and that it is back.
    fn note_wal_state(&self, has_wal: bool, wal: &Path, file: &Metadata) {
        if !has_wal {
            self.wal_was_gone.store(true, Ordering::Relaxed);
        } else if !self.wal_was_gone.load(Ordering::Relaxed) {
            return;
        }
        let is_another_in_use = !has_wal && fs::metadata(wal).is_ok_and(|other| other.len() > 0);
        let last = *self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if is_another_in_use || last != Some(changed(file)) {
            self.may_be_written_by_others.store(true, Ordering::Relaxed);
        } else if has_wal {
            self.wal_was_gone.store(false, Ordering::Relaxed);
        }
    }

    /// Whether the connections may be closed. The last one that is closed writes what stands in the `-wal` into the file: over what
    /// others have written to it since, where they had another `-wal`.
    pub(super) fn may_be_closed(&self) -> bool {
        let Some((path, (wal, _))) = self.path().zip(self.wal.get()) else { return true };
        // Another file has nothing to do with this one's connections.
        let Some(file) = fs::metadata(path).ok().filter(|found| self.file.get() == Some(&inode(found))) else { return true };
        self.note_wal_state(self.has_wal(), wal, &file);
        !self.may_be_written_by_others.load(Ordering::Relaxed)
    }
}

fn moved(path: &Path, why: &'static str, advice: &'static str) -> StoreError {
    StoreError::Moved { file: path.display().to_string(), why, advice }
}

fn found(path: &Path) -> Option<Inode> {
    fs::metadata(path).ok().as_ref().map(inode)
}

fn inode(metadata: &Metadata) -> Inode {
    (metadata.dev(), metadata.ino())
}

fn changed(metadata: &Metadata) -> Changed {
    (metadata.mtime(), metadata.mtime_nsec())
}

/// The path with something behind its last name.
pub(super) fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
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

    #[test]
    fn a_wal_that_is_gone_is_found_out_and_is_written_into_a_file_alone_that_nobody_has_changed() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let (file, wal) = (directory.path().join("outbox.db"), directory.path().join("outbox.db-wal"));
        fs::write(&file, "one").expect("written");
        let opened = OpenedFile::of(&file);
        opened.note_wal();
        fs::write(&wal, "two").expect("written");
        assert!(opened.check().is_ok() && opened.may_be_closed(), "it had none");
        opened.note_wal();
        assert!(opened.check().is_ok() && opened.may_be_closed());

        let elsewhere = directory.path().join("elsewhere-wal");
        fs::rename(&wal, &elsewhere).expect("moved");
        let error = opened.check().expect_err("it is gone").to_string();
        assert!(error.contains("the -wal was moved") && opened.may_be_closed(), "{error}");
        fs::rename(&elsewhere, &wal).expect("put back");
        assert!(opened.check().is_ok() && opened.may_be_closed());
        fs::rename(&wal, &elsewhere).expect("moved again");
        assert!(opened.check().is_err());
        fs::write(&wal, "").expect("written");
        assert!(opened.check().is_err() && opened.may_be_closed(), "somebody else has it open, and has written nothing");
        fs::write(&wal, "three").expect("written");
        opened.note_wal();
        assert!(opened.check().is_err() && !opened.may_be_closed(), "somebody writes to another one");
        fs::remove_file(&wal).expect("removed");
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(9);
        fs::File::options().write(true).open(&file).and_then(|file| file.set_modified(at)).expect("changed");
        assert!(opened.check().is_err() && !opened.may_be_closed(), "somebody has written to it and closed it");

        fs::rename(&elsewhere, &wal).expect("put back");
        let error = opened.check().expect_err("it does not fit the file any more").to_string();
        assert!(error.contains("Do not put the old -wal back") && !opened.may_be_closed(), "{error}");
    }
}
