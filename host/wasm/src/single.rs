//! One component file, without a directory around it: for `plugin check`, for benchmarks and for tests.

mod call;
mod memory_state;
pub(super) mod outside;
mod plugin_host;
mod report;

pub use self::call::Call;
pub use self::memory_state::MemoryState;
pub use self::outside::{Disturbance, Outside, Trouble};
pub use self::plugin_host::PluginHost;
pub use self::report::{CallReport, InstanceUse};

use std::path::Path;
use std::sync::Arc;

use outbox_listener::Registration;

use super::call::PluginListener;
use super::config::PluginsConfig;
use super::directory::file::Bytes;
use super::directory::open_dir::{OpenDir, parent};
use super::directory::{self, ManifestFile};
use super::engine::{Engine, PagemapScan};
use super::error::LoadError;
use super::load::grants;
use super::load::{Loaded, Loader};
use super::manifest::Manifest;
use super::reload::report::PluginReport;

/// Loads one component file as a host with this configuration and this many workers would, and reports what it is. Nothing of
/// it runs but `describe`. What is compiled stays in the cache, for the host.
///
/// # Errors
/// Why it would not be loaded from a plugins directory either.
pub async fn check(file: &Path, config: PluginsConfig, workers: usize) -> Result<PluginReport, LoadError> {
    check_at(file, file, config, workers).await
}

/// [`check`] of a component as if it lay at `at`, and so had that name and the manifest that lies beside it there.
///
/// # Errors
/// Why it would not be loaded from there.
pub async fn check_at(file: &Path, at: &Path, config: PluginsConfig, workers: usize) -> Result<PluginReport, LoadError> {
    let written = match config.manifests.get(&name_of(at)) {
        Some(manifest) => ManifestFile::from_config(manifest.clone()),
        None => directory::manifest_beside(&OpenDir::open(parent(at), None)?, at)?,
    };
    let loader = config.loader(Engine::new(workers, PagemapScan::Off)?, None, config.private());
    let bytes = Bytes::read(&OpenDir::open(parent(file), None)?, file)?;
    let bytes = Arc::new(Bytes { file: at.to_owned(), ..bytes });
    let loaded = loader.load(&name_of(at), bytes.clone(), written).await?;
    Ok(report(&bytes, &loaded))
}

/// What is told of a component that was loaded.
pub(super) fn report(bytes: &Bytes, loaded: &Loaded) -> PluginReport {
    let Loaded { plugin, compile, is_from_cache } = loaded;
    let capabilities = plugin.capabilities();
    let name = &plugin.linked.identity.name;
    PluginReport {
        name: name.clone(),
        described_name: plugin.described_name.clone(),
        version: plugin.version.clone(),
        digest: bytes.digest.clone(),
        routes: plugin.routes.clone(),
        granted: grants::granted(&capabilities),
        not_granted: grants::not_granted(&capabilities),
        imports: plugin.imports.clone(),
        size_bytes: bytes.bytes.len() as u64,
        compile: *compile,
        is_from_cache: *is_from_cache,
        isolation: plugin.isolation(),
        limits: plugin.manifest.limits,
    }
}

/// Loads one component file for an engine; a registration for each of its routes.
///
/// Kept instances are then dropped only when they are replaced, not for being idle.
///
/// # Errors
/// Why it would not be loaded from a plugins directory either.
pub async fn load_listener(engine: &Arc<Engine>, file: &Path, manifest: Manifest) -> Result<Vec<Registration>, LoadError> {
    let (_, loaded) = load(&Loader::bare(engine.clone()), file, ManifestFile::from_config(manifest)).await?;
    Ok(PluginListener::of(&loaded.plugin).1)
}

async fn load(loader: &Loader, file: &Path, written: ManifestFile) -> Result<(Arc<Bytes>, Loaded), LoadError> {
    let bytes = Arc::new(Bytes::read(&OpenDir::open(parent(file), None)?, file)?);
    let loaded = loader.load(&name_of(file), bytes.clone(), written).await?;
    Ok((bytes, loaded))
}

pub(super) fn name_of(file: &Path) -> String {
    file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}
