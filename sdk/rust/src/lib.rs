//! Write outbox listeners in Rust.
//!
//! A plugin is one function for each route, and [`listener!`] to list them:
//!
//! ```
//! use outbox_sdk::prelude::*;
//!
//! #[derive(Deserialize)]
//! struct OrderPlaced {
//!     order_id: u64,
//!     total: f64,
//! }
//!
//! listener! {
//!     "Order" / "OrderPlaced" => on_order_placed,
//!     "Order" / "OrderArchived" => on_order_archived,
//! }
//!
//! /// The payload is parsed before this is called.
//! fn on_order_placed(event: &Event, order: OrderPlaced) -> Answer {
//!     if order.total <= 0.0 {
//!         return Ok(dead("an order must cost something"));
//!     }
//!     info!(order_id = order.order_id, attempt = event.attempt; "placed: {:.2}", order.total);
//!     Ok(Done)
//! }
//!
//! /// A function of the event alone reads the bytes itself, or not at all.
//! fn on_order_archived(event: &Event) -> Answer {
//!     let number: u64 = event.text()?.parse()?; // any error becomes a retryable failure
//!     info!("archived: {number}");
//!     Ok(Done)
//! }
//!
//! // What `listener!` made can be asked in a plain `cargo test`, without a host.
//! let event = Event::for_test("Order", "OrderPlaced").with_text(r#"{ "order_id": 7, "total": 9.5 }"#);
//! assert_eq!(ThisPlugin::on_event(&event), Ok(Done));
//!
//! let event = Event::for_test("Order", "OrderPlaced").with_text("{}");
//! let failure = ThisPlugin::on_event(&event).expect_err("no order");
//! assert_eq!(failure.kind, FailureKind::Unrecoverable);
//! assert!(failure.message.contains("`order_id` is missing"), "{}", failure.message);
//! ```
//!
//! # The project around it
//!
//! ```toml
//! [lib]
//! crate-type = ["cdylib"]
//!
//! [dependencies]
//! outbox-sdk = { path = "…" }
//! serde = { version = "1", features = ["derive"] }
//! ```
//!
//! `cargo build --target wasm32-wasip2 --release` makes the component; the host loads it when it lies in its plugins directory.
//!
//! # What a listener may do beside
//!
//! | What | Where | Line in the plugin's manifest |
//! |---|---|---|
//! | read settings and secrets | [`config`] | `[config]`, `[secrets]` |
//! | write to the host's log | [`info!`] and its siblings, or the crate `log` (feature `log`) | |
//! | emit follow-up events, committed with the answer | [`NewEvent`] | `emit = true` |
//! | keep values, committed with the answer | [`state`] | `state = true` |
//! | publish to a broker | [`Message`] | `publish.sinks = ["NAME"]` |
//! | make HTTP requests | [`http`] | `http.allow = ["https://api.example.com"]` |
//!
//! In a native build, such as a unit test, a stand-in on the same thread takes the place of the host: [`testing`].
//!
//! # What a listener answers
//!
//! | Answer | What follows | Counted as a failed attempt |
//! |---|---|---|
//! | `Ok(Done)` | the event is finished | no |
//! | `Ok(retry_after(delay))` | delivered again after `delay` | no |
//! | `Ok(dead("why"))` | never delivered again | yes |
//! | `Err(Failure::retryable("why"))`, or `?` on any error | delivered again when the retry policy says | yes |
//! | `Err(Failure::retryable_after(delay, "why"))` | delivered again after `delay` | yes |
//! | `Err(Failure::unrecoverable("why"))` | never delivered again | yes |
//!
//! An event is delivered **at least** once: [`Event::id`] stays the same and is the key for deduplication. A panic is a retryable
//! failure, and its message goes to the host's log. A listener may find itself in a fresh instance or in one that served other
//! events before: keep nothing in statics that must survive, and rely on nothing to be gone.

mod answer;
mod batch;
#[doc(hidden)]
pub mod bindings; // public for the code that `listener!` writes; not for use by hand
pub mod call;
pub mod config;
mod content_type;
mod emit;
mod event;
mod handler;
pub mod http;
pub mod log;
#[cfg(feature = "log")]
mod log_bridge;
mod misfit;
mod or_fail;
mod payload;
mod plugin;
pub mod publish;
mod refusal;
pub mod state;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

pub use answer::{Answer, DispatchResult, Failure, FailureKind, dead, retry_after};
pub use batch::{BatchHandler, BatchPlugin, all_listed, answer_all};
pub use emit::NewEvent;
pub use event::{Event, Route};
pub use handler::Handler;
pub use or_fail::OrFail;
pub use payload::{Bytes, Payload, Text};
pub use plugin::{Description, Plugin, SettingsCheck, begin_call, routes, unknown_route};
pub use publish::Message;
pub use refusal::{Refusal, RefusalKind};

/// Everything that a listener needs, to be imported at once.
///
/// `Deserialize` comes along; its derive needs `serde` among the plugin's own dependencies.
pub mod prelude {
    pub use std::time::Duration;

    pub use serde::Deserialize;

    pub use crate::DispatchResult::Done;
    pub use crate::{
        Answer, BatchPlugin, Bytes, DispatchResult, Event, Failure, FailureKind, Message, NewEvent, OrFail, Plugin, Refusal,
        RefusalKind, SettingsCheck, Text, call, config, dead, debug, error, http, info, listener, publish, retry_after, state,
        trace, warn,
    };
}
