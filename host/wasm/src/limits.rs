//! How large a component may be and what a guest may use: [`Limiter`] counts its memory, [`Meter`] its calls of the host.
//!
//! Fuel is counted by wasmtime and the deadline by tokio; `call/` sets both.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::ResourceLimiter;

use super::shares::{InstanceShare, PluginShare};

/// The largest component file.
pub(super) const MAX_FILE_BYTES: u64 = 32 << 20;
/// What instantiating may burn, before the call's own fuel counts.
pub(super) const INIT_FUEL: u64 = 20_000_000;
/// The most bytes that one call of the host, or the guest's answer, may carry out of the guest. Only that direction is
/// counted: payload and headers, on their way in, are not.
pub(super) const HOSTCALL_BYTES: usize = 2 << 20;
/// The most handles that a guest may hold.
pub(super) const MAX_HANDLES: usize = 1_024;
/// The most host objects behind them.
pub(super) const MAX_RESOURCES: usize = 512;
/// The most of them that an instance may hold, and the most bytes that it may have left behind them, while it waits for another
/// event.
pub(super) const MAX_LEFT_RESOURCES: usize = MAX_RESOURCES / 2;
pub(super) const MAX_LEFT_BYTES: u64 = 256 << 10;
/// The most random bytes asked for at once.
pub(super) const MAX_RANDOM_BYTES: u64 = 64 << 10;
/// The largest message or reason that is kept with an event.
pub(super) const MAX_MESSAGE_BYTES: usize = 2 << 10;
/// The shortest and the longest delay that a guest may ask for.
pub(super) const DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(24 * 60 * 60));

const MAX_HOST_BYTES: u64 = 4 << 20;
/// How much of the host's heap every instance may take before it counts as its memory. No sample takes more.
const FREE_HOST_BYTES: usize = 1 << 20;
const FUEL_PER_HOST_CALL: u64 = 1_000;

/// The delay that a guest asked for, within bounds.
pub(super) fn delay(millis: u32) -> Duration {
    Duration::from_millis(u64::from(millis)).clamp(DELAYS.0, DELAYS.1)
}

/// What a list of pairs counts for: their texts, and what each pair costs the host beside.
pub(super) fn pairs_bytes(pairs: &[(String, String)]) -> usize {
    const EACH: usize = 64;
    pairs.iter().map(|(key, value)| key.len() + value.len() + EACH).sum()
}

/// A limit that wasmtime does not know, exceeded. Travels out of the guest as the error of a host call.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum Exceeded {
    #[error("called the host more than {max} times")]
    HostCalls { max: u32 },
    #[error("exchanged more than {MAX_HOST_BYTES} bytes with the host")]
    HostBytes,
    #[error("called the host after its time")]
    Late,
}

/// Counts the calls of the host during one call of the guest, because fuel does not: a guest once pushed 105 GB of log
/// text through the boundary on two million fuel.
#[derive(Debug)]
pub(super) struct Meter {
    max_calls: u32,
    calls: u32,
    bytes: u64,
    burnt: u64,
    /// The bytes among them that the host keeps for the instance, those of earlier calls as well.
    kept: u64,
    /// When the call is over; `None` before the first. Timers may come late: a process that was stopped wakes up in the middle of a
    /// step of the guest, whose event somebody else may have by then.
    ends: Option<Instant>,
}

impl Meter {
    pub(super) fn new(max_calls: u32) -> Self {
        Self { max_calls, calls: 0, bytes: 0, burnt: 0, kept: 0, ends: None }
    }

    /// Begins a call that is over at `ends`: nothing is used yet.
    pub(super) fn begin(&mut self, ends: Instant) {
        *self = Self { ends: Some(ends), kept: self.kept, ..Self::new(self.max_calls) };
    }

    /// Counts bytes of a call that is counted elsewhere: bytes into the guest, or arguments of a function of wasmtime.
    pub(super) fn charge_bytes(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.check()
    }

