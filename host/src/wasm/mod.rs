//! Plugins: WebAssembly components that answer routes, sandboxed, loaded from a directory and replaced while events flow.
//!
//! A component file becomes a `Plugin` once ([`load_listener`], [`Plugins`]); each event then gets an instance, by default a
//! fresh one. This room knows nothing of stores, queues and workers: it hands [`Registration`](crate::listener::Registration)s
//! to the registry and answers visits.

mod anatomy;
mod batch_call;
mod bindings;
mod bucket;
mod by_hand;
mod cache;
mod call;
mod call_error;
mod call_report;
mod capability;
mod claims;
mod compile;
mod contract;
mod directory;
mod engine;
mod entry;
mod error;
mod file;
mod grants;
mod guest_event;
mod job;
mod last_good;
mod limits;
mod load;
mod machine;
mod manifest;
mod memory_state;
mod outside;
mod pins;
mod place;
mod plugin;
mod plugin_host;
mod private;
mod probe;
mod quarantine;
mod references;
mod refresh;
mod reload;
mod room;
mod scan;
mod single;
mod status;
mod swap;
#[cfg(test)]
mod tests;
mod text;
mod trust;
mod warm;
mod watch;

pub use anatomy::{Anatomy, CoreModule, anatomy};
pub use by_hand::{LockChange, Locked, RolledBack, lock, retry, rollback};
pub use call_report::{CallReport, InstanceUse, LogLevel, LogLine, Refused};
pub use capability::http::HttpStandIn;
pub(crate) use capability::http::canonical_url;
pub use capability::state::StateSource;
pub use compile::{ChildCompiler, Compile, CompileLimits, run_compiler};
pub use engine::{Engine, PagemapScan};
pub use error::LoadError;
pub use manifest::{Emit, Http, Isolation, Limits, Manifest, Network, Origin, Publish, Retry, RetryKind, State};
pub use memory_state::MemoryState;
pub use outside::{Disturbance, Outside, Trouble};
pub use plugin_host::{Call, PluginHost};
pub use references::{Resolve, Source};
pub use reload::{Plugins, PluginsConfig, ReadyWhen, check_manifests, inspect};
pub use single::{check, load_listener};
pub use status::{PluginReport, PluginState, PluginStatus};
