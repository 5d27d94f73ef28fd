//! What the pages know of the table and of the hosts, and what is wrong. `snapshot` asks the database; all else is pure.

pub(super) mod findings;
pub(super) mod groups;
pub(super) mod listeners;
pub(super) mod plugins;
pub(super) mod sinks;
pub(super) mod snapshot;
