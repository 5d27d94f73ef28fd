//! One component file, without a directory around it: for `plugin check`, for benchmarks and for tests.

use std::path::Path;
use std::sync::Arc;

use super::directory;
use super::engine::{Engine, PagemapScan};
use super::error::LoadError;
use super::file::{Bytes, Settled};
use super::load::{Loaded, Loader};
use super::manifest::{Manifest, Resolve};
use super::status::PluginReport;
use crate::listener::Registration;

/// Loads one component file and reports what it is. Nothing of it runs but `describe`.
///
/// `manifest` is used in place of the `NAME.toml` beside the file.
///
/// # Errors
/// Why it would not be loaded from a plugins directory either.
pub async fn check(file: &Path, manifest: Option<Manifest>, resolve: Resolve) -> Result<PluginReport, LoadError> {
    let manifest = match manifest {
        Some(manifest) => manifest,
        None => beside(file)?,
    };
    let loader = Loader { engine: Engine::new(1, PagemapScan::Off)?, cache: None, resolve };
    let (bytes, loaded) = load(&loader, file, manifest).await?;
    let Loaded { plugin, imports, compile } = loaded;
    Ok(PluginReport {
        name: plugin.linked.identity.name.clone(),
        described_name: plugin.described_name.clone(),
        version: plugin.version.clone(),
        digest: bytes.digest.clone(),
        routes: plugin.routes.clone(),
        imports,
        size_bytes: bytes.bytes.len() as u64,
        compile,
        isolation: plugin.isolation(),
        limits: plugin.manifest.limits,
    })
}

/// Loads one component file for an engine; a registration for each of its routes.
///
/// Kept instances are then dropped only when they are replaced, not for being idle.
///
/// # Errors
/// Why it would not be loaded from a plugins directory either.
pub async fn load_listener(engine: &Arc<Engine>, file: &Path, manifest: Manifest) -> Result<Vec<Registration>, LoadError> {
    let loader = Loader { engine: engine.clone(), cache: None, resolve: Resolve::default() };
    let (_, loaded) = load(&loader, file, manifest).await?;
    Ok(loaded.plugin.registrations().1)
}

async fn load(loader: &Loader, file: &Path, manifest: Manifest) -> Result<(Arc<Bytes>, Loaded), LoadError> {
    let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let bytes = Arc::new(Bytes::read(parent(file), file, Settled::Yes)?);
    let loaded = loader.load(&name, bytes.clone(), manifest).await?;
    Ok((bytes, loaded))
}

fn beside(file: &Path) -> Result<Manifest, LoadError> {
    let name = || file.with_extension("toml").display().to_string();
    let written = directory::manifest_beside(parent(file), file)?;
    written.manifest.map_err(|reason| LoadError::Manifest { file: name(), reason })
}

fn parent(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
