//! The check of a plugins directory that loads and compiles nothing.

use std::io;
use std::path::Path;

use crate::config::PluginsConfig;
use crate::directory::file::Bytes;
use crate::directory::open_dir::OpenDir;
use crate::directory::pins::Pins;
use crate::directory::trust::Trust;
use crate::directory::{ManifestFile, manifest_beside};
use crate::error::LoadError;
use crate::load::{accepted, check_sinks};
use crate::manifest::references::{References, WrittenIn};

/// Everything that is wrong with the manifests and pins of the directory: values, references, sinks and digests. Nothing is loaded
/// or compiled. Blocks.
///
/// # Errors
/// When the directory cannot be read.
pub fn check_manifests(config: &PluginsConfig) -> io::Result<Vec<LoadError>> {
    if !config.dir.is_dir() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let open_dir = OpenDir::open(&config.dir, None).map_err(io::Error::other)?;
    let found = open_dir.list()?;
    let mut faults = Vec::new();
    let pins = match config.rule().read(&config.dir, &open_dir, &Trust::of(&config.trusted_owners)) {
        Ok(pins) => Some(pins),
        Err((file, reason)) => {
            faults.push(LoadError::Lock { file, reason });
            None
        }
    };
    let references = References { resolve: config.resolve.clone(), files_dir: config.files_dir.clone() };
    let check = Check { config, open_dir: &open_dir, pins, references };
    faults.extend(found.iter().filter_map(|(name, file)| check.plugin(name, file).err()));
    Ok(faults)
}

struct Check<'c> {
    config: &'c PluginsConfig,
    open_dir: &'c OpenDir,
    /// `None` if they cannot be read.
    pins: Option<Pins>,
    references: References,
}

impl Check<'_> {
    fn plugin(&self, name: &str, file: &Path) -> Result<(), LoadError> {
        let written = match self.config.manifests.get(name) {
            Some(manifest) => ManifestFile::from_config(manifest.clone()),
            None => manifest_beside(self.open_dir, file)?,
        };
        let manifest = written.checked(file)?;
        // The references of the configuration were resolved when it was read.
        if written.written_in == WrittenIn::PluginsDir {
            self.references.table(name, written.written_in, "config", &manifest.config)?;
            self.references.table(name, written.written_in, "secrets", &manifest.secrets)?;
        }
        if let Some(publish) = &manifest.publish {
            check_sinks(name, publish, &self.config.sinks)?;
        }
        let pins = self.pins.as_ref().filter(|pins| pins.apply_to(name));
        if manifest.digest.is_some() || pins.is_some() {
            let bytes = Bytes::read(self.open_dir, file)?;
            accepted(name, file, &bytes.digest, &written)?;
            pins.map_or(Ok(()), |pins| pins.check(name, &bytes.digest, &written))?;
        }
        Ok(())
    }
}
