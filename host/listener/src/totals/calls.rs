//! The cost of the calls of listeners, with one total for each owner: a plugin, a sink, the native code.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outbox_event::{Cause, Cost, Owner, nanos};
use serde::Serialize;

use super::Counter;

/// The totals of all owners. A total only grows: it continues when its owner is removed and added again, and when a plugin is replaced.
#[derive(Debug, Default)]
pub struct Calls(Mutex<BTreeMap<Owner, Arc<CallTotals>>>);

/// The cost of the calls of one owner's listeners since the host started.
#[derive(Debug, Default)]
pub struct CallTotals {
    calls: Counter,
    nanos: Counter,
    fuel: Counter,
    host_calls: Counter,
    host_bytes: Counter,
    memory_peak: AtomicU64,
    longest_nanos: AtomicU64,
    fuel_peak: AtomicU64,
    host_calls_peak: AtomicU64,
    traps: [Counter; TRAPS.len()],
    swaps: [Counter; SWAPS.len()],
}

/// The causes by which a listener breaks.
const TRAPS: [Cause; 8] =
    [Cause::Panic, Cause::Fuel, Cause::Deadline, Cause::Memory, Cause::Stack, Cause::Trap, Cause::Output, Cause::HostCalls];

/// A change of the active version of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // for the host
pub enum Swap {
    /// It is active, and no version of it was before.
    Loaded,
    /// It is active in place of another version, or with another manifest.
    Swapped,
    /// It did not load, for a new reason.
    Failed,
    /// The last version that worked is active again, because the file does not load.
    LastGood,
    /// Its file was removed.
    Unloaded,
}

const SWAPS: [Swap; 5] = [Swap::Loaded, Swap::Swapped, Swap::Failed, Swap::LastGood, Swap::Unloaded];

impl Swap {
    /// Its name in the metrics.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Swapped => "swapped",
            Self::Failed => "failed",
            Self::LastGood => "last_good",
            Self::Unloaded => "unloaded",
        }
    }
}

/// The totals of one owner at one moment. A call for several events counts once for each of them, with its share of the cost. So does one
/// that broke off, in addition to the calls for each of its events alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CallCounts {
    /// Calls that ended, with any outcome. Calls whose claim was lost before that are left out.
    pub calls: u64,
    /// Their wall-clock time, together.
    #[serde(rename = "call_seconds", serialize_with = "seconds")]
    pub took: Duration,
    /// Fuel that they used. 0 for native code and sinks.
    pub fuel_used: u64,
    /// Their calls of host functions. 0 for native code and sinks.
    pub host_calls: u64,
    /// Bytes that the calls of host functions carried, in both directions. 0 for native code and sinks.
    pub host_bytes: u64,
    /// The most memory that one call had, in bytes. 0 for native code and sinks.
    pub memory_peak_bytes: u64,
    /// The duration of the longest call. A call for several events counts as a whole, as in the fields below.
    #[serde(rename = "longest_call_seconds", serialize_with = "seconds")]
    pub longest: Duration,
    /// The most fuel that one call used.
    pub fuel_peak: u64,
    /// The most calls of host functions in one call.
    pub host_calls_peak: u64,
}

impl Calls {
    /// The total of one owner.
    #[doc(hidden)] // for the host
    pub fn of(&self, owner: &Owner) -> Arc<CallTotals> {
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        owners.entry(owner.clone()).or_default().clone()
    }

    /// The totals of the plugins by name, those without a call included.
    #[doc(hidden)] // for the host
    pub fn of_plugins(&self) -> Vec<(Arc<str>, Arc<CallTotals>)> {
        let owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let plugin = |(owner, totals): (&Owner, &Arc<CallTotals>)| match owner {
            Owner::Plugin(name) => Some((name.clone(), totals.clone())),
            Owner::Native | Owner::Sink(_) => None,
        };
        owners.iter().filter_map(plugin).collect()
    }

    /// The totals by owner: the plugin's name, `the sink NAME`, or `native code`. Owners without a call are left out.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, CallCounts> {
        let owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = owners.iter().map(|(owner, totals)| (owner.to_string(), totals.counts()));
        counted.filter(|(_, counts)| counts.calls > 0).collect()
    }
}

impl CallTotals {
    /// Adds one call.
    #[doc(hidden)] // for the host
    pub fn add(&self, cost: &Cost) {
        self.calls.increment();
        self.nanos.add(nanos(cost.took));
        // Limits apply to a whole call, and a cost is one event's share of it.
        let whole = |share: u64| share.saturating_mul(cost.events.into());
        self.longest_nanos.fetch_max(whole(nanos(cost.took)), Ordering::Relaxed);
        if let Some(guest) = &cost.guest {
            self.fuel.add(guest.fuel);
            self.host_calls.add(guest.host_calls.into());
            self.host_bytes.add(guest.host_bytes);
            self.memory_peak.fetch_max(guest.memory_bytes, Ordering::Relaxed);
            self.fuel_peak.fetch_max(whole(guest.fuel), Ordering::Relaxed);
            self.host_calls_peak.fetch_max(whole(guest.host_calls.into()), Ordering::Relaxed);
        }
    }

