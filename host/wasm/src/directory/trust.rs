//! Who may write to a file or a directory: whoever can, runs code in this host.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Root owns what the system's packages install.
const ROOT: u32 = 0;
const BY_GROUP: u32 = 0o020;
const BY_ANYBODY: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// The users whose files are loaded.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    user: u32,
    others: Vec<u32>,
}

impl Trust {
    /// This process's user, root, and the users of these numbers.
    pub(crate) fn of(others: &[u32]) -> Self {
        Self { user: rustix::process::geteuid().as_raw(), others: others.to_vec() }
    }

    /// Why a file or directory must not be loaded from, and what to do; `None` when nobody else can write to it. What is `frozen`
    /// lies on a file system that is mounted read-only, where the mode says nothing.
    pub(crate) fn objection(&self, metadata: &Metadata, frozen: bool) -> Option<String> {
        let (owner, group, mode) = (metadata.uid(), metadata.gid(), metadata.mode());
        if owner != ROOT && owner != self.user && !self.others.contains(&owner) {
            return Some(format!(
                "it belongs to user {owner}, who is neither root nor this process's user {}; change its owner, or add {owner} to \
                 plugins.trusted_owners",
                self.user
            ));
        }
        if frozen {
            return None;
        }
        if mode & BY_ANYBODY != 0 {
            return Some("anybody can write to it, and so run code in this host; run `chmod o-w` on it".to_owned());
        }
        // Many systems give each user a group of their own, of the same number, and let it write.
        if mode & BY_GROUP != 0 && group != owner {
            return Some(format!("group {group} can write to it, and so run code in this host; run `chmod g-w` on it"));
        }
        None
    }
}

/// Whether anybody can put something else in the place of what lies in this directory.
pub(crate) fn anybody_replaces(metadata: &Metadata) -> bool {
    metadata.mode() & BY_ANYBODY != 0 && metadata.mode() & STICKY == 0
}
