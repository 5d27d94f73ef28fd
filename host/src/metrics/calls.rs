//! What calls of listeners cost, one total for each owner of listeners: a plugin, a sink, the native code.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::Counter;
use crate::event::{Cost, nanos};

/// The totals of all owners. One that leaves and comes back goes on where it was, and so does a plugin that is replaced: a total
/// only grows.
#[derive(Debug, Default)]
pub struct Calls(Mutex<BTreeMap<String, Arc<CallTotals>>>);

/// What the calls of one owner's listeners cost since the host started.
#[derive(Debug, Default)]
pub struct CallTotals {
    calls: Counter,
    nanos: Counter,
    fuel: Counter,
    host_calls: Counter,
    host_bytes: Counter,
    memory_peak: AtomicU64,
}

/// The totals of one owner at one moment. A call for several events counts once for each of them, with its share of the cost; so
/// does one that broke off, beside the calls for each of its events alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CallCounts {
    /// Calls that ended, whatever they came to; those whose claim was lost on the way are left out.
    pub calls: u64,
    /// Time that they took on the wall, together.
    #[serde(rename = "call_seconds", serialize_with = "seconds")]
    pub took: Duration,
    /// Fuel that they used. 0 for native code and sinks, as is what follows.
    pub fuel_used: u64,
    /// Their calls of the host.
    pub host_calls: u64,
    /// Bytes that those carried, either way.
    pub host_bytes: u64,
    /// The most memory that one of them had, in bytes.
    pub memory_peak_bytes: u64,
}

impl Calls {
    /// The total of one owner, by the name under which it is shown.
    pub(crate) fn of(&self, owner: &impl fmt::Display) -> Arc<CallTotals> {
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        owners.entry(owner.to_string()).or_default().clone()
    }

    /// The totals by owner: the plugin's name, `the sink NAME`, or `native code`. Owners without a call are left out.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, CallCounts> {
        let owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = owners.iter().map(|(owner, totals)| (owner.clone(), totals.counts()));
        counted.filter(|(_, counts)| counts.calls > 0).collect()
    }
}

impl CallTotals {
    /// Adds one call.
    pub(crate) fn add(&self, cost: &Cost) {
        self.calls.increment();
        self.nanos.add(nanos(cost.took));
        if let Some(guest) = &cost.guest {
            self.fuel.add(guest.fuel);
            self.host_calls.add(guest.host_calls.into());
            self.host_bytes.add(guest.host_bytes);
            self.memory_peak.fetch_max(guest.memory_bytes, Ordering::Relaxed);
        }
    }

    /// The totals at this moment.
    #[must_use]
    pub fn counts(&self) -> CallCounts {
        CallCounts {
            calls: self.calls.get(),
            took: Duration::from_nanos(self.nanos.get()),
            fuel_used: self.fuel.get(),
            host_calls: self.host_calls.get(),
            host_bytes: self.host_bytes.get(),
            memory_peak_bytes: self.memory_peak.load(Ordering::Relaxed),
        }
    }
}

fn seconds<S: serde::Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::GuestCost;

    #[test]
    fn totals_add_up_by_owner_and_memory_is_the_most_of_one_call() {
        let calls = Calls::default();
        let call = |fuel, memory_bytes| Cost {
            guest: Some(GuestCost { fuel, memory_bytes, host_calls: 2, host_bytes: 3, ..GuestCost::default() }),
            ..Cost::of_time(Duration::from_millis(250))
        };
        let mailer = calls.of(&"mailer");
        calls.of(&"idle");
        calls.of(&"native code").add(&Cost::of_time(Duration::from_secs(1)));

        mailer.add(&call(10, 100));
        mailer.add(&call(30, 50));
        calls.of(&"mailer").add(&call(5, 70));

        let counts = calls.counts();
        assert_eq!(counts.keys().collect::<Vec<_>>(), ["mailer", "native code"]);
        let expected = CallCounts {
            calls: 3,
            took: Duration::from_millis(750),
            fuel_used: 45,
            host_calls: 6,
            host_bytes: 9,
            memory_peak_bytes: 100,
        };
        assert_eq!(counts["mailer"], expected);
        let native = CallCounts { calls: 1, took: Duration::from_secs(1), ..CallCounts::default() };
        assert_eq!(counts["native code"], native);
    }
}
