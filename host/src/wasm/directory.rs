//! The plugins directory: what in it is a plugin, and what its operator wrote beside it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::LoadError;
use super::file::{Bytes, Stamp, open, stamp};
use super::manifest::Manifest;
use super::references::Origin;

const MAX_MANIFEST_BYTES: u64 = 256 << 10;
/// A file that nobody wrote to for so long is complete.
const QUIET: Duration = Duration::from_secs(1);
/// How long a file that was written to just now must stay as it is.
const SETTLE: Duration = Duration::from_millis(200);

/// Refuses a directory that cannot be read, or that anybody can put code into.
pub(super) fn check(dir: &Path) -> Result<(), LoadError> {
    let wrong = |reason: String| LoadError::Directory { dir: dir.to_owned(), reason };
    let metadata = fs::metadata(dir).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => wrong("it does not exist; create it, or set plugins.dir".to_owned()),
        _ => wrong(format!("{error}; check that this process's user may read it")),
    })?;
    if !metadata.is_dir() {
        return Err(wrong("it is not a directory; set plugins.dir to the directory of the .wasm files".to_owned()));
    }
    if metadata.permissions().mode() & 0o002 != 0 {
        return Err(wrong("anybody can write to it, and so run code in this host; run `chmod o-w` on it".to_owned()));
    }
    list(dir).map(|_| ()).map_err(|error| wrong(format!("{error}; check that this process's user may read it")))
}

/// The component files of the directory by plugin name, sorted.
pub(super) fn list(dir: &Path) -> std::io::Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if let Some(name) = plugin_name(&path) {
            found.insert(name, path);
        }
    }
    Ok(found)
}

/// The plugin's name, if the path is one of a component file; `None` for what is hidden, half-written or something else.
pub(super) fn plugin_name(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let stem = name.strip_suffix(".wasm")?;
    (!stem.is_empty() && !name.starts_with('.')).then(|| stem.to_owned())
}

/// Whether a change of this path can change a plugin. `..data` is what Kubernetes swaps when it updates a mounted volume.
pub(super) fn matters(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name == "..data" || (!name.starts_with('.') && (name.ends_with(".wasm") || name.ends_with(".toml")))
}

/// A component file and the manifest beside it, as they lay there at one moment; `None` for one that is not there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pair {
    component: Option<Stamp>,
    manifest: Option<Stamp>,
}

impl Pair {
    /// Looks at both files, every link followed.
    pub(super) fn of(file: &Path) -> Self {
        let look = |path: &Path| fs::metadata(path).ok().map(|metadata| stamp(&metadata));
        Self { component: look(file), manifest: look(&file.with_extension("toml")) }
    }

    /// Whether nobody has written to either for a while.
    fn is_quiet(&self) -> bool {
        let quiet = |(.., modified): &Stamp| modified.is_some_and(|at| at.elapsed().is_ok_and(|since| since >= QUIET));
        [&self.component, &self.manifest].into_iter().flatten().all(quiet)
    }
}

/// Looks at these pairs of files, and waits a moment if somebody wrote to one just now: what a pair was is compared with what
/// it is once it has been read. Blocks.
pub(super) fn settle(found: &BTreeMap<String, PathBuf>) -> BTreeMap<String, Pair> {
    let pairs: BTreeMap<String, Pair> = found.iter().map(|(name, file)| (name.clone(), Pair::of(file))).collect();
    if !pairs.values().all(Pair::is_quiet) {
        std::thread::sleep(SETTLE);
    }
    pairs
}

/// A manifest, where it stands, and the text it came from, which tells whether it changed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ManifestFile {
    pub(super) origin: Origin,
    pub(super) text: String,
    pub(super) manifest: Result<Manifest, String>,
}

impl ManifestFile {
    /// A manifest of the host's own configuration.
    pub(super) fn by_host(manifest: Manifest) -> Self {
        Self { origin: Origin::Host, text: String::new(), manifest: Ok(manifest) }
    }

    /// Where it stands, for people.
    pub(super) fn stands(&self, file: &Path) -> String {
        match self.origin {
            Origin::Host => format!("[plugins.{}]", file.file_stem().unwrap_or_default().display()),
            Origin::Beside => file.with_extension("toml").display().to_string(),
        }
    }

