//! From bytes to a plugin: scanned, compiled, compared, linked, described. Each step has its own error.

pub(super) mod anatomy;
pub(super) mod compile;
mod contract;
mod damaged;
mod description;
pub(super) mod grants;
mod instance_size;
pub(super) mod on_events;
pub(super) mod plugin;
mod scan;

pub use self::anatomy::{Anatomy, CoreModule, anatomy};
pub use self::compile::{ChildCompiler, Compile, CompileLimits, run_compiler};

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outbox_event::StateQuota;
use outbox_event::text::keepable;
use outbox_event::time::system_clock;
use outbox_event::units::ByteSize;
use outbox_sink::Sinks;
use sha2::{Digest as _, Sha256};
use wasmtime::component::Component;

use self::anatomy::most_table_elements;
use self::compile::{CompileFailure, in_proportion};
use self::description::{check_on_events, check_settings, describe, routes};
use self::instance_size::check_instance_size;
use self::plugin::{Linked, Plugin, engine_for};
use self::scan::scan;
use super::bindings::ListenerPre;
use super::bindings::exports::outbox::listener::handler::Description;
use super::capability::emit::EmitGrant;
use super::capability::http::Network;
use super::capability::publish::PublishGrant;
use super::capability::state::{StateGrant, StateSource};
use super::capability::{Grants, Identity};
use super::directory::ManifestFile;
use super::directory::file::Bytes;
use super::engine::compatibility::compatibility;
use super::engine::{Engine, MAX_TABLE_ELEMENTS, SMALL_TABLE_ELEMENTS, weight};
use super::error::LoadError;
use super::manifest::references::{References, WrittenIn};
use super::manifest::{Limits, Manifest, Publish};
use super::private::cache::{Cache, copied, from_child};
use super::private::quarantine::{Quarantine, Record};

const DESCRIBE_MEMORY_PAGES: u64 = 65_536;
/// A compilation that takes longer is logged while it runs.
const SLOW_COMPILATION: Duration = Duration::from_secs(2);

/// A plugin just loaded, and what it cost.
pub(super) struct Loaded {
    pub(super) plugin: Arc<Plugin>,
    /// How long it took to compile the component, or to read what was compiled before.
    pub(super) compile: Duration,
    /// Whether the compiled component came from the cache.
    pub(super) is_from_cache: bool,
}

/// What a load needs beside the bytes.
#[derive(Clone)]
pub(super) struct Loader {
    pub(super) engine: Arc<Engine>,
    pub(super) cache: Option<Arc<Cache>>,
    pub(super) references: References,
    /// `None` where plugins can keep nothing.
    pub(super) state: Option<Arc<dyn StateSource>>,
    pub(super) network: Network,
    /// `None` where nobody asks whether there is a sink of a name.
    pub(super) sinks: Option<Sinks>,
    pub(super) compile: Compile,
    pub(super) compile_limits: CompileLimits,
    pub(super) quarantine: Arc<Quarantine>,
}

/// What a plugin is made of.
pub(super) struct Parts {
    pub(super) bytes: Arc<Bytes>,
    pub(super) written: ManifestFile,
    /// The component, where it is compiled already for this engine.
    pub(super) component: Option<Component>,
}

