//! The one file that knows how the plugins room is asked.

use std::path::{Path, PathBuf};

use outbox::Mode;
pub(crate) use outbox::node::{PluginState, PluginStatus};
use outbox::sink::Sinks;
use outbox::wasm::{self, ChildCompiler, Compile, Resolve, Source, State};
pub(crate) use outbox::wasm::{
    Anatomy, CoreModule, Limits, LoadError, LockChange, Locked, PluginReport, PluginsConfig, RolledBack, WherePinned,
};

use crate::config::{Config, cache_dir, reference};
use crate::output::busy;

/// The settings for the room that loads plugins, which asks us for what manifests only refer to. Every command has the same cache
/// and the same sandbox, so that none compiles what another did.
pub(crate) fn settings(config: &Config) -> PluginsConfig {
    let cache_dir = config.plugins.cache_dir.clone().or_else(cache_dir);
    PluginsConfig { resolve: resolve(), cache_dir, compile: compile(), ..config.plugins.clone() }
}

/// The settings for looking at plugins without a host, whose sinks they may be granted.
fn alone(config: &Config) -> PluginsConfig {
    let sinks = Sinks::connect(&config.sinks()).unwrap_or_else(|error| {
        tracing::error!(%error, "the sinks cannot be made; plugins with a grant for a sink do not load");
        Sinks::default()
    });
    PluginsConfig { sinks, ..settings(config) }
}

/// This very program, also when an update has replaced its file meanwhile.
fn compile() -> Compile {
    let program = PathBuf::from("/proc/self/exe");
    let program = if program.exists() { Ok(program) } else { std::env::current_exe() };
    match program {
        Ok(program) => Compile::Child(ChildCompiler { program, arguments: vec![crate::compile::NAME.into()] }),
        Err(error) => {
            tracing::warn!("plugins are compiled without limits, since this program cannot find itself: {error}");
            Compile::InProcess
        }
    }
}

/// Takes a component file apart, without compiling or running it.
///
/// # Errors
/// When it is no component.
pub(crate) fn anatomy(file: &Path) -> Result<Anatomy, LoadError> {
    wasm::anatomy(file)
}

/// Lets a component be compiled again; true when it was not to be.
///
/// # Errors
/// When there is no such plugin, or nothing can be noted.
pub(crate) fn retry(name: &str, config: &Config) -> Result<bool, LoadError> {
    wasm::retry(&settings(config), name)
}

fn resolve() -> Resolve {
    Resolve::new(|source, name| match source {
        Source::Env => reference("env", name),
        Source::File => reference("file", name),
    })
}

/// Loads the directory without serving it.
///
/// # Errors
/// When the directory cannot be used.
pub(crate) async fn inspect(config: &Config) -> Result<Vec<PluginStatus>, LoadError> {
    busy("loading the plugins", wasm::inspect(alone(config), config.dispatcher.workers)).await
}

/// Everything that is wrong with the manifests and pins of the plugins directory. Empty when there is no such directory, or the mode
/// loads no plugin.
pub(crate) fn manifest_faults(config: &Config) -> Vec<String> {
    if config.mode == Mode::WriterOnly {
        return Vec::new();
    }
    let faults = wasm::check_manifests(&alone(config)).unwrap_or_default();
    faults.iter().map(|fault| outbox::chain(fault)).collect()
}

/// A sentence for each file of the directory that belongs to no component; none when there is no such directory.
pub(crate) fn strays(dir: &Path) -> Vec<String> {
    wasm::strays(dir).unwrap_or_default()
}

/// Loads another directory, with the settings of this one.
///
/// # Errors
/// When the directory cannot be used.
pub(crate) async fn inspect_dir(dir: &Path, config: &Config) -> Result<Vec<PluginStatus>, LoadError> {
    let settings = PluginsConfig { dir: dir.to_owned(), ..alone(config) };
    busy("loading the plugins", wasm::inspect(settings, config.dispatcher.workers)).await
}

/// Pins the plugins of a directory; the file, and what it pins.
///
/// # Errors
/// When a file cannot be read, or the pins cannot be written.
pub(crate) fn lock(dir: Option<PathBuf>, config: &Config) -> Result<(PathBuf, Vec<Locked>), LoadError> {
    let settings = settings(config);
    wasm::lock(&PluginsConfig { dir: dir.unwrap_or_else(|| settings.dir.clone()), ..settings })
}

/// Puts the version before back.
///
/// # Errors
/// When there is none, it is not what is pinned, or it cannot be written.
pub(crate) fn rollback(name: &str, pinned: WherePinned, config: &Config) -> Result<RolledBack, LoadError> {
    wasm::rollback(&settings(config), name, pinned)
}

/// Looks at one component file.
///
/// # Errors
/// Why it cannot be loaded.
pub(crate) async fn check(file: &Path, config: &Config) -> Result<PluginReport, LoadError> {
    busy("compiling the component", wasm::check(file, alone(config), config.dispatcher.workers)).await
}

/// Looks at one component file as if it lay at `at`, beside the manifest there.
///
/// # Errors
/// Why it cannot be loaded.
pub(crate) async fn check_at(file: &Path, at: &Path, config: &Config) -> Result<PluginReport, LoadError> {
    busy("compiling the component", wasm::check_at(file, at, alone(config), config.dispatcher.workers)).await
}

/// What is known here of how much a plugin may keep.
pub(crate) enum StateQuotaKnown {
    Granted(State),
    NotGranted,
    /// There is no such plugin here, or nobody can read its manifest.
    Unknown,
}

/// The manifest of a plugin: that of the configuration, or the one beside the component; `None` when nobody can read it.
pub(crate) fn manifest(name: &str, config: &Config) -> Option<wasm::Manifest> {
    wasm::manifest_of(&config.plugins, name).ok().flatten()
}

/// What the manifest of a plugin grants: that of the configuration, or the one beside the component.
pub(crate) fn state_grant(name: &str, config: &Config) -> StateQuotaKnown {
    match wasm::manifest_of(&config.plugins, name) {
        Ok(Some(manifest)) => manifest.state.map_or(StateQuotaKnown::NotGranted, StateQuotaKnown::Granted),
        Ok(None) | Err(_) => StateQuotaKnown::Unknown,
    }
}

/// Which plugin answers a route.
pub(crate) fn answering<'a>(plugins: &'a [PluginStatus], route: &outbox::Route) -> Option<&'a PluginStatus> {
    plugins.iter().find(|plugin| plugin.routes.contains(route))
}
