//! Components that mean harm: what each must come to, and that nobody else is hurt.
//!
//! `calls` do harm when they are called, `loads` already when they are loaded, `answers` by what they say, `hoards` by what they
//! leave with the host, `crowd` all at once beside a good plugin.

mod answers;
mod calls;
mod crowd;
mod fuzz;
mod hoards;
mod loads;

use outbox::listener::{Failure, Outcome};
use outbox::wasm::{CallReport, LoadError, Manifest, PluginHost};
use outbox::{Envelope, Event};
use support::Guest;

/// Limits that a test need not wait for: enough fuel for ten thousand calls of the host, and more time than it takes to burn.
pub(super) const LIMITS: &str = "emit = true\nstate = true\n[limits]\ndeadline = \"1s\"\nfuel = 20_000_000\nmemory = \"32MiB\"";

pub(super) async fn load(component: Vec<u8>, manifest: &str) -> Result<PluginHost, LoadError> {
    let manifest: Manifest = toml::from_str(manifest).expect("a valid manifest");
    PluginHost::from_bytes("guest", component, manifest).await
}

/// Calls a guest once with an ordinary event.
pub(super) async fn called(guest: &Guest, manifest: &str) -> CallReport {
    load(guest.build(), manifest).await.expect("it loads").call(event("Evil", "Deed")).await
}

pub(super) fn event(aggregate_type: &str, event_type: &str) -> Event {
    let envelope = Envelope::new(event_type).aggregate(aggregate_type, "7").json_text("{\"a\": 1}").expect("a good envelope");
    Event::of(envelope).sequence(1).build()
}

/// The failure in which a call ended.
pub(super) fn failure(report: &CallReport) -> &Failure {
    match &report.outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("expected a failure, got {other:?}"),
    }
}