impl Loader {
    /// One that keeps nothing, compiles in this process, and refers to nothing.
    pub(super) fn bare(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            cache: None,
            references: References::default(),
            state: None,
            network: Network::new(None),
            sinks: Some(Sinks::default()),
            compile: Compile::InProcess,
            compile_limits: CompileLimits::default(),
            quarantine: Arc::new(Quarantine::new(None, system_clock())),
        }
    }

    /// Makes a plugin of these bytes. Nothing that runs is touched.
    pub(super) async fn load(&self, name: &str, bytes: Arc<Bytes>, written: ManifestFile) -> Result<Loaded, LoadError> {
        self.load_parts(name, Parts { bytes, written, component: None }).await
    }

    /// [`load`](Self::load), which need not compile what is compiled.
    pub(super) async fn load_parts(&self, name: &str, parts: Parts) -> Result<Loaded, LoadError> {
        let Parts { bytes, written, component } = parts;
        let manifest = accepted(name, &bytes.file, &bytes.digest, &written)?;
        let grants = self.grants(name, written.written_in, &manifest)?;
        let started = Instant::now();
        let (component, is_from_cache) = match component {
            Some(component) => (component, true),
            None => self.compile(bytes.clone()).await?,
        };
        let compile = started.elapsed();
        let file = bytes.file.as_path();
        let differences = contract::differences(&component);
        if !differences.is_empty() {
            return Err(LoadError::WrongWorld { file: file.to_owned(), differences });
        }
        check_needs(file, name, &component, &manifest.limits)?;
        // Also for a component from the cache, which no scan has seen.
        let host_bytes = check_instance_size(&bytes)?;
        let has_small_tables = has_small_tables(&component, &bytes.bytes);
        let engine = engine_for(&self.engine, manifest.isolation, has_small_tables)?;
        // Compiled for the engine that all begin with; what serves already may be of any, for its isolation may have been another.
        let component = if wasmtime::Engine::same(component.engine(), &engine.wasm) {
            component
        } else {
            copied(&component, &engine.wasm).map_err(LoadError::Engine)?
        };
        let pre = engine
            .linker
            .instantiate_pre(&component)
            .and_then(ListenerPre::new)
            .map_err(|error| LoadError::Link { file: file.to_owned(), reason: keepable(&format!("{error:#}"), 1_024) })?;
        let digest = bytes.digest[..12].to_owned();
        let limits = manifest.limits;
        let identity = |grants| Arc::new(Identity::new(name.to_owned(), digest.clone(), grants));
        // Described without configuration: what it says of itself must not depend on what it was granted.
        // The version that serves may have all that the plugin may have: this one is tried beside it.
        let share = self.engine.memory.share(&format!("{name} (loading)"));
        let (bare, weight) = (identity(Grants::default()), weight(&component));
        let bare = Linked { engine, pre, identity: bare, share, limits, weight, host_bytes, has_small_tables };
        let description = describe(file, &bare).await?;
        let routes = routes(file, &description)?;
        check_on_events(file, &component, &bare).await?;
        // It looks at its settings, and at nothing else: nothing may happen outside while a component is only tried.
        let (config, secrets) = (grants.config.clone(), grants.secrets.clone());
        let bare = Linked { identity: identity(Grants { config, secrets, ..Grants::default() }), ..bare };
        check_settings(file, &component, &bare, &written).await?;
        let linked = Linked { identity: identity(grants), share: self.engine.memory.share(name), ..bare };
        let Description { name: described_name, version, .. } = description;
        let on_events = on_events::export(&component);
        let imports = contract::imports(&component);
        let plugin = Arc::new(Plugin { linked, manifest, version, described_name, routes, imports, on_events });
        Ok(Loaded { plugin, compile, is_from_cache })
    }

    /// Whether the component need not be compiled now: it has been before, or must not be.
    pub(super) fn is_quick(&self, digest: &str) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.has(&self.engine.wasm, digest)) || self.quarantined(digest).is_some()
    }

    /// What the references of a manifest stand for now, as a digest that tells whether it changed; `None` when one stands for
    /// nothing.
    pub(super) fn values(&self, name: &str, written: &ManifestFile) -> Option<String> {
        let manifest = written.manifest.as_ref().ok()?;
        let mut hasher = Sha256::new();
        for (table, values) in [("config", &manifest.config), ("secrets", &manifest.secrets)] {
            for (key, value) in values {
                let value = self.references.text(name, written.written_in, value).ok()?;
                // With their lengths, or two values could pass for one.
                for part in [table, key, &value] {
                    hasher.update((part.len() as u64).to_le_bytes());
                    hasher.update(part);
                }
            }
        }
        Some(data_encoding::HEXLOWER.encode(&hasher.finalize()))
    }

    /// Why the bytes of this digest are not compiled; `None` when they may be.
    pub(super) fn quarantined(&self, digest: &str) -> Option<Record> {
        self.quarantine.find(&compatibility(&self.engine.wasm), digest)
    }

    fn grants(&self, name: &str, written_in: WrittenIn, manifest: &Manifest) -> Result<Grants, LoadError> {
        let grant = |source: &Arc<dyn StateSource>| {
            let state = manifest.state?;
            let quota = StateQuota { keys: state.max_keys, bytes: state.max_bytes.0 };
            Some(StateGrant { source: source.clone(), quota })
        };
        Ok(Grants {
            config: self.references.table(name, written_in, "config", &manifest.config)?,
            secrets: self.references.table(name, written_in, "secrets", &manifest.secrets)?.into(),
            emit: manifest.emit.clone().map(|emit| Arc::new(EmitGrant::new(emit))),
            state: self.state.as_ref().and_then(grant),
            publish: manifest.publish.as_ref().map(|publish| self.publishes(name, publish)).transpose()?,
            http: manifest.http.as_ref().map(|http| self.network.client(http)).transpose()?,
        })
    }

    fn publishes(&self, name: &str, publish: &Publish) -> Result<Arc<PublishGrant>, LoadError> {
        if let Some(sinks) = &self.sinks {
            check_sinks(name, publish, sinks)?;
        }
        Ok(Arc::new(PublishGrant {
            names: publish.sinks.clone(),
            sinks: self.sinks.as_ref().map(Sinks::with_own_share).unwrap_or_default(),
            told: Mutex::default(),
        }))
    }

    /// Compiles the component, unless the cache has it; true when it had.
    async fn compile(&self, bytes: Arc<Bytes>) -> Result<(Component, bool), LoadError> {
        if let Some(component) = self.cached(&bytes).await? {
            return Ok((component, true));
        }
        let turn = self.engine.compiling.lock().await;
        // Another may have compiled the same bytes meanwhile, or have had to be stopped.
        if let Some(component) = self.cached(&bytes).await? {
            return Ok((component, true));
        }
        if let Some(record) = self.quarantined(&bytes.digest) {
            return Err(LoadError::Quarantined { file: bytes.file.clone(), how: record.reason, since: record.since });
        }
        let file = bytes.file.clone();
        let compiling = async {
            match &self.compile {
                Compile::InProcess => self.in_process(bytes).await,
                Compile::Child(child) => self.in_child(child, bytes).await,
            }
        };
        let component = log_if_slow(&file, compiling).await;
        drop(turn);
        Ok((component?, false))
    }

    /// The component as the cache has it.
    async fn cached(&self, bytes: &Arc<Bytes>) -> Result<Option<Component>, LoadError> {
        let Some(cache) = self.cache.clone() else { return Ok(None) };
        let (engine, same) = (self.engine.wasm.clone(), bytes.clone());
        blocking(bytes, move || Ok(cache.load(&engine, &same.digest))).await
    }

    async fn in_process(&self, bytes: Arc<Bytes>) -> Result<Component, LoadError> {
        let (engine, cache, same) = (self.engine.wasm.clone(), self.cache.clone(), bytes.clone());
        blocking(&bytes, move || {
            scan(&same)?;
            let component =
                Component::from_binary(&engine, &same.bytes).map_err(|error| refused(&same, &format!("{error:#}")))?;
            let image = component.image_range();
            in_proportion(same.bytes.len(), image.end.addr() - image.start.addr()).map_err(|reason| refused(&same, &reason))?;
            if let Some(cache) = cache {
                match component.serialize() {
                    Ok(compiled) => cache.store(&engine, &same.digest, &compiled),
                    Err(error) => tracing::warn!(
                        target: "outbox::wasm::load",
                        "the next start compiles {} again: {error:#}",
                        same.file.display()
                    ),
                }
            }
            Ok(component)
        })
        .await
    }

    async fn in_child(&self, child: &ChildCompiler, bytes: Arc<Bytes>) -> Result<Component, LoadError> {
        let same = bytes.clone();
        blocking(&bytes, move || scan(&same)).await?;
        let compatibility = compatibility(&self.engine.wasm);
        let compiled = child.compile(&bytes.bytes, &compatibility, &self.compile_limits).await;
        let compiled = compiled.map_err(|trouble| match trouble {
            CompileFailure::Refused(reason) => refused(&bytes, &reason),
            CompileFailure::Stopped(how) => {
                self.quarantine.put(&compatibility, &bytes.digest, &how);
                LoadError::Stopped { file: bytes.file.clone(), how }
            }
            CompileFailure::Late { wall } => LoadError::CompilerLate { file: bytes.file.clone(), wall },
            CompileFailure::Failed(source) => LoadError::Compiler { file: bytes.file.clone(), source },
        })?;
        let (engine, cache, same) = (self.engine.wasm.clone(), self.cache.clone(), bytes.clone());
        blocking(&bytes, move || {
            let component = from_child(&engine, &compiled);
            let component = component.map_err(|source| LoadError::Compiler { file: same.file.clone(), source })?;
            if let Some(cache) = cache {
                cache.store(&engine, &same.digest, &compiled);
            }
            Ok(component)
        })
        .await
    }
}

