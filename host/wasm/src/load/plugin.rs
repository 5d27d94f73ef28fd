//! One loaded component: compiled, linked, described, and ready to answer.

use std::sync::Arc;

use outbox_event::{GuestCost, PluginCapability, Route};
use wasmtime::component::ComponentExportIndex;
use wasmtime::{CallHook, Store, StoreContextMut, UpdateDeadline};

use crate::bindings::{Listener as Guest, ListenerPre};
use crate::capability::{HostState, Identity};
use crate::engine::Engine;
use crate::error::LoadError;
use crate::explain::{CallError, explain};
use crate::limits::{Exceeded, HOSTCALL_BYTES, MAX_HANDLES};
use crate::load::{grants, on_events};
use crate::manifest::{Isolation, Limits, Manifest};
use crate::private::cache::copied;
use crate::shares::PluginShare;
use crate::turns;

/// A store with one instance in it. Dropped after anything but a clean end: an instance that was cut off cannot be entered
/// again.
pub(crate) struct Instance {
    pub(crate) store: Store<HostState>,
    pub(crate) guest: Guest,
}

/// A component that can be instantiated: what a plugin is before and after it has described itself.
pub(crate) struct Linked {
    pub(crate) engine: Arc<Engine>,
    pub(crate) pre: ListenerPre<HostState>,
    pub(crate) identity: Arc<Identity>,
    /// What the plugin has of what all plugins share.
    pub(crate) share: Arc<PluginShare>,
    pub(crate) limits: Limits,
    /// What an instance counts for while it is kept.
    pub(crate) weight: usize,
    /// The most bytes that an instance takes of the host's heap, beside its memories and tables.
    pub(crate) host_bytes: usize,
    /// Whether no table in it can grow beyond a small one.
    pub(crate) has_small_tables: bool,
}

impl Linked {
    /// An empty store with all limits set.
    pub(crate) fn store(&self, fuel: u64) -> Store<HostState> {
        let mut state = HostState::new(&self.share, &self.identity, &self.limits);
        state.limiter.count_host_bytes(self.host_bytes);
        let mut store = Store::new(&self.engine.wasm, state);
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(HOSTCALL_BYTES);
        store.set_max_component_handles(MAX_HANDLES);
        store.call_hook(after_host_call);
        store.epoch_deadline_callback(tick);
        store.set_epoch_deadline(1);
        refuel(&mut store, fuel).expect("the engine counts fuel");
        store
    }

    /// Instantiates the component in a store of its own. The error comes with the store, which knows why.
    pub(crate) async fn instantiate(
        &self,
        mut store: Store<HostState>,
    ) -> Result<Instance, (wasmtime::Error, Store<HostState>)> {
        match self.pre.instantiate_async(&mut store).await {
            Ok(guest) => Ok(Instance { store, guest }),
            Err(error) => Err((error, store)),
        }
    }
}

/// The engine in which a plugin of this isolation and these tables runs.
pub(crate) fn engine_for(engine: &Arc<Engine>, isolation: Isolation, has_small_tables: bool) -> Result<Arc<Engine>, LoadError> {
    match isolation {
        Isolation::Strict => engine.strict(),
        Isolation::Event | Isolation::Batch | Isolation::Worker { .. } if has_small_tables => Ok(engine.for_small_tables()),
        Isolation::Event | Isolation::Batch | Isolation::Worker { .. } => Ok(engine.clone()),
    }
}

/// Gives a guest so much fuel, whatever it had.
pub(crate) fn refuel(store: &mut Store<HostState>, fuel: u64) -> wasmtime::Result<()> {
    store.data_mut().fuel = fuel;
    store.set_fuel(fuel)
}

/// What a guest has used since it was last given fuel.
pub(crate) fn used(store: &Store<HostState>) -> GuestCost {
    let state = store.data();
    let (host_calls, host_bytes) = state.meter.used();
    GuestCost {
        digest: state.identity.short,
        fuel: state.fuel.saturating_sub(store.get_fuel().unwrap_or(0)),
        memory_bytes: state.limiter.used() as u64,
        host_calls,
        host_bytes,
    }
}

/// Comes by after each call of the host, WASI's too, and takes the fuel that it cost. A limit that the call exceeded ends the
/// guest at once: between two calls there may be neither a loop nor a function where a tick would find it.
fn after_host_call(mut store: StoreContextMut<'_, HostState>, hook: CallHook) -> wasmtime::Result<()> {
    if !matches!(hook, CallHook::ReturningFromHost) {
        return Ok(());
    }
    store.data_mut().count_written();
    let meter = &mut store.data_mut().meter;
    meter.check().map_err(|exceeded: Exceeded| wasmtime::Error::from(exceeded))?;
    let due = meter.fuel_due();
    if due > 0 {
        let left = store.get_fuel()?.saturating_sub(due);
        store.set_fuel(left)?;
    }
    Ok(())
}

/// Comes by at every tick while the guest computes: ends it when its time is over, and lets others run.
fn tick(store: StoreContextMut<'_, HostState>) -> wasmtime::Result<UpdateDeadline> {
    store.data().meter.check().map_err(|exceeded: Exceeded| wasmtime::Error::from(exceeded))?;
    turns::give_way();
    Ok(UpdateDeadline::Yield(1))
}

/// A loaded plugin.
pub(crate) struct Plugin {
    pub(crate) linked: Linked,
    pub(crate) manifest: Manifest,
    /// What the component says of itself.
    pub(crate) version: String,
    pub(crate) described_name: String,
    pub(crate) routes: Vec<Route>,
    /// The interfaces that the component asks for, sorted.
    pub(crate) imports: Vec<String>,
    /// Where the component takes events many at a time; `None` when it does not.
    pub(crate) on_events: Option<ComponentExportIndex>,
}

impl Plugin {
    pub(crate) fn isolation(&self) -> Isolation {
        self.manifest.isolation
    }

    /// What it asks for, and what it is granted.
    pub(crate) fn capabilities(&self) -> Vec<PluginCapability> {
        grants::capabilities(&self.linked.identity.name, &self.imports, &self.manifest)
    }

    /// Why a call broke off.
    pub(crate) fn why(&self, error: &wasmtime::Error, store: &mut Store<HostState>) -> CallError {
        explain(error, store, &self.linked.limits, &self.linked.identity.name)
    }

    /// The same plugin in another sandbox; instances that this one keeps stay behind.
    pub(crate) fn moved_to(&self, engine: &Arc<Engine>) -> wasmtime::Result<Arc<Self>> {
        let Linked { identity, share, limits, weight, host_bytes, has_small_tables, .. } = &self.linked;
        let (limits, weight, host_bytes, has_small_tables) = (*limits, *weight, *host_bytes, *has_small_tables);
        let engine = engine_for(engine, self.isolation(), has_small_tables);
        let engine = engine.map_err(|error| wasmtime::format_err!("{error}"))?;
        let component = copied(self.linked.pre.instance_pre().component(), &engine.wasm)?;
        let pre = engine.linker.instantiate_pre(&component).and_then(ListenerPre::new)?;
        let (identity, share) = (identity.clone(), share.clone());
        let linked = Linked { engine, pre, identity, share, limits, weight, host_bytes, has_small_tables };
        let Self { manifest, version, described_name, routes, imports, .. } = self;
        let on_events = on_events::export(&component);
        Ok(Arc::new(Self {
            linked,
            manifest: manifest.clone(),
            version: version.clone(),
            described_name: described_name.clone(),
            routes: routes.clone(),
            imports: imports.clone(),
            on_events,
        }))
    }
}