    /// Takes note of bytes that the host keeps for the guest beyond this call of the host.
    pub(super) fn keep(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.keep_written(bytes as u64);
        self.check()
    }

    /// The same, where the guest is ended later.
    pub(super) fn keep_written(&mut self, bytes: u64) {
        self.kept = self.kept.saturating_add(bytes);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// How many bytes the host may keep for the instance.
    pub(super) fn kept(&self) -> u64 {
        self.kept
    }

    /// Takes note that the host keeps nothing any more.
    pub(super) fn forget_kept(&mut self) {
        self.kept = 0;
    }

    /// Takes note of one call that carries this many bytes.
    pub(super) fn charge(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.calls = self.calls.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.check()
    }

    /// How many calls there were, and how many bytes they carried.
    pub(super) fn used(&self) -> (u32, u64) {
        (self.calls, self.bytes)
    }

    /// Whether a limit is exceeded.
    pub(super) fn check(&self) -> Result<(), Exceeded> {
        if self.calls > self.max_calls {
            return Err(Exceeded::HostCalls { max: self.max_calls });
        }
        if self.bytes > MAX_HOST_BYTES {
            return Err(Exceeded::HostBytes);
        }
        if self.ends.is_some_and(|ends| ends <= Instant::now()) {
            return Err(Exceeded::Late);
        }
        Ok(())
    }

    /// The fuel that the calls since the last question cost.
    pub(super) fn fuel_due(&mut self) -> u64 {
        let total = u64::from(self.calls) * FUEL_PER_HOST_CALL + self.bytes;
        let due = total - self.burnt;
        self.burnt = total;
        due
    }
}

/// Bounds the sum over all memories and tables of a store, and of all stores together.
#[derive(Debug)]
pub(super) struct Limiter {
    max: usize,
    share: InstanceShare,
    /// Bytes of the host's heap that count together with the first memory or table.
    uncounted: usize,
    /// Whether the instance was ever refused memory because all guests together, or those of the plugin, have too much: no fault of
    /// this one. An instance that was refused memory is not kept, so this never concerns an earlier call.
    pub(super) starved: bool,
    /// Whether the instance was refused memory beyond its limit in this call. A guest that is refused memory aborts, which looks like any
    /// other trap.
    pub(super) denied: bool,
    /// Whether the instance was ever refused memory, for either reason.
    was_refused: bool,
}

impl Limiter {
    pub(super) fn new(max: usize, share: &Arc<PluginShare>) -> Self {
        Self { max, share: share.instance(), uncounted: 0, starved: false, denied: false, was_refused: false }
    }

    /// Counts the bytes that the instance takes of the host's heap, beyond those that are free. They are taken together with its
    /// first memory or table, since wasmtime asks before it makes one and can be refused.
    pub(super) fn count_host_bytes(&mut self, bytes: usize) {
        self.uncounted = bytes.saturating_sub(FREE_HOST_BYTES);
    }

    /// Whether the instance was ever refused memory. Such an instance may be damaged, and is not kept.
    pub(super) fn was_refused(&self) -> bool {
        self.was_refused
    }

    /// Bytes in use now; memory never shrinks.
    pub(super) fn used(&self) -> usize {
        self.share.used()
    }

    /// Of an instance that waits for an event, and of one that has got one.
    pub(super) fn rest(&mut self) {
        self.share.rest();
    }

    pub(super) fn begin(&mut self) {
        self.denied = false;
        self.share.resume();
    }

    fn grow(&mut self, current: usize, desired: usize) -> bool {
        let more = desired.saturating_sub(current).saturating_add(self.uncounted);
        if self.used().saturating_add(more) > self.max {
            (self.denied, self.was_refused) = (true, true);
            return false;
        }
        if self.share.take(more) {
            self.uncounted = 0;
            return true;
        }
        if !self.starved {
            self.share.tell();
        }
        (self.starved, self.was_refused) = (true, true);
        false
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        // Refused by its own declaration: nothing to do with the limit.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        Ok(self.grow(current, desired))
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let bytes = |elements: usize| elements.saturating_mul(std::mem::size_of::<usize>());
        Ok(self.grow(bytes(current), bytes(desired)))
    }

