//! The state of the table and of the hosts as the pages show it, and what is wrong. `snapshot` reads from the database, `snapshots`
//! decides when; all else is pure.

pub(super) mod findings;
pub(super) mod groups;
pub(super) mod listeners;
pub(super) mod plugins;
pub(super) mod sinks;
pub(super) mod snapshot;
pub(super) mod snapshots;