    /// Counts a listener that broke. Ignores a cause that is not a breakage.
    #[doc(hidden)] // for the host
    pub fn trapped(&self, cause: Cause) {
        if let Some(trap) = TRAPS.iter().position(|trap| *trap == cause) {
            self.traps[trap].increment();
        }
    }

    /// How often listeners broke, by the code of the cause.
    pub fn traps(&self) -> impl Iterator<Item = (&'static str, u64)> {
        TRAPS.iter().map(|trap| trap.code()).zip(self.traps.iter().map(Counter::get))
    }

    /// Counts a change of the active version.
    #[doc(hidden)] // for the host
    pub fn swapped(&self, swap: Swap) {
        if let Some(swap) = SWAPS.iter().position(|known| *known == swap) {
            self.swaps[swap].increment();
        }
    }

    /// How often the active version was changed: `loaded`, `swapped`, `failed`, `last_good`, `unloaded`.
    pub fn swaps(&self) -> impl Iterator<Item = (&'static str, u64)> {
        SWAPS.iter().map(|swap| swap.code()).zip(self.swaps.iter().map(Counter::get))
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
            longest: Duration::from_nanos(self.longest_nanos.load(Ordering::Relaxed)),
            fuel_peak: self.fuel_peak.load(Ordering::Relaxed),
            host_calls_peak: self.host_calls_peak.load(Ordering::Relaxed),
        }
    }
}

fn seconds<S: serde::Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use outbox_event::GuestCost;

    use super::*;

    #[test]
    fn totals_add_up_by_owner_and_memory_is_the_most_of_one_call() {
        let calls = Calls::default();
        let call = |fuel, memory_bytes| Cost {
            guest: Some(GuestCost { fuel, memory_bytes, host_calls: 2, host_bytes: 3, ..GuestCost::default() }),
            ..Cost::of_time(Duration::from_millis(250))
        };
        let mailer = calls.of(&"mailer".into());
        calls.of(&"idle".into());
        calls.of(&Owner::Native).add(&Cost::of_time(Duration::from_secs(1)));

        mailer.add(&call(10, 100));
        mailer.add(&call(30, 50));
        calls.of(&"mailer".into()).add(&call(5, 70));

        let counts = calls.counts();
        assert_eq!(counts.keys().collect::<Vec<_>>(), ["mailer", "native code"]);
        let expected = CallCounts {
            calls: 3,
            took: Duration::from_millis(750),
            fuel_used: 45,
            host_calls: 6,
            host_bytes: 9,
            memory_peak_bytes: 100,
            longest: Duration::from_millis(250),
            fuel_peak: 30,
            host_calls_peak: 2,
        };
        assert_eq!(counts["mailer"], expected);
        let second = Duration::from_secs(1);
        let native = CallCounts { calls: 1, took: second, longest: second, ..CallCounts::default() };
        assert_eq!(counts["native code"], native);
    }

    #[test]
    fn a_call_for_several_events_counts_whole_among_the_most() {
        let totals = CallTotals::default();
        let guest = GuestCost { fuel: 100, host_calls: 4, ..GuestCost::default() };
        let whole = Cost { guest: Some(guest), ..Cost::of_time(Duration::from_millis(8)) };

        (0..4).for_each(|number| totals.add(&whole.share(number, 4)));

        let counts = totals.counts();
        assert_eq!((counts.fuel_used, counts.fuel_peak, counts.host_calls_peak), (100, 100, 4));
        assert_eq!((counts.took, counts.longest), (Duration::from_millis(8), Duration::from_millis(8)));
    }

    #[test]
    fn breakages_and_swaps_are_counted_by_plugin() {
        let calls = Calls::default();
        calls.of(&Owner::Native).trapped(Cause::Panic);
        let mailer = calls.of(&"mailer".into());
        for cause in [Cause::Fuel, Cause::Fuel, Cause::Trap, Cause::Listener] {
            mailer.trapped(cause);
        }
        mailer.swapped(Swap::Loaded);

        let plugins = calls.of_plugins();

        let [(name, totals)] = &plugins[..] else { panic!("native code is no plugin: {plugins:?}") };
        assert_eq!(&**name, "mailer");
        let counted = |all: Vec<(&'static str, u64)>| all.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>();
        assert_eq!(counted(totals.traps().collect()), [("fuel", 2), ("trap", 1)], "an answer is no breakage");
        assert_eq!(counted(totals.swaps().collect()), [("loaded", 1)]);
    }
}