/// Logs that a compilation is still running when it takes long.
async fn log_if_slow<T>(file: &Path, compiling: impl Future<Output = T>) -> T {
    let mut compiling = std::pin::pin!(compiling);
    if let Ok(done) = tokio::time::timeout(SLOW_COMPILATION, compiling.as_mut()).await {
        return done;
    }
    tracing::info!(target: "outbox::wasm::load", "{} is still being compiled", file.display());
    compiling.await
}

/// Runs what takes a processor or a disk off the runtime's threads.
async fn blocking<T: Send + 'static>(
    bytes: &Bytes,
    work: impl FnOnce() -> Result<T, LoadError> + Send + 'static,
) -> Result<T, LoadError> {
    let gave_up = |panic| LoadError::Compile { file: bytes.file.clone(), reason: format!("the compiler gave up ({panic})") };
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|panic| Err(gave_up(panic)))
}

/// Refuses a manifest that grants a sink which the host does not have.
pub(super) fn check_sinks(name: &str, publish: &Publish, sinks: &Sinks) -> Result<(), LoadError> {
    let Some(sink) = publish.sinks.iter().find(|sink| sinks.get(sink).is_none()) else { return Ok(()) };
    let known = sinks.names().map(str::to_owned).collect();
    Err(LoadError::Sink { plugin: name.to_owned(), sink: keepable(sink, 100), known })
}

