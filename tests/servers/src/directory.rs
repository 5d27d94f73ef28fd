//! The directory of one server.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Fault;
use crate::program::Account;

const PREFIX: &str = "outbox-test-servers-";

/// A directory in the system's temporary one, gone with this value.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// For this account alone.
    pub(crate) fn make(account: Account) -> Result<Self, Fault> {
        static COUNT: AtomicU32 = AtomicU32::new(0);

        let parent = std::env::temp_dir();
        sweep(&parent);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = Self(parent.join(format!("{PREFIX}{}-{number}", std::process::id())));
        let path = directory.path();
        // Never one that is there: somebody else may have put it in our way.
        fs::create_dir(path).map_err(|error| Fault::file("make", path, &error))?;
        #[cfg(unix)]
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .map_err(|error| Fault::file("close to others", path, &error))?;
        account.own(path)?;
        Ok(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file that only the account can read.
    pub(crate) fn write(&self, name: &str, text: &str, account: Account) -> Result<PathBuf, Fault> {
        let path = self.0.join(name);
        fs::write(&path, text).map_err(|error| Fault::file("write", &path, &error))?;
        account.own(&path)?;
        Ok(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok(); // what is left, the next start sweeps away
    }
}

/// Removes what processes left behind that were killed outright. Their servers were killed with them.
fn sweep(parent: &Path) {
    if !Path::new("/proc/self").exists() {
        return; // here nobody can tell which processes still run
    }
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_str().and_then(owner);
        if owner.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            fs::remove_dir_all(entry.path()).ok(); // perhaps another user's
        }
    }
}

/// The process that made a directory of this name.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_directories_have_an_owner() {
        assert_eq!(owner("outbox-test-servers-4711-2"), Some(4711));
        assert_eq!(owner("outbox-test-servers-"), None);
        assert_eq!(owner("outbox-4711-2"), None);
    }
}