    /// The manifest, if it is one.
    pub(super) fn checked(&self, file: &Path) -> Result<&Manifest, LoadError> {
        self.manifest.as_ref().map_err(|reason| LoadError::Manifest { file: self.stands(file), reason: reason.clone() })
    }

    fn beside(text: String, manifest: Result<Manifest, String>) -> Self {
        Self { origin: Origin::Beside, text, manifest }
    }
}

/// Reads a component file, and the manifest beside it unless the host gave one, if both are still what they were. Blocks.
pub(super) fn read(
    dir: &Path,
    file: &Path,
    given: Option<Manifest>,
    settled: &Pair,
) -> Result<(Bytes, ManifestFile), LoadError> {
    let bytes = Bytes::read(dir, file)?;
    let written = match given {
        Some(manifest) => ManifestFile::by_host(manifest),
        None => manifest_beside(dir, file)?,
    };
    let now = Pair::of(file);
    if now.component != settled.component || (written.origin == Origin::Beside && now.manifest != settled.manifest) {
        return Err(LoadError::Changing { file: file.to_owned() });
    }
    Ok((bytes, written))
}

/// The manifest beside a component file; the default when there is none. Blocks.
pub(super) fn manifest_beside(dir: &Path, file: &Path) -> Result<ManifestFile, LoadError> {
    let path = file.with_extension("toml");
    if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(ManifestFile::beside(String::new(), Ok(Manifest::default())));
    }
    let mut text = String::new();
    open(dir, &path)?
        .take(MAX_MANIFEST_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|source| LoadError::Read { file: path.clone(), source })?;
    let manifest = parse(&text);
    Ok(ManifestFile::beside(text, manifest))
}

/// Neither nothing nor a part of a manifest is a manifest, though both are valid TOML.
fn parse(text: &str) -> Result<Manifest, String> {
    if text.is_empty() {
        return Err("it is empty; was it copied completely? For the defaults, delete it".to_owned());
    }
    if text.len() as u64 > MAX_MANIFEST_BYTES {
        return Err(format!("it is too large; at most {MAX_MANIFEST_BYTES} bytes are read"));
    }
    toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_visible_finished_components_are_plugins() {
        for (path, name) in [("/p/mailer.wasm", Some("mailer")), ("/p/a.b.wasm", Some("a.b"))] {
            assert_eq!(plugin_name(path.as_ref()).as_deref(), name);
        }
        for path in
            ["/p/.mailer.wasm", "/p/mailer.wasm~", "/p/mailer.wasm.tmp", "/p/mailer.wasm.part", "/p/x.cwasm", "/p/.wasm"]
        {
            assert_eq!(plugin_name(path.as_ref()), None, "{path}");
            assert!(!matters(path.as_ref()), "{path}");
        }
        assert!(matters("/p/mailer.toml".as_ref()) && matters("/p/..data".as_ref()));
    }

    #[test]
    fn a_pair_of_which_one_file_changes_while_it_is_read_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mailer.wasm");
        let manifest = dir.path().join("mailer.toml");
        fs::write(&file, b"\0asm\x0d\0\x01\0more").unwrap();
        let found = BTreeMap::from([("mailer".to_owned(), file.clone())]);
        let changes: [(&str, &dyn Fn()); 4] = [
            ("the manifest is put there", &|| fs::write(&manifest, "[limits]\nfuel = 1").unwrap()),
            ("more of it is written", &|| fs::write(&manifest, "[limits]\nfuel = 1_000_000\n").unwrap()),
            ("another component takes the place of the first", &|| {
                fs::write(dir.path().join("draft"), b"\0asm\x0d\0\x01\0mehr").unwrap();
                fs::rename(dir.path().join("draft"), &file).unwrap();
            }),
            ("the manifest goes", &|| fs::remove_file(&manifest).unwrap()),
        ];
        for (what, change) in changes {
            let settled = &settle(&found)["mailer"];
            assert!(read(dir.path(), &file, None, settled).is_ok(), "before {what}");
            change();
            let error = read(dir.path(), &file, None, settled).map(|_| ()).unwrap_err();
            assert!(matches!(error, LoadError::Changing { .. }), "{what}: {error}");
        }
        let settled = settle(&found)["mailer"].clone();
        fs::write(&manifest, "isolation = \"batch\"").unwrap();
        assert!(read(dir.path(), &file, Some(Manifest::default()), &settled).is_ok(), "the host's own manifest counts");
    }
}
