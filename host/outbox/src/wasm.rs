//! Plugins: WebAssembly components that answer routes, sandboxed, loaded from a directory and replaced while events flow.
//!
//! A component file becomes a listener once ([`load_listener`], [`Plugins`]); each event then gets an instance, by default a fresh one.
//! A [`PluginHost`] is one component without a directory and without an outbox. The types are declared in the package `outbox-wasm`.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use outbox::listener::Outcome;
//! use outbox::wasm::{Manifest, PluginHost};
//! use outbox::{Envelope, Event};
//!
//! # let component = std::fs::read(support::sample_plugins().join("order-mailer.wasm"))?;
//! let host = PluginHost::from_bytes("order-mailer", component, Manifest::default()).await?;
//! let order = Envelope::new("OrderPlaced").aggregate("Order", "42").json_text(r#"{"order_id": 42, "total": 99.5}"#)?;
//!
//! // A sequence, since emitting and keeping state need an event that is in a table.
//! let report = host.call(Event::of(order).sequence(1).build()).await;
//!
//! assert_eq!(report.outcome, Outcome::Done);
//! assert!(report.lines[0].message.contains("thank you for your order 42"));
//! assert!(report.used.fuel < host.manifest().limits.fuel / 100);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

#[doc(no_inline)]
pub use crate::node::{PluginCapability, PluginDetails, PluginLimits, PluginState, PluginStatus, PluginSwap};
pub(crate) use outbox_wasm::RequiredPlugins;
#[doc(inline)]
pub use outbox_wasm::{
    Anatomy, Call, CallReport, ChildCompiler, Compile, CompileLimits, CoreModule, Disturbance, Emit, Engine, Http, HttpStandIn,
    InstanceUse, Isolation, Limits, LoadError, LockChange, Locked, LogLevel, LogLine, Manifest, MemoryState, Network, Origin,
    Outside, PagemapScan, PluginHost, PluginReport, Plugins, PluginsConfig, Publish, ReadyWhen, Refused, Resolve, Retry,
    RetryKind, RolledBack, Source, State, StateSource, Trouble, WherePinned, anatomy, check, check_at, check_manifests,
    inspect, load_listener, lock, manifest_of, retry, rollback, run_compiler, strays,
};