    fn instances(&self) -> usize {
        64
    }

    fn memories(&self) -> usize {
        8
    }

    fn tables(&self) -> usize {
        16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::MemoryBudget;

    #[test]
    fn memories_and_tables_count_together_and_a_refusal_is_remembered() {
        let mut limiter = Limiter::new(1_000, &MemoryBudget::new(1 << 20).share("p"));
        assert!(limiter.memory_growing(0, 600, None).unwrap());
        assert!(!limiter.memory_growing(0, 500, Some(400)).unwrap(), "its own maximum");
        assert!(!limiter.denied);
        assert!(limiter.table_growing(0, 50, None).unwrap());
        assert!(!limiter.memory_growing(600, 601, None).unwrap());
        assert!(limiter.denied);
        assert_eq!(limiter.used(), 1_000);
    }

    #[test]
    fn bytes_of_the_hosts_heap_beyond_the_free_ones_count_as_memory() {
        let share = MemoryBudget::new(1 << 20).share("p");
        let with = |max, host_bytes| {
            let mut limiter = Limiter::new(max, &share);
            limiter.count_host_bytes(host_bytes);
            limiter
        };
        let mut free = with(1_000, FREE_HOST_BYTES);
        assert!(free.memory_growing(0, 1_000, None).unwrap());
        let mut counted = with(2_000, FREE_HOST_BYTES + 1_000);
        assert!(counted.memory_growing(0, 600, None).unwrap() && counted.table_growing(0, 50, None).unwrap());
        assert_eq!((free.used(), counted.used()), (1_000, 2_000));
        let mut refused = with(1_000, FREE_HOST_BYTES + 1_000);
        assert!(!refused.memory_growing(0, 1, None).unwrap() && refused.denied);
    }

    #[test]
    fn what_all_guests_have_together_is_bounded_and_given_back() {
        let share = MemoryBudget::new(1_000).share("p");
        let (mut first, mut second) = (Limiter::new(800, &share), Limiter::new(800, &share));
        assert!(first.memory_growing(0, 700, None).unwrap() && share.is_short());
        assert!(!second.memory_growing(0, 400, None).unwrap());
        assert!(second.starved && !second.denied && second.used() == 0, "it may try again when others are gone");
        drop(first);
        assert!(!share.is_short() && second.memory_growing(0, 400, None).unwrap());
    }

    #[test]
    fn host_calls_cost_fuel_once_and_end_at_their_limit() {
        let mut meter = Meter::new(1_000);
        meter.charge(5).unwrap();
        meter.charge(0).unwrap();
        assert_eq!(meter.fuel_due(), 2_005);
        assert_eq!(meter.fuel_due(), 0);
        assert!(matches!(meter.charge(5 << 20), Err(Exceeded::HostBytes)));
        let mut meter = Meter::new(1_000);
        assert!((0..1_000).all(|_| meter.charge(0).is_ok()));
        assert!(matches!(meter.charge(0), Err(Exceeded::HostCalls { max: 1_000 })));
    }

    #[test]
    fn nothing_is_done_for_a_call_whose_time_is_over() {
        let mut meter = Meter::new(1_000);
        meter.begin(Instant::now() + Duration::from_secs(60));
        meter.charge(0).unwrap();
        meter.begin(Instant::now());
        assert!(matches!(meter.charge(0), Err(Exceeded::Late)));
    }

    #[test]
    fn a_delay_stays_within_bounds() {
        assert_eq!(delay(0), Duration::from_millis(100));
        assert_eq!(delay(u32::MAX), Duration::from_secs(86_400));
        assert_eq!(delay(1_500), Duration::from_millis(1_500));
    }
}
