//! Whether the calls of a listener compute for long, their instantiation included: then they take turns from the start, rather than
//! after their first tick on a thread of the runtime. The last call is taken as a guess for the next.

use std::sync::atomic::{AtomicBool, Ordering};

/// About a millisecond. Counted in fuel: time on the wall would be somebody else's, too.
const LONG_FUEL: u64 = 2_000_000;

/// Whether the last call computed for long.
#[derive(Debug, Default)]
pub(super) struct ComputesLong(AtomicBool);

impl ComputesLong {
    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes the fuel of a call and of the instantiation before it. Zero fuel means that there was no instance, which says nothing
    /// about the next call.
    pub(super) fn learn(&self, fuel: u64) {
        if fuel == 0 {
            return;
        }
        let is_long = fuel > LONG_FUEL;
        // Mostly read: a store for each call would move the line between processors.
        if is_long != self.get() {
            self.0.store(is_long, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_call_that_had_an_instance_is_the_guess_for_the_next() {
        let computes_long = ComputesLong::default();
        assert!(!computes_long.get());
        computes_long.learn(LONG_FUEL + 1);
        computes_long.learn(0);
        assert!(computes_long.get(), "a call without an instance changes nothing");
        computes_long.learn(LONG_FUEL);
        assert!(!computes_long.get());
    }
}
