//! The checks that a plugin passes before it serves: the rules that every listener keeps, and the cases of its author.
//!
//! A rule asks for what a host needs of any honest listener, whatever it does: that it answers every event that can come, the
//! same event in the same way, with room to its limits. It never judges which answer is right: a failure is an answer, and so is
//! "dead". What is right for one plugin is in its author's [`Case`]s. A plugin has no effects beside its answers: a case replies to
//! its requests and messages, and for the rules all of them succeed. The types are declared in the package `outbox-wasm`.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use outbox::conformance::{self, Case};
//! use outbox::wasm::{Manifest, PluginHost};
//!
//! # let component = std::fs::read(support::sample_plugins().join("order-mailer.wasm"))?;
//! let host = PluginHost::from_bytes("order-mailer", component, Manifest::default()).await?;
//! let cases = Case::from_toml(r#"
//!     [[case]]
//!     name = "an order below zero is given up"
//!     event = { aggregate_type = "Order", event_type = "OrderPlaced", payload = { order_id = 42, total = -1 } }
//!     expect = { answer = "dead", text = "less than nothing" }
//! "#)?;
//!
//! let report = conformance::check(&host, &cases).await;
//!
//! assert!(report.passed(), "{report}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

#[doc(inline)]
pub use outbox_wasm::conformance::{Case, CaseError, CaseReport, Finding, Report, RuleReport, Verdict, check, read_cases};
