//! Plugins: WebAssembly components that answer routes, sandboxed, loaded from a directory and replaced while events flow.
//!
//! A component file becomes a `Plugin` once ([`load_listener`], [`Plugins`]); each event then gets an instance, by default a
//! fresh one. This room knows nothing of stores, queues and workers: it hands [`Registration`](crate::listener::Registration)s
//! to the registry and answers visits.

mod bindings;
mod cache;
mod call;
mod capability;
mod contract;
mod directory;
mod ending;
mod engine;
mod error;
mod file;
mod limits;
mod load;
mod manifest;
mod plugin;
mod reload;
mod scan;
mod seats;
mod single;
mod status;
#[cfg(test)]
mod tests;
mod text;
mod watch;

pub use engine::{Engine, PagemapScan};
pub use error::LoadError;
pub use manifest::{Isolation, Limits, Manifest, Resolve, Retry, RetryKind, Source};
pub use reload::{Plugins, PluginsConfig, inspect};
pub use single::{check, load_listener};
pub use status::{PluginReport, PluginState, PluginStatus};
