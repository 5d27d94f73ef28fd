//! What only the program looks at: settings, plugins, other hosts, routes, events. Pure, but for the plugins.

mod breakers;
mod events;
mod hosts;
mod plugins;
mod routes;
mod served;
mod sinks;
mod stuck;

use std::path::Path;

use outbox::store::Finding;
use outbox::time::Timestamp;
use outbox::why::{Change, Scope, preceding_change};

use crate::config::Settings;
pub(super) use breakers::breakers;
pub(super) use events::{dead, events, overdue, retries, waits};
pub(super) use hosts::{aside, clocks, nodes, vanished, without_lease};
pub(super) use plugins::{plugins, served_elsewhere};
pub(super) use routes::{Here, routes};
pub(super) use served::{lower_plugin_severities, served_by_hosts};
pub(super) use sinks::sinks;
pub(super) use stuck::{locked, refused, slow, unclaimed};

/// The most entries that a finding names one by one.
const LISTED: usize = 3;

/// A finding, with the change that preceded its beginning on a line of its own.
fn after_change(what: String, changes: &[Change], began: Timestamp, scope: &Scope) -> String {
    match preceding_change(changes, began, scope) {
        Some(change) => format!("{what}\n{change}"),
        None => what,
    }
}

/// Whoever gets here has a valid configuration.
pub(super) fn settings(settings: &Settings) -> Vec<Finding> {
    let from = settings.file.as_ref().map_or_else(
        || "defaults, environment and flags are valid; no outbox.toml here".to_owned(),
        |file| format!("{}, environment and flags are valid", file.display()),
    );
    let ignored = settings.layers.warnings().map(|ignored| Finding::warning("configuration", &ignored.what, &ignored.fix));
    std::iter::once(Finding::good("configuration", from)).chain(ignored).collect()
}

/// The file of the database, which is made by hand, so that a misspelt name is no new outbox.
pub(super) fn missing_file(file: &Path, settings: &Settings) -> Finding {
    let what = format!("the SQLite file {} does not exist", file.display());
    let fix = format!(
        "outbox migrate up{}\nor correct database.url; the other checks need the file",
        settings.flags(&["database.url"])
    );
    Finding::fault("connection", what, fix)
}

#[cfg(test)]
mod tests;
