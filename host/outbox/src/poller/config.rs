//! How the poller walks the table, as it is written in configuration files.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{duration, too_long};

/// How the poller walks the table.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PollerConfig {
    /// Longest rest between two polls. Default 5 s; above zero. It rests shorter when it knows of an event that is due sooner.
    #[serde(with = "duration")]
    pub interval: Duration,
    /// Most events taken by a poll after a rest. Default 50; at least 1.
    pub batch_size: u32,
    /// Most events taken by each further poll while they come back full. Default 500; at least 1.
    pub drain_batch_size: u32,
    /// Skip events inserted within this span. Default 0.
    #[serde(with = "duration")]
    pub skip_recent: Duration,
}

impl Default for PollerConfig {
    fn default() -> Self {
        Self { interval: Duration::from_secs(5), batch_size: 50, drain_batch_size: 500, skip_recent: Duration::ZERO }
    }
}

impl PollerConfig {
    /// Everything that is wrong with these values, one text each; names begin with `prefix`.
    #[must_use]
    pub fn faults(&self, prefix: &str) -> Vec<String> {
        let mut faults = Vec::new();
        if self.interval.is_zero() {
            faults.push(format!("{prefix}.interval is 0; it must be above zero"));
        }
        faults.extend(too_long(format_args!("{prefix}.interval"), self.interval));
        if self.batch_size == 0 {
            faults.push(format!("{prefix}.batch_size is 0; it must be at least 1"));
        }
        if self.drain_batch_size == 0 {
            faults.push(format!("{prefix}.drain_batch_size is 0; it must be at least 1"));
        }
        faults
    }
}
