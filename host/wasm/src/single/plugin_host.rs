//! The sandbox used alone: one component, called with events that nobody stored, without a database or a dispatcher.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox_event::{Cause, Effects, Failure, GuestCost, Outcome, Route};
use outbox_listener::Visit;
use outbox_sink::Sinks;

use super::call::Call;
use super::memory_state::MemoryState;
use super::outside::{Confirms, EmptyAnswers, Gate, GatedHttp, GatedSink, GatedState};
use super::report::{CallReport, InstanceUse};
use super::{name_of, report};
use crate::call::PluginListener;
use crate::capability::http::HttpStandIn;
use crate::capability::publish::PublishGrant;
use crate::capability::state::{StateGrant, StateSource};
use crate::capability::{Grants, Identity, Secrets};
use crate::config::PluginsConfig;
use crate::directory;
use crate::directory::ManifestFile;
use crate::directory::file::Bytes;
use crate::directory::open_dir::{OpenDir, parent};
use crate::engine::{Engine, PagemapScan};
use crate::error::LoadError;
use crate::limits::{INIT_FUEL, MAX_FILE_BYTES};
use crate::load::plugin::{Instance, Linked, Plugin, used};
use crate::load::{Loaded, Loader};
use crate::manifest::Manifest;
use crate::reload::report::PluginReport;

/// One call at a time, and one instance kept.
const WORKERS: usize = 2;
/// Counted failures after which an event is dead, as the guest is told unless the caller says otherwise.
const MAX_ATTEMPTS: u32 = 10;

/// A component in a sandbox of its own: for tests of plugins, for trying one on stored events, for a program that wants sandboxed
/// listeners and has no outbox.
///
/// What the component does beside its answer is reported and not done: what it emits is collected, what it writes to its state
/// is not written, its log lines go into the report and not into the log. Calls go one at a time.
pub struct PluginHost {
    plugin: Arc<Plugin>,
    listener: PluginListener,
    description: Arc<PluginReport>,
    stand_ins: StandIns,
    gate: Arc<Gate>,
    kept: tokio::sync::Mutex<Option<Instance>>,
}

/// What answers a component in place of what lies outside.
#[derive(Clone)]
struct StandIns {
    state: Arc<dyn StateSource>,
    http: Arc<dyn HttpStandIn>,
    /// By name; one that is not there confirms every message.
    sinks: Sinks,
}

