//! The file that a session holds locked. The system lets the lock go when the process ends; the file stays then, until somebody
//! abandons the owner.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ulid::Ulid;

/// Where a session of one owner has its file.
pub(super) struct SessionFile {
    path: PathBuf,
}

impl SessionFile {
    /// Beside the database, whatever link led to it, so that all hosts look at one place. `None` when there is no such database, or
    /// when the owner is none that a host generates: its name comes from a row, and becomes part of a path.
    pub(super) fn of(database: &Path, owner: &str) -> Option<Self> {
        let (_, id) = owner.rsplit_once('/')?;
        if Ulid::from_string(id).ok()?.to_string() != id {
            return None;
        }
        let mut path = database.canonicalize().ok()?.into_os_string();
        path.push("-session-");
        path.push(id);
        Some(Self { path: path.into() })
    }

    /// Makes the file and locks it. A file that is there already is not opened, whatever it is.
    ///
    /// # Errors
    /// `AlreadyExists` when there is one; `WouldBlock` when somebody looks at it in this moment; `Unsupported` when the file system
    /// has no locks.
    pub(super) fn hold(self) -> io::Result<HeldFile> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display()));
        let file = OpenOptions::new().write(true).create_new(true).open(&self.path).map_err(named)?;
        let held = HeldFile { path: self.path, file };
        match held.file.try_lock() {
            Ok(()) => Ok(held),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Whether nobody holds it. What cannot be looked at is not free.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.look(), Look::NotThere | Look::Left(_))
    }

    /// Whether a process holds it. False if that is unknown.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.look(), Look::Held)
    }

    /// Removes a file that a host left behind, and nothing else.
    pub(super) fn remove_if_free(&self) {
        if let Look::Left(_locked) = self.look() {
            // One that stays does no harm: no owner comes twice.
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Takes the lock for a moment, and shares it with others who look.
    fn look(&self) -> Look {
        match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Look::NotThere,
            Ok(metadata) if metadata.is_file() => {}
            _ => return Look::Unknown,
        }
        match File::open(&self.path) {
            Ok(file) if is_at(&file, &self.path) => match file.try_lock_shared() {
                Ok(()) => Look::Left(file),
                Err(TryLockError::WouldBlock) => Look::Held,
                Err(TryLockError::Error(_)) => Look::Unknown,
            },
            _ => Look::Unknown,
        }
    }
}

/// What a file says of the session of its owner.
enum Look {
    /// A process holds its lock.
    Held,
    /// It cannot be opened or locked, or is no file.
    Unknown,
    /// The session ended, or there was none.
    NotThere,
    /// The owner went without removing it. Locked until this is dropped.
    Left(File),
}

/// A file that is locked, and removed when this is dropped.
pub(super) struct HeldFile {
    path: PathBuf,
    file: File,
}

impl HeldFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether others find this very file: they would take the lock of another one to be free.
    pub(super) fn is_there(&self) -> bool {
        is_at(&self.file, &self.path)
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        if self.is_there() {
            // One that stays is abandoned, as if this process had been killed.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether a file stands at this path itself, not behind a link.
fn is_at(file: &File, path: &Path) -> bool {
    let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(ours), Ok(there)) => place(ours) == place(there),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_of_a_host_becomes_a_path() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().canonicalize().unwrap().join("a b.db");
        let id = Ulid::generate().to_string();
        let file = |owner: &str| SessionFile::of(&database, owner).map(|file| file.path);
        assert_eq!(file(&format!("host/{id}")), None, "there is no database");
        fs::write(&database, "").unwrap();

        assert_eq!(
            file(&format!("host/a/{id}")),
            Some(directory.path().canonicalize().unwrap().join(format!("a b.db-session-{id}")))
        );
        let lower = id.to_lowercase();
        for bad in ["", "/", "host", &id, "host/../../etc/passwd", &format!("host/{id}0"), &format!("host/{lower}"), "host/\0"]
        {
            assert_eq!(file(bad), None, "{bad:?}");
        }
    }
}
