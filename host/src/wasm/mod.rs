//! Plugins: WebAssembly components that answer routes, sandboxed, loaded from a directory and replaced while events flow.
//!
//! A component file becomes a `Plugin` once ([`load_listener`], [`Plugins`]); each event then gets an instance, by default a
//! fresh one. This room knows nothing of stores, queues and workers: it hands [`Registration`](crate::listener::Registration)s
//! to the registry and answers visits.
//!
//! Three lifetimes: `engine` once per process, `load` once per component, `call` once per event. `reload` loads what is new in the
//! plugins' `directory` and swaps it in; `single` is one component without a directory around it; `private` is what the host notes
//! for its next start. `manifest` is what the operator grants, `capability` what a guest does with it.

mod bindings;
mod call;
mod capability;
mod directory;
mod engine;
mod error;
mod explain;
mod limits;
mod load;
mod manifest;
mod private;
mod reload;
mod shares;
mod single;
#[cfg(test)]
mod tests;
mod turns;

pub use self::capability::Refused;
pub use self::capability::http::HttpStandIn;
pub(crate) use self::capability::http::canonical_url;
pub use self::capability::log::{LogLevel, LogLine};
pub use self::capability::state::StateSource;
pub use self::engine::{Engine, PagemapScan};
pub use self::error::LoadError;
pub use self::load::{Anatomy, ChildCompiler, Compile, CompileLimits, CoreModule, anatomy, run_compiler};
pub use self::manifest::{
    Emit, Http, Isolation, Limits, Manifest, Network, Origin, Publish, Resolve, Retry, RetryKind, Source, State,
};
pub(crate) use self::reload::RequiredPlugins;
pub use self::reload::{
    LockChange, Locked, PluginReport, Plugins, PluginsConfig, ReadyWhen, WherePinned, check_manifests, inspect, lock,
    manifest_of, retry, rollback, strays,
};
pub use self::single::{
    Call, CallReport, Disturbance, InstanceUse, MemoryState, Outside, PluginHost, Trouble, check, check_at, load_listener,
};
#[doc(no_inline)]
pub use crate::node::{PluginCapability, PluginDetails, PluginLimits, PluginState, PluginStatus, PluginSwap};
use crate::text;
