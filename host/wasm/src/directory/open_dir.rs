//! A directory that is held open: everything in it is reached from that handle, step by step, and no step leaves it.
//!
//! A path that is checked and then opened may be another one by then. So links are followed by hand: each part is opened from the
//! directory before it, without following, and `..` goes back to the directory that we came from. Every directory on the way
//! must be one that nobody else writes to.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Dir, DirEntry, Mode, OFlags, StatVfsMountFlags, fstatvfs, openat, readlinkat};
use rustix::io::Errno;

use super::plugin_name;
use super::trust::{Trust, anybody_replaces};
use crate::error::LoadError;

/// The most links from a name to its file.
const MAX_LINKS: usize = 16;

/// A directory that is held open.
pub(crate) struct OpenDir {
    path: PathBuf,
    root: OwnedFd,
    device: u64,
    /// `None` where somebody named one file, and so vouches for it.
    trust: Option<Trust>,
    is_read_only: bool,
}

/// What is wanted of a file.
#[derive(Clone, Copy)]
enum Want {
    Look,
    Read,
}

impl OpenDir {
    /// Opens the directory. With `trust`, neither it nor a directory above it may be one in which others put files.
    pub(crate) fn open(path: &Path, trust: Option<Trust>) -> Result<Self, LoadError> {
        let wrong = |reason: String| LoadError::Directory { dir: path.to_owned(), reason };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, path, flags, Mode::empty()).map_err(|error| match error {
            Errno::NOENT => wrong("it does not exist; create it, or set plugins.dir".to_owned()),
            Errno::NOTDIR => wrong("it is not a directory; set plugins.dir to the directory of the .wasm files".to_owned()),
            error => wrong(format!("{error}; check that this process's user may read it")),
        })?;
        let (root, metadata) = looked_at(root).map_err(|error| wrong(error.to_string()))?;
        let is_read_only = fstatvfs(&root).is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY));
        if let Some(trust) = &trust {
            if let Some(objection) = trust.objection(&metadata, is_read_only) {
                return Err(wrong(objection));
            }
            if let Some(above) = replaceable(path) {
                return Err(wrong(format!(
                    "anybody can put another directory in its place, since {} is writable by all; run `chmod o-w {}`",
                    above.display(),
                    above.display()
                )));
            }
        }
        Ok(Self { path: path.to_owned(), root, device: metadata.dev(), trust, is_read_only })
    }

    /// The component files by plugin name, sorted.
    pub(crate) fn list(&self) -> io::Result<BTreeMap<String, PathBuf>> {
        let component = |name: OsString| {
            let path = self.path.join(name);
            plugin_name(&path).map(|name| (name, path))
        };
        Ok(self.names()?.into_iter().filter_map(component).collect())
    }

    /// The names of everything in it.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let name = |entry: rustix::io::Result<DirEntry>| Ok(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned());
        Dir::read_from(&self.root)?.map(name).collect()
    }

    /// What is known of the file of this name without reading it; `None` when there is none that could be read.
    pub(crate) fn look(&self, name: &OsStr) -> Option<Metadata> {
        let (_, metadata) = self.walk(name, Want::Look).ok()?;
        Some(metadata)
    }

    /// Opens the file of this name for reading. Refuses everything but a regular file: a pipe without a writer would read as empty.
    pub(crate) fn read(&self, name: &OsStr) -> Result<(File, Metadata), LoadError> {
        let (file, metadata) = self.walk(name, Want::Read)?;
        if !metadata.is_file() {
            return Err(LoadError::NotAFile { file: self.path.join(name) });
        }
        Ok((file, metadata))
    }

    /// Whether there is anything of this name, be it a link that leads nowhere.
    pub(crate) fn has(&self, name: &OsStr) -> bool {
        !matches!(openat(&self.root, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()), Err(Errno::NOENT))
    }

    fn walk(&self, name: &OsStr, want: Want) -> Result<(File, Metadata), LoadError> {
        let file = self.path.join(name);
        let failed = |error: io::Error| LoadError::Read { file: file.clone(), source: error };
        let outside = |target: &OsStr| LoadError::Outside { file: file.clone(), target: target.into() };
        let mut below: Vec<OwnedFd> = Vec::new();
        let mut parts = VecDeque::from([name.to_owned()]);
        let mut links = 0;
        while let Some(part) = parts.pop_front() {
            if part == ".." {
                below.pop().ok_or_else(|| outside(&part))?;
                continue;
            }
            let from: BorrowedFd<'_> = below.last().map_or(self.root.as_fd(), AsFd::as_fd);
            let is_last = parts.is_empty();
            match step(from, &part, if is_last { Some(want) } else { None }).map_err(failed)? {
                Step::Link(target) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(failed(io::Error::other("it leads through too many links")));
                    }
                    self.follow(&target, &mut below, &mut parts).map_err(|()| outside(&target))?;
                }
                Step::There(fd) => {
                    let (fd, metadata) = looked_at(fd).map_err(failed)?;
                    if let Some(objection) = self.objection(&metadata) {
                        let what = if is_last { file.clone() } else { self.path.join(&part) };
                        return Err(LoadError::Untrusted { file: what, reason: objection });
                    }
                    if is_last {
                        return Ok((File::from(fd), metadata));
                    }
                    below.push(fd);
                }
            }
        }
        Err(LoadError::NotAFile { file })
    }

    /// Puts the parts of a link's target before what is still to be walked. An absolute one must lead back to this directory.
    fn follow(&self, target: &OsStr, below: &mut Vec<OwnedFd>, parts: &mut VecDeque<OsString>) -> Result<(), ()> {
        let mut target = PathBuf::from(target);
        if target.is_absolute() {
            let here = self.path.canonicalize().map_err(|_| ())?;
            target = target.strip_prefix(here).map_err(|_| ())?.to_owned();
            below.clear();
        }
        for part in target.components().rev() {
            match part {
                Component::Normal(_) | Component::ParentDir => parts.push_front(part.as_os_str().to_owned()),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
        Ok(())
    }

    fn objection(&self, metadata: &Metadata) -> Option<String> {
        self.trust.as_ref()?.objection(metadata, self.is_read_only && metadata.dev() == self.device)
    }
}

enum Step {
    There(OwnedFd),
    Link(OsString),
}

/// Opens one part from its directory: the last one as it is wanted, any other as a directory.
fn step(from: BorrowedFd<'_>, part: &OsStr, last: Option<Want>) -> io::Result<Step> {
    // Not to wait for the other end of a pipe.
    let common = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let flags = match last {
        None => common | OFlags::PATH | OFlags::DIRECTORY,
        Some(Want::Look) => common | OFlags::PATH,
        Some(Want::Read) => common | OFlags::RDONLY,
    };
    let refused = match openat(from, part, flags, Mode::empty()) {
        // With PATH alone, a link is opened itself.
        Ok(fd) if !matches!(last, Some(Want::Look)) => return Ok(Step::There(fd)),
        Ok(fd) => {
            let (fd, metadata) = looked_at(fd)?;
            if !metadata.is_symlink() {
                return Ok(Step::There(fd));
            }
            Errno::LOOP
        }
        Err(error) => error,
    };
    if refused == Errno::LOOP || refused == Errno::NOTDIR {
        match readlinkat(from, part, Vec::new()) {
            Ok(target) => return Ok(Step::Link(OsStr::from_bytes(target.as_bytes()).to_owned())),
            Err(Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(refused.into())
}

fn looked_at(fd: OwnedFd) -> io::Result<(OwnedFd, Metadata)> {
    let file = File::from(fd);
    let metadata = file.metadata()?;
    Ok((file.into(), metadata))
}

/// The first directory above this one in which anybody can rename what lies in it.
fn replaceable(path: &Path) -> Option<PathBuf> {
    let whole = path.canonicalize().ok()?;
    let is_open = |above: &&Path| std::fs::metadata(above).is_ok_and(|metadata| anybody_replaces(&metadata));
    whole.ancestors().skip(1).find(is_open).map(Path::to_owned)
}

/// The directory of a file, as it was named.
pub(crate) fn parent(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
