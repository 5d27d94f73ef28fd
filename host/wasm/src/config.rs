//! The configuration of plugins: where they come from, and what they may use together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outbox_event::time::system_clock;
use outbox_event::units::{ByteSize, duration};
use outbox_sink::Sinks;
use serde::{Deserialize, Serialize};

use crate::capability::http::Network;
use crate::capability::state::StateSource;
use crate::directory::pins::Rule;
use crate::engine::{DEFAULT_MEMORY, Engine, PagemapScan};
use crate::load::Loader;
use crate::load::compile::{Compile, CompileLimits};
use crate::manifest::Manifest;
use crate::manifest::references::{References, Resolve};
use crate::private::Private;
use crate::private::cache::Cache;
use crate::private::quarantine::Quarantine;

/// Where plugins come from.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PluginsConfig {
    /// The directory of `NAME.wasm` and `NAME.toml`. Default `plugins`.
    pub dir: PathBuf,
    /// The file that pins plugins to digests; `None` for `plugins.lock` in the directory. Default `None`.
    pub lock: Option<PathBuf>,
    /// Whether only plugins that are pinned are loaded. Default false.
    pub strict: bool,
    /// The plugins without which the host is not ready, by name. Default none.
    pub required: BTreeSet<String>,
    /// Numbers of the users, beside root and this process's own, who may own the directory and its files. Default none.
    pub trusted_owners: Vec<u32>,
    /// A private directory for what the host notes for its next start: compiled components, the last versions that served, and
    /// components that must not be compiled again; `None` compiles at every start. Default `None`.
    pub cache_dir: Option<PathBuf>,
    /// The most bytes of compiled components that the private directory keeps, and as many of versions that served; what
    /// serves, and the last good version of each plugin, stay in any case. Default 1 GiB.
    pub cache_max: ByteSize,
    /// The limits of compiling one component in a child process.
    pub compile_limits: CompileLimits,
    /// Where components are compiled. Default: in this process.
    #[serde(skip)]
    pub compile: Compile,
    /// Rest between two looks at everything, for changes that the system does not report. Default 30 s; above zero.
    #[serde(with = "duration")]
    pub rescan_interval: Duration,
    /// How long the directory must be quiet after a change. Default 250 ms.
    #[serde(with = "duration")]
    pub debounce: Duration,
    /// The memory of all guests of one host together: a call that would take more waits. Of several plugins, one leaves as much
    /// free as it has, and at least a quarter, for all but one of its instances. Default 1 GiB; above zero.
    pub memory: ByteSize,
    /// Whether memory is cleaned with the kernel's help. Default `auto`.
    pub pagemap_scan: PagemapScan,
    /// The plugins that must serve before [`Plugins::start`](crate::Plugins::start) returns. Default `all`.
    pub ready_when: ReadyWhen,
    /// The directory whose files a manifest beside a component may refer to by `${file:NAME}`; `None` for no files. Default
    /// `None`.
    pub files_dir: Option<PathBuf>,
    /// Certificates in PEM of authorities that HTTPS requests of plugins trust beside the system's; `None` for the system's
    /// alone. Default `None`.
    pub ca_file: Option<PathBuf>,
    /// Manifests by plugin name, each in place of the `NAME.toml` beside the component. They may refer to whatever `resolve`
    /// finds; a manifest beside a component only to variables `OUTBOX_PLUGIN_…` and to the files of `files_dir`.
    pub manifests: BTreeMap<String, Manifest>,
    /// The sinks that plugins may be granted to publish to. Default none; an outbox puts its own here.
    #[serde(skip)]
    pub sinks: Sinks,
    /// Finds what `${env:NAME}` and `${file:PATH}` in a `[config]` stand for. Default: refuses.
    #[serde(skip)]
    pub resolve: Resolve,
}

impl Default for PluginsConfig {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("plugins"),
            lock: None,
            strict: false,
            required: BTreeSet::new(),
            trusted_owners: Vec::new(),
            cache_dir: None,
            cache_max: ByteSize::mib(1_024),
            compile_limits: CompileLimits::default(),
            compile: Compile::default(),
            rescan_interval: Duration::from_secs(30),
            debounce: Duration::from_millis(250),
            memory: DEFAULT_MEMORY,
            pagemap_scan: PagemapScan::default(),
            ready_when: ReadyWhen::default(),
            files_dir: None,
            ca_file: None,
            manifests: BTreeMap::new(),
            sinks: Sinks::default(),
            resolve: Resolve::default(),
        }
    }
}

/// The plugins that must serve before a host is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyWhen {
    /// Every plugin that can be loaded.
    #[default]
    All,
    /// Every plugin that the cache has compiled; the others follow as they are compiled, and their events wait.
    Cached,
}

impl PluginsConfig {
    /// The host's private directory, where one is set and can be trusted.
    pub(super) fn private(&self) -> Option<Arc<Private>> {
        self.cache_dir.as_deref().and_then(Private::open).map(Arc::new)
    }

    /// Where plugins are pinned, and whether all must be.
    pub(super) fn rule(&self) -> Rule {
        Rule { lock: self.lock.clone(), strict: self.strict }
    }

    /// Makes the loader of components for this engine.
    pub(super) fn loader(
        &self,
        engine: Arc<Engine>,
        state: Option<Arc<dyn StateSource>>,
        private: Option<Arc<Private>>,
    ) -> Loader {
        engine.memory.set_max(self.memory.as_usize());
        Loader {
            engine,
            cache: private.clone().map(|private| Arc::new(Cache::new(private, self.cache_max))),
            references: References { resolve: self.resolve.clone(), files_dir: self.files_dir.clone() },
            state,
            network: Network::new(self.ca_file.clone()),
            sinks: Some(self.sinks.clone()),
            compile: self.compile.clone(),
            compile_limits: self.compile_limits,
            quarantine: Arc::new(Quarantine::new(private, system_clock())),
        }
    }
}
