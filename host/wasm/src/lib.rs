//! A part of [`outbox`](https://docs.rs/outbox): plugins, which are WebAssembly components that answer routes, sandboxed, loaded from a
//! directory and replaced while events flow. Use it through `outbox`; alone it promises nothing.
//!
//! A component file becomes a `Plugin` once ([`load_listener`], [`Plugins`]); each event then gets an instance, by default a
//! fresh one. This package knows nothing of stores, queues and workers: it hands [`Registration`](outbox_listener::Registration)s
//! to the registry and answers visits.
//!
//! Three lifetimes: `engine` once per host, `load` once per component, `call` once per event. `reload` loads what is new in the
//! plugins' `directory` and swaps it in; `single` is one component without a directory around it; `private` is what the host notes
//! for its next start. `manifest` is what the operator grants, `capability` what a guest does with it. `turns` limits how many guests
//! compute at once; [`conformance`] checks one plugin. Log lines have targets below `outbox::wasm`, the path that users of `outbox` know.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod bindings;
mod call;
mod capability;
mod config;
pub mod conformance;
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
pub use self::config::{PluginsConfig, ReadyWhen};
pub use self::engine::{Engine, PagemapScan};
pub use self::error::LoadError;
pub use self::load::{Anatomy, ChildCompiler, Compile, CompileLimits, CoreModule, anatomy, run_compiler};
pub use self::manifest::{
    Emit, Http, Isolation, Limits, Manifest, Network, Origin, Publish, Resolve, Retry, RetryKind, Source, State,
};
#[doc(hidden)] // for the host
pub use self::reload::RequiredPlugins;
pub use self::reload::{
    LockChange, Locked, PluginReport, Plugins, RolledBack, WherePinned, check_manifests, inspect, lock, manifest_of, retry,
    rollback, strays,
};
pub use self::single::{
    Call, CallReport, Disturbance, InstanceUse, MemoryState, Outside, PluginHost, Trouble, check, check_at, load_listener,
};
