//! The plugins directory: what in it is a plugin, and what its operator wrote beside it.

pub(super) mod file;
pub(super) mod open_dir;
pub(super) mod pins;
pub(super) mod strays;
pub(super) mod trust;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outbox_event::time::{Timestamp, system_clock};
use outbox_event::wording::toml_fault;

use self::file::{Bytes, Stamp};
use self::open_dir::OpenDir;
use super::error::LoadError;
use super::manifest::Manifest;
use super::manifest::references::WrittenIn;

/// Where the digests of the plugins are pinned, unless the host's configuration names another file.
pub(super) const LOCK: &str = "plugins.lock";
const MAX_MANIFEST_BYTES: u64 = 256 << 10;
/// How long a file that was touched just now must stay as it is.
const SETTLE: Duration = Duration::from_millis(200);

/// The plugin's name, if the path is one of a component file; `None` for what is hidden, half-written or something else.
pub(super) fn plugin_name(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let stem = name.strip_suffix(".wasm")?;
    (!stem.is_empty() && !name.starts_with('.')).then(|| stem.to_owned())
}

/// Whether a change of this path can change a plugin. `..data` is what Kubernetes swaps when it updates a mounted volume.
pub(super) fn matters(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name == "..data" || name == LOCK || (!name.starts_with('.') && (name.ends_with(".wasm") || name.ends_with(".toml")))
}

/// A component file and the manifest beside it, as they lay there at one moment; `None` for one that is not there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pair {
    component: Option<Stamp>,
    manifest: Option<Stamp>,
}

impl Pair {
    /// Looks at both files, every link followed.
    pub(super) fn of(open_dir: &OpenDir, file: &Path) -> Self {
        let look = |path: &Path| open_dir.look(path.file_name().unwrap_or_default()).map(|metadata| Stamp::of(&metadata));
        Self { component: look(file), manifest: look(&file.with_extension("toml")) }
    }

    /// Whether nobody has touched either for a while.
    pub(super) fn is_quiet(&self, now: Timestamp) -> bool {
        [&self.component, &self.manifest].into_iter().flatten().all(|stamp| stamp.is_quiet(now))
    }
}

/// Notes the stamps of each pair of files, then waits (200 ms, at most the debounce) if one was touched just now. [`read`]
/// compares the stamps again, so a pair that changed in between is not taken. Blocks.
pub(super) fn settle(open_dir: &OpenDir, found: &BTreeMap<String, PathBuf>, debounce: Duration) -> BTreeMap<String, Pair> {
    let pairs: BTreeMap<String, Pair> = found.iter().map(|(name, file)| (name.clone(), Pair::of(open_dir, file))).collect();
    let now = system_clock().now();
    if !pairs.values().all(|pair| pair.is_quiet(now)) {
        std::thread::sleep(SETTLE.min(debounce));
    }
    pairs
}

/// A manifest, where it stands, and the text it came from, which tells whether it changed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ManifestFile {
    pub(super) written_in: WrittenIn,
    pub(super) text: String,
    pub(super) manifest: Result<Manifest, String>,
}

impl ManifestFile {
    /// A manifest of the host's own configuration.
    pub(super) fn from_config(manifest: Manifest) -> Self {
        Self { written_in: WrittenIn::HostConfig, text: String::new(), manifest: Ok(manifest) }
    }

    /// Where it is, for people.
    pub(super) fn location(&self, file: &Path) -> String {
        match self.written_in {
            WrittenIn::HostConfig => format!("[plugins.{}]", file.file_stem().unwrap_or_default().display()),
            WrittenIn::PluginsDir => file.with_extension("toml").display().to_string(),
        }
    }

    /// Whether somebody wrote it.
    pub(super) fn exists(&self) -> bool {
        self.written_in == WrittenIn::HostConfig || !self.text.is_empty()
    }

    /// The manifest, if it is one.
    pub(super) fn checked(&self, file: &Path) -> Result<&Manifest, LoadError> {
        self.manifest.as_ref().map_err(|reason| LoadError::Manifest { file: self.location(file), reason: reason.clone() })
    }

    /// The manifest that stood beside a version that served.
    pub(super) fn noted(text: String) -> Self {
        let manifest = if text.is_empty() { Ok(Manifest::default()) } else { parse(&text) };
        Self::beside(text, manifest)
    }

    fn beside(text: String, manifest: Result<Manifest, String>) -> Self {
        Self { written_in: WrittenIn::PluginsDir, text, manifest }
    }
}

/// Reads a component file, and the manifest beside it unless the host gave one, if both are still what they were. Blocks.
pub(super) fn read(
    open_dir: &OpenDir,
    file: &Path,
    given: Option<Manifest>,
    settled: &Pair,
) -> Result<(Bytes, ManifestFile), LoadError> {
    let bytes = Bytes::read(open_dir, file)?;
    let written = match given {
        Some(manifest) => ManifestFile::from_config(manifest),
        None => manifest_beside(open_dir, file)?,
    };
    let now = Pair::of(open_dir, file);
    if now.component != settled.component || (written.written_in == WrittenIn::PluginsDir && now.manifest != settled.manifest) {
        return Err(LoadError::Changing { file: file.to_owned() });
    }
    Ok((bytes, written))
}

/// The manifest beside a component file; the default when there is none. Blocks.
pub(super) fn manifest_beside(open_dir: &OpenDir, file: &Path) -> Result<ManifestFile, LoadError> {
    let path = file.with_extension("toml");
    let name = path.file_name().unwrap_or_default();
    if !open_dir.has(name) {
        return Ok(ManifestFile::beside(String::new(), Ok(Manifest::default())));
    }
    let mut text = String::new();
    let (file, _) = open_dir.read(name)?;
    file.take(MAX_MANIFEST_BYTES + 1)
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
    let manifest: Manifest = toml::from_str(text).map_err(|error| toml_fault::<Manifest>(text, &error))?;
    match manifest.retry.and_then(|retry| retry.fault()) {
        Some(fault) => Err(fault.to_owned()),
        None => Ok(manifest),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        let open_dir = OpenDir::open(dir.path(), None).unwrap();
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
            let settled = &settle(&open_dir, &found, SETTLE)["mailer"];
            assert!(read(&open_dir, &file, None, settled).is_ok(), "before {what}");
            change();
            let error = read(&open_dir, &file, None, settled).map(|_| ()).unwrap_err();
            assert!(matches!(error, LoadError::Changing { .. }), "{what}: {error}");
        }
        let settled = settle(&open_dir, &found, SETTLE)["mailer"].clone();
        fs::write(&manifest, "isolation = \"batch\"").unwrap();
        assert!(read(&open_dir, &file, Some(Manifest::default()), &settled).is_ok(), "the host's own manifest counts");
    }
}