impl std::fmt::Debug for PluginHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PluginHost").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl PluginHost {
    /// Loads a component of which the bytes are at hand. Its state is empty; values of its manifest refer to nothing elsewhere.
    ///
    /// # Errors
    /// Why it would not be loaded from a plugins directory either.
    pub async fn from_bytes(name: &str, bytes: Vec<u8>, manifest: Manifest) -> Result<Self, LoadError> {
        let file = Path::new(name).with_extension("wasm");
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(LoadError::TooLarge { file, bytes: bytes.len() as u64 });
        }
        let bytes = Bytes::of(&file, bytes);
        bytes.check_kind()?;
        Self::new(name, bytes, ManifestFile::from_config(manifest), &PluginsConfig::default(), Arc::new(MemoryState::default()))
            .await
    }

    /// Loads a component file as a host with this configuration would: with the manifest that the configuration has for its
    /// name, or with the one beside it; compiled by the cache. It reads its state from `state`, a [`MemoryState`] or a database's.
    ///
    /// # Errors
    /// Why it would not be loaded from a plugins directory either.
    pub async fn from_file(file: &Path, config: &PluginsConfig, state: Arc<dyn StateSource>) -> Result<Self, LoadError> {
        Self::from_file_as(&name_of(file), file, config, state).await
    }

    /// As [`from_file`](Self::from_file), for a file that is called otherwise than the plugin: without a manifest beside it, it
    /// gets the one that the plugin has in the plugins directory.
    ///
    /// # Errors
    /// Why it would not be loaded from a plugins directory either.
    pub async fn from_file_as(
        name: &str,
        file: &Path,
        config: &PluginsConfig,
        state: Arc<dyn StateSource>,
    ) -> Result<Self, LoadError> {
        let open_dir = OpenDir::open(parent(file), None)?;
        let bytes = Bytes::read(&open_dir, file)?;
        let written = match config.manifests.get(name) {
            Some(manifest) => ManifestFile::from_config(manifest.clone()),
            None => manifest(name, &open_dir, file, &config.dir)?,
        };
        Self::new(name, bytes, written, config, state).await
    }

    async fn new(
        name: &str,
        bytes: Bytes,
        written: ManifestFile,
        config: &PluginsConfig,
        state: Arc<dyn StateSource>,
    ) -> Result<Self, LoadError> {
        let engine = Engine::new(WORKERS, PagemapScan::Off)?;
        let loader = config.loader(engine, Some(state.clone()), config.private());
        // Nothing goes to a sink from here, so that none need be there.
        let loader = Loader { sinks: None, ..loader };
        let bytes = Arc::new(bytes);
        let loaded = loader.load(name, bytes.clone(), written).await?;
        let description = Arc::new(report(&bytes, &loaded));
        let Loaded { plugin, .. } = loaded;
        let grants = plugin.linked.identity.grants.clone();
        Ok(Self::of(&plugin, grants, description, StandIns { state, http: Arc::new(EmptyAnswers), sinks: Sinks::default() }))
    }

    fn of(plugin: &Plugin, granted: Grants, description: Arc<PluginReport>, stand_ins: StandIns) -> Self {
        // A gate of its own, since another host may call at the same time.
        let gate = Arc::new(Gate::default());
        let Grants { config, secrets, emit, state: keeps, publish, http } = granted;
        let source = Arc::new(GatedState { gate: gate.clone(), state: stand_ins.state.clone() });
        let keeps = keeps.map(|StateGrant { quota, .. }| StateGrant { source, quota });
        let http = http.map(|client| {
            let answers = GatedHttp { gate: gate.clone(), answers: stand_ins.http.clone() };
            Arc::new(client.answered_by(Arc::new(answers)))
        });
        let publish = publish.map(|publish| {
            let with = |sinks: Sinks, name: &String| {
                let sink = stand_ins.sinks.get(name).unwrap_or_else(|| Arc::new(Confirms));
                sinks.with(name, Arc::new(GatedSink { gate: gate.clone(), name: name.clone(), sink }))
            };
            let sinks = publish.names.iter().fold(Sinks::default(), with);
            Arc::new(PublishGrant { names: publish.names.clone(), sinks, told: Default::default() })
        });
        // Named one by one: a capability without a stand-in behind the gate would really do what it is asked.
        let grants = Grants { config, secrets, emit, state: keeps, publish, http };
        let Plugin { linked, manifest, version, described_name, routes, imports, on_events } = plugin;
        let Linked { engine, pre, identity, share, limits, weight, host_bytes, has_small_tables } = linked;
        let identity = Identity::new(identity.name.clone(), identity.digest.clone(), grants).reporting();
        let (engine, pre) = (engine.clone(), pre.clone());
        let plugin = Arc::new(Plugin {
            linked: Linked {
                engine,
                pre,
                identity: Arc::new(identity),
                share: share.clone(),
                limits: *limits,
                weight: *weight,
                host_bytes: *host_bytes,
                has_small_tables: *has_small_tables,
            },
            manifest: manifest.clone(),
            version: version.clone(),
            described_name: described_name.clone(),
            routes: routes.clone(),
            imports: imports.clone(),
            on_events: *on_events,
        });
        let listener = PluginListener::new(plugin.clone());
        Self { plugin, listener, description, stand_ins, gate, kept: tokio::sync::Mutex::default() }
    }

    /// The same component with other settings; `None` for those that it has. Whether it accepts them is not asked again.
    #[must_use]
    pub fn with_settings(&self, config: Option<BTreeMap<String, String>>, secrets: Option<BTreeMap<String, String>>) -> Self {
        let mut grants = self.plugin.linked.identity.grants.clone();
        grants.config = config.unwrap_or(grants.config);
        grants.secrets = secrets.map_or(grants.secrets, Secrets::from);
        Self::of(&self.plugin, grants, self.description.clone(), self.stand_ins.clone())
    }

    /// The same component with its settings, and granted nothing.
    #[must_use]
    pub fn without_grants(&self) -> Self {
        let Grants { config, secrets, .. } = self.plugin.linked.identity.grants.clone();
        let grants = Grants { config, secrets, ..Grants::default() };
        Self::of(&self.plugin, grants, self.description.clone(), self.stand_ins.clone())
    }

    /// The same component with its state elsewhere; without one where its manifest grants none.
    #[must_use]
    pub fn with_state(&self, state: Arc<dyn StateSource>) -> Self {
        let grants = self.plugin.linked.identity.grants.clone();
        Self::of(&self.plugin, grants, self.description.clone(), StandIns { state, ..self.stand_ins.clone() })
    }

    /// The same component with somebody who answers the HTTP requests that its manifest grants. Without one, every response is a
    /// 200 with an empty body.
    #[must_use]
    pub fn with_http(&self, http: Arc<dyn HttpStandIn>) -> Self {
        let grants = self.plugin.linked.identity.grants.clone();
        Self::of(&self.plugin, grants, self.description.clone(), StandIns { http, ..self.stand_ins.clone() })
    }

    /// The same component with sinks that take the messages which its manifest grants. One that is not among them confirms every
    /// message, and sends none.
    #[must_use]
    pub fn with_sinks(&self, sinks: Sinks) -> Self {
        let grants = self.plugin.linked.identity.grants.clone();
        Self::of(&self.plugin, grants, self.description.clone(), StandIns { sinks, ..self.stand_ins.clone() })
    }

    /// The text without the values of the plugin's secrets: for what a [`CallReport`] tells beside its lines, such as the
    /// address of a request.
    #[must_use]
    pub fn hide(&self, text: &str) -> String {
        self.plugin.linked.identity.grants.hide(text).into_owned()
    }

    /// The plugin's name: of its file, its manifest and its state.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.plugin.linked.identity.name
    }

    /// What the component says of itself and asks for, and what loading it cost.
    #[must_use]
    pub fn description(&self) -> &PluginReport {
        &self.description
    }

    /// The routes that it answers, sorted; at least one.
    #[must_use]
    pub fn routes(&self) -> &[Route] {
        &self.plugin.routes
    }

    /// What it is granted, and what one call may use.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.plugin.manifest
    }

    /// Calls `on-event` once. The event's route need not be one of the component's.
    ///
    /// When the future is dropped, the call is cut off, and a kept instance goes with it.
    pub async fn call(&self, call: impl Into<Call>) -> CallReport {
        let call = call.into();
        let mut kept = self.kept.lock().await;
        let started = Instant::now();
        let ends = started + self.plugin.manifest.limits.deadline;
        let instance = match call.instance {
            InstanceUse::Kept => kept.take(),
            InstanceUse::Fresh => None,
        };
        let _ = self.plugin.linked.identity.take_refused();
        self.gate.begin(call.disturbance);
        let mut tally = Tally { instance: instance.as_ref().map_or(InstanceUse::Fresh, |_| InstanceUse::Kept), init_fuel: 0 };
        let mut instance = match self.instance(instance, &mut tally, ends).await {
            Ok(instance) => instance,
            Err(outcome) => return self.report(outcome, None, tally, started.elapsed()),
        };
        let visit = Visit {
            event: &call.event,
            worker: 0,
            batch: 0,
            deferrals: call.deferrals,
            max_attempts: call
                .max_attempts
                .or(self.plugin.manifest.retry.and_then(|retry| retry.max_attempts))
                .unwrap_or(MAX_ATTEMPTS),
            began: started,
        };
        let answer = tokio::select! {
            biased;
            answer = tokio::time::timeout_at(ends.into(), self.listener.enter(&mut instance, &visit, ends)) => {
                answer.unwrap_or_else(|_| Ok(Outcome::Failed(self.listener.late())))
            }
            () = self.gate.hangs() => Ok(Outcome::Failed(Failure::broken(Cause::Deadline, "was cut off at a call to the outside"))),
        };
        let took = started.elapsed();
        let outcome = match answer {
            Ok(outcome) => outcome,
            Err(error) => self.listener.broken(&error, &mut instance.store),
        };
        let report = self.report(outcome, Some(&mut instance), tally, took);
        let clean = !matches!(&report.outcome, Outcome::Failed(failure) if failure.cause.is_breakage());
        if call.instance == InstanceUse::Kept
            && clean
            && !instance.store.data().limiter.was_refused()
            && instance.store.data_mut().may_wait()
        {
            *kept = Some(instance);
        }
        report
    }

    /// Drops the instance that is kept, if there is one.
    pub async fn forget(&self) {
        *self.kept.lock().await = None;
    }

    async fn instance(&self, kept: Option<Instance>, tally: &mut Tally, ends: Instant) -> Result<Instance, Outcome> {
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let linked = &self.plugin.linked;
        let made = tokio::time::timeout_at(ends.into(), linked.instantiate(linked.store(INIT_FUEL))).await;
        match made {
            Ok(Ok(instance)) => {
                tally.init_fuel = used(&instance.store).fuel;
                Ok(instance)
            }
            Ok(Err((error, mut store))) => Err(self.listener.broken(&error, &mut store)),
            Err(_) => Err(Outcome::Failed(self.listener.late())),
        }
    }

    fn report(&self, outcome: Outcome, instance: Option<&mut Instance>, tally: Tally, took: Duration) -> CallReport {
        let Tally { instance: instance_use, init_fuel } = tally;
        let mut report = CallReport {
            outcome,
            effects: Effects::default(),
            lines: Vec::new(),
            lines_dropped: 0,
            refused: self.plugin.linked.identity.take_refused(),
            outside: self.gate.take(),
            init_fuel,
            took,
            used: GuestCost { digest: self.plugin.linked.identity.short, ..GuestCost::default() },
            instance: instance_use,
        };
        let Some(instance) = instance else { return report };
        report.used = used(&instance.store);
        let state = instance.store.data_mut();
        state.end();
        (report.lines, report.lines_dropped) = state.take_lines();
        report.effects = state.take_effects(&report.outcome).map(|effects| *effects).unwrap_or_default();
        report
    }
}

/// What is known of a call before it begins.
struct Tally {
    instance: InstanceUse,
    init_fuel: u64,
}

/// The manifest beside a file; for one that is called otherwise than its plugin and has none, the one that the plugin has in the
/// directory.
fn manifest(name: &str, open_dir: &OpenDir, file: &Path, dir: &Path) -> Result<ManifestFile, LoadError> {
    let beside = directory::manifest_beside(open_dir, file)?;
    if beside.exists() || name == name_of(file) || !dir.is_dir() {
        return Ok(beside);
    }
    directory::manifest_beside(&OpenDir::open(dir, None)?, &dir.join(format!("{name}.wasm")))
}
