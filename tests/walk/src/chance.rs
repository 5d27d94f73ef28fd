//! Choices that follow from a seed.

use std::ops::Range;
use std::time::Duration;

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The choices of somebody: independent of how many choices others make.
    pub(crate) fn of(seed: u64, whose: u64) -> Self {
        let mut chance = Self(seed ^ whose.wrapping_mul(0xa076_1d64_78bd_642f));
        chance.next();
        Self(chance.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of this range.
    pub(crate) fn number(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.next() % len as u64).expect("smaller than a length")
    }

    pub(crate) fn one_of<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.index(things.len())]
    }

    /// True this many times in a thousand.
    pub(crate) fn per_mille(&mut self, of_a_thousand: u64) -> bool {
        self.next() % 1_000 < of_a_thousand
    }

    /// A span of this many milliseconds, to the microsecond.
    pub(crate) fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_micros(self.number(range.start * 1_000..range.end * 1_000))
    }
}
