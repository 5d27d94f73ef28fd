//! How metrics are shown.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Routes;
use crate::units::{duration, too_long};

/// How metrics are shown to Prometheus.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// What the name of every metric begins with. Default `outbox`; 1 to 64 letters, digits and underscores, not a digit first.
    pub prefix: String,
    /// Rest between two looks at the table, for the metrics that cost a statement: `PREFIX_records` and
    /// `PREFIX_oldest_pending_seconds`. Default 15 s; at least 1 s, or 0 to leave these metrics out.
    #[serde(with = "duration")]
    pub interval: Duration,
    /// The most routes that have labels of their own; the events of all others are counted together, as `other`. A route has its
    /// labels from its registration on, and one that has events goes before one that has none. Each has 42 series. Default 100;
    /// at most 10,000.
    pub max_routes: usize,
}

/// The shortest rest between two looks at the table.
const SHORTEST: Duration = Duration::from_secs(1);
const MOST_ROUTES: usize = 10_000;
const LONGEST_PREFIX: usize = 64;

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { prefix: "outbox".to_owned(), interval: Duration::from_secs(15), max_routes: Routes::DEFAULT_MOST }
    }
}

impl MetricsConfig {
    /// Everything that is wrong with these values, one text each; names begin with `prefix`.
    #[must_use]
    pub fn faults(&self, prefix: &str) -> Vec<String> {
        let mut faults = Vec::new();
        if !is_prefix(&self.prefix) {
            faults.push(format!(
                "{prefix}.prefix is `{}`; it must be 1 to {LONGEST_PREFIX} letters, digits and underscores, not a digit first",
                self.prefix
            ));
        }
        if !self.interval.is_zero() && self.interval < SHORTEST {
            faults.push(format!(
                "{prefix}.interval is {:?}; it must be at least 1s, or 0s to leave out the metrics that ask the table",
                self.interval
            ));
        }
        faults.extend(too_long(format_args!("{prefix}.interval"), self.interval));
        if self.max_routes > MOST_ROUTES {
            faults.push(format!("{prefix}.max_routes is {}; it must be at most {MOST_ROUTES}", self.max_routes));
        }
        faults
    }
}

/// Colons are left to recording rules.
fn is_prefix(text: &str) -> bool {
    let first = text.chars().next();
    first.is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && text.len() <= LONGEST_PREFIX
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_that_would_spoil_every_name_is_refused() {
        for good in ["outbox", "_o2", "orders_outbox"] {
            let config = MetricsConfig { prefix: good.to_owned(), ..MetricsConfig::default() };
            assert!(config.faults("metrics").is_empty(), "{good}");
        }
        for bad in ["", "2x", "orders.outbox", "a:b", "a-b", "ä", &"x".repeat(65), "a\nb"] {
            let config = MetricsConfig { prefix: bad.to_owned(), ..MetricsConfig::default() };
            assert_eq!(config.faults("metrics").len(), 1, "{bad}");
        }
    }

    #[test]
    fn an_interval_is_a_second_at_least_or_none() {
        let faults = |millis| {
            let interval = Duration::from_millis(millis);
            MetricsConfig { interval, ..MetricsConfig::default() }.faults("metrics")
        };
        assert_eq!(faults(999).len(), 1);
        assert!(faults(999)[0].starts_with("metrics.interval is 999ms"));
        assert!(faults(0).is_empty() && faults(1_000).is_empty());
    }
}
