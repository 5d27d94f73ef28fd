//! Compiled components, kept so that a restart does not compile again.
//!
//! Loading a compiled component runs it unchecked, so only what this host wrote itself is loaded: every file begins with a
//! HMAC under a key that never leaves the private directory. Nothing here can fail a load; what is wrong is compiled again.

use std::fs::{self, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};
use wasmtime::component::Component;

const KEY_FILE: &str = "key";
const KEY_BYTES: usize = 32;
const MAC_BYTES: usize = 32;
const MAX_BYTES: u64 = 512 << 20;

/// A private directory of compiled components.
pub(super) struct Cache {
    dir: PathBuf,
    key: [u8; KEY_BYTES],
}

impl Cache {
    /// Opens the directory, and makes it and its key at the first start. `None`, and a log line, when it cannot be trusted.
    pub(super) fn open(dir: &Path) -> Option<Self> {
        match Self::try_open(dir) {
            Ok(cache) => Some(cache),
            Err(error) => {
                tracing::warn!("plugins are compiled at every start: the cache {} cannot be used: {error}", dir.display());
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
        // A file that we make is ours: its owner is who we are.
        let own = own_user(dir)?;
        if metadata.uid() != own {
            return Err(io::Error::other(format!("it belongs to user {}, not to this process's user {own}", metadata.uid())));
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(io::Error::other(format!("its mode is {:03o}; run `chmod 700` on it", metadata.mode() & 0o777)));
        }
        Ok(Self { dir: dir.to_owned(), key: key(dir)? })
    }

    /// Whether there is a compiled component for these bytes. That it can be used is known only when it is loaded.
    pub(super) fn has(&self, engine: &wasmtime::Engine, digest: &str) -> bool {
        fs::symlink_metadata(self.path(engine, digest)).is_ok()
    }

    /// The compiled component for these bytes, if it is there and nobody touched it.
    pub(super) fn load(&self, engine: &wasmtime::Engine, digest: &str) -> Option<Component> {
        let path = self.path(engine, digest);
        match self.try_load(engine, &path) {
            Ok(component) => component,
            Err(reason) => {
                tracing::warn!("compiling again: {} cannot be used: {reason}", path.display());
                let _ = fs::remove_file(&path);
                None
            }
        }
    }

    fn try_load(&self, engine: &wasmtime::Engine, path: &Path) -> Result<Option<Component>, String> {
        let bytes = match read_private(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let (mac, compiled) = bytes.split_at_checked(MAC_BYTES).ok_or("it is too short")?;
        self.mac(path, compiled).verify_slice(mac).map_err(|_| "it is damaged, or was not written by this host")?;
        #[expect(
            unsafe_code,
            reason = "these bytes, and not what the path leads to now, were just verified to be our compiler's"
        )]
        // SAFETY: the HMAC proves that this host wrote these very bytes, from `Component::serialize`.
        let component = unsafe { Component::deserialize(engine, compiled) };
        component.map(Some).map_err(|error| error.to_string())
    }

    /// Keeps a compiled component. A failure is logged and costs the next start some time.
    pub(super) fn store(&self, engine: &wasmtime::Engine, digest: &str, component: &Component) {
        let path = self.path(engine, digest);
        let stored = component.serialize().map_err(io::Error::other).and_then(|compiled| {
            let mac = self.mac(&path, &compiled).finalize().into_bytes();
            write_atomically(&path, &[&mac, &compiled])
        });
        if let Err(error) = stored {
            tracing::warn!("the next start compiles again: {} could not be written: {error}", path.display());
        }
    }

    /// The name covers everything that decides what the compiler makes.
    fn path(&self, engine: &wasmtime::Engine, digest: &str) -> PathBuf {
        let mut hasher = Sha256Hasher(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let compatibility = data_encoding::HEXLOWER.encode(&hasher.0.finalize()[..8]);
        self.dir.join(format!("{digest}-{compatibility}.cwasm"))
    }

    /// Over the name as well, so that one file cannot stand in for another.
    fn mac(&self, path: &Path, compiled: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes a key of any length");
        mac.update(path.file_name().expect("made by `path`").as_encoded_bytes());
        mac.update(&[0]);
        mac.update(compiled);
        mac
    }
}

/// The same compiled component for another engine of this process.
///
/// # Errors
/// When the two engines compile differently.
pub(super) fn copied(component: &Component, engine: &wasmtime::Engine) -> wasmtime::Result<Component> {
    let compiled = component.serialize()?;
    #[expect(unsafe_code, reason = "these bytes never left this function")]
    // SAFETY: the bytes are our compiler's, from `Component::serialize` one line above.
    unsafe {
        Component::deserialize(engine, compiled)
    }
}

struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("only the whole digest is read")
    }
}

fn own_user(dir: &Path) -> io::Result<u32> {
    let probe = dir.join(format!(".probe-{}", unique()));
    let file = create_private(&probe)?;
    let owner = file.metadata().map(|metadata| metadata.uid());
    let _ = fs::remove_file(&probe);
    owner
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

fn write_atomically(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let draft = path.with_extension(format!("{}.tmp", unique()));
    let written = create_private(&draft)
        .and_then(|mut file| parts.iter().try_for_each(|part| file.write_all(part)))
        .and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}
