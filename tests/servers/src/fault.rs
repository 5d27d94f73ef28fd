//! Why there is no server.

use std::fmt;
use std::io;
use std::path::Path;

/// What failed, and what to do about it: for people, never matched on.
#[derive(Debug)]
pub struct Fault(String);

impl Fault {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// A fault of the file system: `cannot make /…/data: permission denied`.
    pub(crate) fn file(verb: &str, path: &Path, error: &io::Error) -> Self {
        Self(format!("cannot {verb} {}: {error}", path.display()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}
