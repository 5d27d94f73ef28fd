//! `plugins.lock`: which component, and which manifest beside it, a name stands for. What does not match is not loaded.
//!
//! The file lies beside the components, and travels with them, unless the host's configuration names another place: whoever may
//! write the directory may write a file in it, so where that matters, the operator keeps it elsewhere.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use outbox_event::wording::toml_fault;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::open_dir::{OpenDir, parent};
use super::trust::Trust;
use super::{LOCK, ManifestFile};
use crate::error::LoadError;
use crate::manifest::references::WrittenIn;

const MAX_BYTES: u64 = 1 << 20;
const PREFIX: &str = "sha256:";

/// Where plugins are pinned, and whether all must be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rule {
    /// `None` for the file in the plugins directory.
    pub(crate) lock: Option<PathBuf>,
    pub(crate) strict: bool,
}

/// The pins as the file has them.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    lock: PathBuf,
    strict: bool,
    plugins: BTreeMap<String, Pin>,
}

/// The file as it is written.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    plugins: BTreeMap<String, Pin>,
}

/// One plugin's pin; both digests are `sha256:` and 64 hex digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pin {
    digest: String,
    /// Of the manifest beside the component; `None` when there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<String>,
}

impl Pin {
    /// SHA-256 of the component, in hex.
    pub(crate) fn component(&self) -> &str {
        self.digest.trim_start_matches(PREFIX)
    }

    /// The pin of what lies there now.
    pub(crate) fn of(digest: &str, written: &ManifestFile) -> Self {
        Self { digest: format!("{PREFIX}{digest}"), manifest: beside(written).map(|digest| format!("{PREFIX}{digest}")) }
    }
}

/// The digest of a manifest that lies beside its component; `None` when there is none, or when the host's own counts.
fn beside(written: &ManifestFile) -> Option<String> {
    let lies_there = written.written_in == WrittenIn::PluginsDir && !written.text.is_empty();
    lies_there.then(|| data_encoding::HEXLOWER.encode(&Sha256::digest(written.text.as_bytes())))
}

impl Rule {
    /// Where the pins stand for this directory.
    pub(crate) fn file(&self, dir: &Path) -> PathBuf {
        self.lock.clone().unwrap_or_else(|| dir.join(LOCK))
    }

    /// Reads the pins; none when no file is there and none is asked for. Otherwise the file, and why it cannot be used. Blocks.
    pub(crate) fn read(&self, dir: &Path, open_dir: &OpenDir, trust: &Trust) -> Result<Pins, (PathBuf, String)> {
        let lock = self.file(dir);
        match self.try_read(&lock, open_dir, trust) {
            Ok(plugins) => Ok(Pins { lock, strict: self.strict, plugins }),
            Err(reason) => Err((lock, reason)),
        }
    }

    fn try_read(&self, lock: &Path, open_dir: &OpenDir, trust: &Trust) -> Result<BTreeMap<String, Pin>, String> {
        let told = |error: LoadError| outbox_event::chain::chain(&error);
        let elsewhere = match &self.lock {
            None => None,
            Some(_) => Some(OpenDir::open(parent(lock), Some(trust.clone())).map_err(told)?),
        };
        let open_dir = elsewhere.as_ref().unwrap_or(open_dir);
        let name = lock.file_name().unwrap_or_default();
        if !open_dir.has(name) {
            return match &self.lock {
                None => Ok(BTreeMap::new()),
                Some(_) => Err("it is not there; write it with `outbox plugin lock`".to_owned()),
            };
        }
        let (file, _) = open_dir.read(name).map_err(told)?;
        let mut text = String::new();
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
        parsed(&text)
    }
}

fn parsed(text: &str) -> Result<BTreeMap<String, Pin>, String> {
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("it is too large; at most {MAX_BYTES} bytes are read"));
    }
    let written: Written = toml::from_str(text).map_err(|error| toml_fault::<Written>(text, &error))?;
    // Emptied or cut, it would pin nothing.
    if written.plugins.is_empty() {
        return Err("it pins nothing; write it with `outbox plugin lock`, or delete it".to_owned());
    }
    for (name, pin) in &written.plugins {
        for digest in [Some(&pin.digest), pin.manifest.as_ref()].into_iter().flatten() {
            let hex = digest.strip_prefix(PREFIX).unwrap_or_default();
            if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase()) {
                return Err(format!("`{digest}` of {name} is not a digest; write sha256: and 64 hex digits in lower case"));
            }
        }
    }
    Ok(written.plugins)
}

