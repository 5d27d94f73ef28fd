//! How events are dispatched.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::queue::{KeyQueueLimits, QueueLimits};
use crate::units::{ByteSize, duration, too_long};

/// Each worker is a task with its stack of futures; more of them than this is a slip of the finger.
const MOST_WORKERS: usize = 65_536;

/// How events are dispatched.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct DispatcherConfig {
    /// How many attempts run at once. Default 256, since most of them wait for something outside, such as a response; 1 to 65,536. Of one
    /// listener with a limit, at most as many calls compute at once as there are threads. From four workers on, an eighth of them stays
    /// free for listeners with a limit that have no call running.
    pub workers: usize,
    /// Most events queued straight after their commit; each listener without a free call slot may queue as many again. Default
    /// 1,000; at least 1.
    pub hot_queue: usize,
    /// Most events queued after a poll; each listener without a free call slot may queue as many again. Default 1,000; at least 1.
    pub cold_queue: usize,
    /// Most bytes in each of the two queues; each listener without a free call slot may queue as many again. Of events that were
    /// found by a poll, those that are with their listeners count for their first second or two, too. Default 32 MiB.
    pub queue_bytes: ByteSize,
    /// Counted failures after which an event is dead. Default 10; at least 1.
    pub max_attempts: u32,
    /// How often a listener may defer an event before it is dead. Default 1,000.
    pub max_deferrals: u32,
    /// How often an event may stop its host before it is dead. Default 5; at least 1. An event that two hosts had claimed when
    /// they died is delivered alone from then on; only those starts are counted.
    pub max_starts: u32,
    /// The longest call of a listener without a deadline of its own. All interceptors together have the same time before the
    /// call, and again after it. Default 20 s; below the lease.
    #[serde(with = "duration")]
    pub deadline: Duration,
    /// How long a claim lasts, renewed at each third of it, and how long this host keeps its partitions without a heartbeat, sent at each
    /// tenth of it. Default 30 s; at least 1 s.
    #[serde(with = "duration")]
    pub lease: Duration,
    /// How long a stop handles queued events. Default 5 s. Writing the last outcomes may take 5 s more, and statements still
    /// running then 4 s more. Events that the database has not settled by then are delivered again after their leases.
    #[serde(with = "duration")]
    pub drain_timeout: Duration,
    /// What happens to an event whose route never had a listener. Default dead.
    pub unroutable: Unroutable,
    /// How long such an event waits for a listener before it is dead, counted from its time or from the last change of this host's
    /// listeners, whichever is later: a plugin or a host that answers it may be on its way. Default 1 minute; 0 for not at all, as in
    /// the mode `ordered`, where all other events would wait too.
    #[serde(with = "duration")]
    pub unroutable_grace: Duration,
    /// For which attempts the cost is stored with the event. Default failures.
    pub record: RecordedCosts,
    /// Most outcomes written by one statement. Default 500; at least 1.
    pub settle_batch: usize,
    /// How long an outcome waits at most to be written together with others. Default 2 ms.
    #[serde(with = "duration")]
    pub settle_delay: Duration,
}

/// What happens to an event whose route never had a listener. An event whose route had one before is always parked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unroutable {
    /// Dead after the grace; the error suggests routes with similar names.
    #[default]
    Dead,
    /// Set aside until a listener is there.
    Park,
}

/// For which attempts the cost is stored with the event: time, and what a plugin used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedCosts {
    /// Failed attempts.
    #[default]
    Failures,
    /// Successful attempts, too: every outcome then writes about 150 bytes more.
    All,
}

impl Default for DispatcherConfig {
    fn default() -> Self {
        Self {
            workers: 256,
            hot_queue: 1_000,
            cold_queue: 1_000,
            queue_bytes: ByteSize::mib(32),
            max_attempts: 10,
            max_deferrals: 1_000,
            max_starts: 5,
            deadline: Duration::from_secs(20),
            lease: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(5),
            unroutable: Unroutable::Dead,
            unroutable_grace: Duration::from_secs(60),
            record: RecordedCosts::Failures,
            settle_batch: 500,
            settle_delay: Duration::from_millis(2),
        }
    }
}

impl DispatcherConfig {
    /// The limits of the queue.
    #[must_use]
    pub(crate) fn queue_limits(&self) -> QueueLimits {
        QueueLimits { hot: self.hot_queue, cold: self.cold_queue, bytes: self.queue_bytes }
    }

    /// How much may wait in the queues of aggregates.
    pub(crate) fn key_queue_limits(&self) -> KeyQueueLimits {
        KeyQueueLimits { events: self.cold_queue, bytes: self.queue_bytes.as_usize(), workers: self.workers }
    }

    /// The `room` that this host reports: twice the cold events that it has in flight if no listener is slow. The factor allows for a host
    /// with a larger configuration. Events that wait for the call slots of slow listeners are not counted: there may be any number of them.
    /// A host that takes over the partitions of another one does not count them either.
    pub(crate) fn reported_room(&self) -> usize {
        self.cold_queue.saturating_add(self.workers).saturating_mul(2)
    }

    /// Everything that is wrong with these values, one text each; names begin with `prefix`.
    #[must_use]
    pub fn faults(&self, prefix: &str) -> Vec<String> {
        let mut faults = Vec::new();
        let mut at_least_one = |name: &str, zero: bool| {
            if zero {
                faults.push(format!("{prefix}.{name} is 0; it must be at least 1"));
            }
        };
        at_least_one("workers", self.workers == 0);
        at_least_one("hot_queue", self.hot_queue == 0);
        at_least_one("cold_queue", self.cold_queue == 0);
        at_least_one("queue_bytes", self.queue_bytes.0 == 0);
        at_least_one("max_attempts", self.max_attempts == 0);
        at_least_one("max_starts", self.max_starts == 0);
        at_least_one("settle_batch", self.settle_batch == 0);
        if self.workers > MOST_WORKERS {
            faults.push(format!("{prefix}.workers is {}; it must be at most {MOST_WORKERS}", self.workers));
        }
        if self.lease < Duration::from_secs(1) {
            faults.push(format!(
                "{prefix}.lease is {:?}; it must be at least 1s, or claims end before they are renewed",
                self.lease
            ));
        }
        if self.deadline.is_zero() {
            faults.push(format!("{prefix}.deadline is 0; it must be above zero"));
        }
        faults.extend(too_long(format_args!("{prefix}.lease"), self.lease));
        faults.extend(too_long(format_args!("{prefix}.unroutable_grace"), self.unroutable_grace));
        if self.deadline >= self.lease {
            faults.push(format!(
                "{prefix}.deadline ({:?}) is not below {prefix}.lease ({:?}); a call could outlive its claim",
                self.deadline, self.lease
            ));
        }
        faults
    }
}
