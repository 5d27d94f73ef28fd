//! Why the system does not let this user at a file, and what to do: whose it is, and as whom this program runs.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::config::user_called;

/// What this user lacks to make a file or directory, as lines for a failure; none when it lacks nothing.
pub(crate) fn to_create(file: &Path) -> Vec<String> {
    lacking(file, Wanted::New)
}

/// What this user lacks to read and write a file and to make others beside it.
pub(crate) fn to_use(file: &Path) -> Vec<String> {
    lacking(file, Wanted::InUse)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    New,
    InUse,
}

fn lacking(file: &Path, wanted: Wanted) -> Vec<String> {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let Some(dir) = file.parent() else { return Vec::new() };
    let may = |path: &Path, access| accessat(CWD, path, access, AtFlags::EACCESS).is_ok();
    let mut above: Vec<PathBuf> = dir.ancestors().map(Path::to_owned).collect();
    above.reverse();
    let closed = above.iter().find(|dir| dir.is_dir() && !may(dir, Access::EXEC_OK));
    let (place, what) = if let Some(closed) = closed {
        (closed.as_path(), "enter it")
    } else if file.exists() && wanted == Wanted::InUse && !may(&file, Access::READ_OK) {
        (file.as_path(), "read it")
    } else if file.exists() && !may(&file, Access::WRITE_OK) {
        (file.as_path(), "write to it")
    } else if (wanted == Wanted::InUse || !file.exists()) && dir.is_dir() && !may(dir, Access::WRITE_OK) {
        (dir, "make files in it")
    } else {
        return Vec::new();
    };
    let us = user_called(rustix::process::geteuid().as_raw());
    let Ok(found) = place.metadata() else { return Vec::new() };
    let (owner, mode) = (user_called(found.uid()), found.mode() & 0o7777);
    vec![
        format!(
            "{} belongs to {owner}, with the mode {mode:03o}; this program runs as {us}, which may not {what}",
            place.display()
        ),
        format!("run it as {owner}, or give {us} that right with chown or chmod"),
    ]
}