impl Pins {
    /// The pins by plugin.
    pub(crate) fn into_plugins(self) -> BTreeMap<String, Pin> {
        self.plugins
    }

    /// Whether [`check`](Self::check) may refuse this plugin.
    pub(crate) fn apply_to(&self, name: &str) -> bool {
        self.strict || self.plugins.contains_key(name)
    }

    /// Refuses a plugin that is not what its pin says, or has none though all must.
    pub(crate) fn check(&self, name: &str, digest: &str, written: &ManifestFile) -> Result<(), LoadError> {
        let Some(pin) = self.plugins.get(name) else {
            let unpinned = || LoadError::Unpinned { plugin: name.to_owned(), lock: self.lock.clone() };
            return if self.strict { Err(unpinned()) } else { Ok(()) };
        };
        let found = Pin::of(digest, written);
        let differs = |what, wanted: &str, found: &str| LoadError::Pin {
            plugin: name.to_owned(),
            what,
            lock: self.lock.clone(),
            wanted: wanted.trim_start_matches(PREFIX).to_owned(),
            found: found.trim_start_matches(PREFIX).to_owned(),
        };
        if pin.digest != found.digest {
            return Err(differs("component", &pin.digest, &found.digest));
        }
        // The host's own manifest is not the directory's to pin.
        if written.written_in == WrittenIn::PluginsDir && pin.manifest != found.manifest {
            let or_none = |digest: &Option<String>| digest.clone().unwrap_or_else(|| "(no manifest)".to_owned());
            return Err(differs("manifest", &or_none(&pin.manifest), &or_none(&found.manifest)));
        }
        Ok(())
    }
}

/// The file's text for these pins.
pub(crate) fn text(plugins: BTreeMap<String, Pin>) -> String {
    let body = toml::to_string(&Written { plugins }).expect("names and digests are plain text");
    format!(
        "# Which component and which manifest each plugin is. A plugin that is not as it is pinned is not loaded.\n# Written by `outbox plugin lock`.\n\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;

    fn beside(text: &str) -> ManifestFile {
        ManifestFile { written_in: WrittenIn::PluginsDir, text: text.to_owned(), manifest: Ok(Manifest::default()) }
    }

    fn pins(strict: bool, plugins: BTreeMap<String, Pin>) -> Pins {
        Pins { lock: PathBuf::from("plugins.lock"), strict, plugins: parsed(&text(plugins)).unwrap() }
    }

    #[test]
    fn what_is_pinned_is_itself_and_nothing_else() {
        let (one, two) = ("1".repeat(64), "2".repeat(64));
        let bare = Pin::of(&one, &beside(""));
        let dressed = Pin::of(&one, &beside("emit = true"));
        let pins = pins(false, BTreeMap::from([("bare".to_owned(), bare), ("dressed".to_owned(), dressed)]));
        assert!(pins.check("bare", &one, &beside("")).is_ok());
        assert!(pins.check("dressed", &one, &beside("emit = true")).is_ok());
        assert!(pins.check("other", &two, &beside("")).is_ok(), "not pinned, and not strict");
        let error = pins.check("bare", &two, &beside("")).unwrap_err().to_string();
        assert!(error.contains(&format!("sha256:{two}")) && error.contains(&format!("pins sha256:{one}")), "{error}");
        for (name, text) in [("bare", "emit = true"), ("dressed", ""), ("dressed", "emit = false")] {
            let error = pins.check(name, &one, &beside(text)).unwrap_err().to_string();
            assert!(error.contains("the manifest of"), "{name} {text}: {error}");
        }
        assert!(
            pins.check("dressed", &one, &ManifestFile::from_config(Manifest::default())).is_ok(),
            "the operator's own counts"
        );
    }

    #[test]
    fn strict_loads_only_what_is_pinned() {
        let pin = Pin::of(&"1".repeat(64), &beside(""));
        let error = pins(true, BTreeMap::from([("a".to_owned(), pin)])).check("b", &"1".repeat(64), &beside("")).unwrap_err();
        assert!(error.to_string().contains("`outbox plugin lock`"), "{error}");
    }

    #[test]
    fn a_file_that_pins_nothing_or_something_else_is_none() {
        for (text, why) in [
            ("", "pins nothing"),
            ("[plugins]", "pins nothing"),
            ("[plugins.a]\ndigest = \"1234\"", "`1234` of a is not a digest"),
            ("[plugins.a]\ndigst = \"1234\"", "digst"),
            ("[plugin.a]\ndigest = \"1234\"", "plugin"),
            ("[plugins.a", "line 1, column"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(parsed(&" ".repeat(2 << 20)).unwrap_err().contains("too large"));
    }
}
