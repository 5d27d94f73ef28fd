//! Which dead events are meant, how far and how fast they go.

use std::time::Duration;

use clap::Args;
use outbox::dead::ReplayLimits;
use outbox::store::{DeadFilter, Filter};
use outbox::time::Timestamp;
use outbox::units::{When, duration};

use crate::flags::at_least_one;
use crate::names::Names;

/// Which dead events, their names aside: an argument that came in with another struct would be in no group.
#[derive(Args, Clone, Debug)]
#[group(id = "filter", multiple = true)]
pub(crate) struct DeadArgs {
    /// Only events of this aggregate
    #[arg(long, value_name = "ID")]
    aggregate_id: Option<String>,
    /// Only events of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only events whose last error contains this text
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
}

/// When they died and how often they failed. Apart from [`DeadArgs`], because a list has fields of its own.
#[derive(Args, Clone, Copy, Debug)]
#[group(id = "death", multiple = true)]
pub(crate) struct Death {
    /// Only events with at most this many failures, not counting the one at which a listener gave an event up
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// Only events that died after this: a span like 2h (two hours ago), or a time like 2026-11-21T08:30:00Z
    #[arg(long, value_name = "WHEN")]
    since: Option<When>,
    /// Only events that died before this
    #[arg(long, value_name = "WHEN")]
    until: Option<When>,
}

impl Death {
    /// What a list shows, and of that only these; spans count back from `now`, the time of the database.
    pub(crate) fn narrow(self, filter: Filter, now: Timestamp) -> Filter {
        Filter {
            max_attempts: self.max_attempts,
            finished_after: self.since.map(|since| since.from(now)),
            finished_before: self.until.map(|until| until.from(now)),
            ..filter
        }
    }
}

impl DeadArgs {
    /// As the store wants it; spans count back from `now`, the time of the database.
    pub(crate) fn filter(&self, names: &Names, death: Death, now: Timestamp) -> DeadFilter {
        DeadFilter {
            event_type: names.event_type(),
            aggregate_type: names.aggregate_type(),
            aggregate_id: self.aggregate_id.clone(),
            tenant_id: self.tenant.clone(),
            error: self.error.clone(),
            max_attempts: death.max_attempts,
            dead_after: death.since.map(|since| since.from(now)),
            dead_before: death.until.map(|until| until.from(now)),
        }
    }

    /// As [`filter`](Self::filter), and only events that are dead by now: what dies later was not counted.
    pub(crate) fn up_to(&self, names: &Names, death: Death, now: Timestamp) -> DeadFilter {
        let filter = self.filter(names, death, now);
        DeadFilter { dead_before: Some(filter.dead_before.map_or(now, |before| before.min(now))), ..filter }
    }
}

/// How far and how fast.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Stop after this many events
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Stop after this long; events not reached by then stay dead
    #[arg(long, value_name = "SPAN", value_parser = duration::parse)]
    time_limit: Option<Duration>,
    /// Replay at most this many events per second, like 50/s, to spare a receiver that has just recovered
    #[arg(long, value_name = "RATE", value_parser = per_second)]
    rate: Option<u32>,
    /// Replay this many events with each SQL statement
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = at_least_one::<u32>)]
    batch_size: u32,
}

impl Limits {
    /// As the library wants it.
    pub(crate) fn replay(self) -> ReplayLimits {
        ReplayLimits { batch_size: self.batch_size, per_second: self.rate, time: self.time_limit, events: self.limit }
    }

    /// How many of those that match would go if time were no matter.
    pub(crate) fn of(self, matching: u64) -> u64 {
        matching.min(self.limit.unwrap_or(u64::MAX))
    }
}

/// `50/s`, or `50`.
fn per_second(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).trim();
    match number.parse() {
        Ok(0) | Err(_) => Err("write it like 50/s; at least 1/s".to_owned()),
        Ok(rate) => Ok(rate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_events_a_second() {
        assert_eq!((per_second("50/s"), per_second("7")), (Ok(50), Ok(7)));
        assert!(per_second("0/s").is_err() && per_second("fast").is_err());
    }
}