/// The manifest, if name, manifest and bytes of this digest go together.
pub(super) fn accepted(name: &str, file: &Path, digest: &str, written: &ManifestFile) -> Result<Manifest, LoadError> {
    if !is_plugin_name(name) {
        return Err(LoadError::Name { file: file.to_owned() });
    }
    let manifest = written.checked(file)?;
    match &manifest.digest {
        Some(wanted) if wanted != digest => Err(LoadError::Digest {
            file: file.to_owned(),
            manifest: written.location(file),
            wanted: wanted.clone(),
            found: digest.to_owned(),
        }),
        _ => Ok(manifest.clone()),
    }
}

/// A name that reads the same in logs, paths, metrics and sections of a configuration.
pub(super) fn is_plugin_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

fn refused(bytes: &Bytes, reason: &str) -> LoadError {
    let mut reason = keepable(reason, 1_024);
    if reason.contains("async") {
        reason.push_str("; this host calls the synchronous ABI: build with `--sync` or without async exports");
    }
    LoadError::Compile { file: bytes.file.clone(), reason }
}

/// Refuses what could never be instantiated, before trying.
fn check_needs(file: &Path, name: &str, component: &Component, limits: &Limits) -> Result<(), LoadError> {
    // `None` for a component that imports modules, which the comparison has refused already.
    let Some(needed) = component.resources_required() else { return Ok(()) };
    let page = 65_536;
    let memory = needed.max_initial_memory_size.unwrap_or(0).min(DESCRIBE_MEMORY_PAGES).saturating_mul(page);
    if memory > limits.memory.0 {
        return Err(LoadError::Needs {
            file: file.to_owned(),
            what: format!("{} of memory to begin with, more than its {}", ByteSize(memory), limits.memory),
            advice: format!("raise limits.memory of the plugin {name}"),
        });
    }
    let elements = needed.max_initial_table_size.unwrap_or(0);
    if elements > MAX_TABLE_ELEMENTS as u64 {
        return Err(LoadError::Needs {
            file: file.to_owned(),
            what: format!("a table of {elements} elements, more than {MAX_TABLE_ELEMENTS}"),
            advice: "build a smaller component".to_owned(),
        });
    }
    Ok(())
}

/// Whether no table in a component can grow beyond a small one.
fn has_small_tables(component: &Component, bytes: &[u8]) -> bool {
    let small = SMALL_TABLE_ELEMENTS as u64;
    let begins_small = component.resources_required().is_some_and(|needed| needed.max_initial_table_size.unwrap_or(0) <= small);
    begins_small && most_table_elements(bytes).is_some_and(|most| most <= small)
}
