//! The host's private directory: what it notes for its next start, where nobody else can read or write.
//!
//! Every file begins with a HMAC over its name and content, under a key that never leaves the directory, so that what is read
//! is what this host wrote, under this very name. Nothing here can fail a load; what is wrong counts as absent.

pub(super) mod cache;
pub(super) mod last_good;
pub(super) mod quarantine;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use outbox_event::time::Timestamp;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
use sha2::Sha256;

const KEY_FILE: &str = "key";
const KEY_BYTES: usize = 32;
const MAC_BYTES: usize = 32;
const MAX_BYTES: u64 = 512 << 20;
/// What a file is written to before it has its name.
const DRAFT: &str = "tmp";

/// A private directory and its key.
pub(super) struct Private {
    dir: PathBuf,
    key: [u8; KEY_BYTES],
}

/// One file of the directory, as a listing shows it.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// When it was written or last used.
    pub(super) used: Timestamp,
}

impl Private {
    /// Opens the directory, and makes it and its key at the first start. `None`, and a log line, when it cannot be trusted.
    pub(super) fn open(dir: &Path) -> Option<Self> {
        match Self::try_open(dir) {
            Ok(private) => Some(private),
            Err(error) => {
                tracing::warn!(
                    target: "outbox::wasm::private",
                    "plugins are compiled at every start, and there is no last good version to fall back on: the cache {} cannot \
                     be used: {error}",
                    dir.display()
                );
                None
            }
        }
    }

    fn try_open(dir: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let metadata = fs::symlink_metadata(dir)?;
        if !metadata.is_dir() {
            return Err(io::Error::other("it is not a directory"));
        }
        let own = rustix::process::geteuid().as_raw();
        if metadata.uid() != own {
            return Err(io::Error::other(format!("it belongs to user {}, not to this process's user {own}", metadata.uid())));
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(io::Error::other(format!("its mode is {:03o}; run `chmod 700` on it", metadata.mode() & 0o777)));
        }
        Ok(Self { dir: dir.to_owned(), key: key(dir)? })
    }

    /// Where a file of this name lies.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Whether there is such a file. That it can be used is known only when it is read.
    pub(super) fn has(&self, name: &str) -> bool {
        fs::symlink_metadata(self.path(name)).is_ok()
    }

    /// The content of a file as this host wrote it; `None` when there is none. A file that cannot be used is told of and removed.
    pub(super) fn read(&self, name: &str) -> Option<Vec<u8>> {
        match self.try_read(name) {
            Ok(content) => content,
            Err(reason) => {
                self.spoilt(name, &reason);
                None
            }
        }
    }

    /// Removes a file that cannot be used, and says why.
    pub(super) fn spoilt(&self, name: &str, reason: &str) {
        tracing::warn!(
            target: "outbox::wasm::private",
            "{} cannot be used, and is removed: {reason}",
            self.path(name).display()
        );
        self.remove(name);
    }

    fn try_read(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let mut bytes = match read_private(&self.path(name)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let (mac, content) = bytes.split_at_checked(MAC_BYTES).ok_or("it is too short")?;
        self.mac(name, content).verify_slice(mac).map_err(|_| "it is damaged, or was not written by this host")?;
        Ok(Some(bytes.split_off(MAC_BYTES)))
    }

    /// Writes a file, whole or not at all.
    ///
    /// # Errors
    /// Those of the file system; the file is what it was.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let mac = self.mac(name, content).finalize().into_bytes();
        let path = self.path(name);
        let draft = self.dir.join(format!("{name}.{}.{DRAFT}", unique()));
        let written = create_private(&draft)
            .and_then(|mut file| [&mac[..], content].iter().try_for_each(|part| file.write_all(part)))
            .and_then(|()| fs::rename(&draft, &path));
        if written.is_err() {
            let _ = fs::remove_file(&draft);
        }
        written
    }

    /// Removes a file; true when it was there.
    pub(super) fn remove(&self, name: &str) -> bool {
        fs::remove_file(self.path(name)).is_ok()
    }

    /// Notes that a file has just been used.
    pub(super) fn touch(&self, name: &str) {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        // A file that cannot be touched is thrown away sooner, and made again.
        let _ = utimensat(CWD, self.path(name), &times, AtFlags::SYMLINK_NOFOLLOW);
    }

    /// The files of this ending; nothing when the directory cannot be read.
    pub(super) fn list(&self, ending: &str) -> Vec<Listed> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        let listed = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let metadata = entry.metadata().ok().filter(|metadata| metadata.is_file() && name.ends_with(ending))?;
            Some(Listed { name, bytes: metadata.len(), used: metadata.modified().ok()?.into() })
        };
        entries.filter_map(listed).collect()
    }

    /// What was left half written by a host that was killed.
    pub(super) fn drafts(&self) -> Vec<Listed> {
        self.list(&format!(".{DRAFT}"))
    }

    /// Over the name as well, so that one file cannot stand in for another.
    fn mac(&self, name: &str, content: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes a key of any length");
        mac.update(name.as_bytes());
        mac.update(&[0]);
        mac.update(content);
        mac
    }
}

/// The key of this directory, made if there is none.
fn key(dir: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let path = dir.join(KEY_FILE);
    if let Err(error) = fs::symlink_metadata(&path) {
        if error.kind() != io::ErrorKind::NotFound {
            return Err(error);
        }
        let fresh: [u8; KEY_BYTES] = rand::random();
        // Linked and not renamed: of two hosts that start together, the second takes the first one's key.
        let draft = dir.join(format!(".key-{}", unique()));
        create_private(&draft)?.write_all(&fresh)?;
        let linked = fs::hard_link(&draft, &path);
        let _ = fs::remove_file(&draft);
        if let Err(error) = linked
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
    }
    let bytes = read_private(&path)?;
    bytes.try_into().map_err(|_| io::Error::other(format!("{} is damaged; delete it", path.display())))
}

fn unique() -> String {
    format!("{:016x}", rand::random::<u64>())
}

fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)
}

fn read_private(path: &Path) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
