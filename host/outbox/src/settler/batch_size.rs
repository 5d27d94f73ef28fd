//! How many outcomes one statement writes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A statement that took no longer than this may be twice as large next time, and still end long before the statement timeout.
const QUICK: Duration = Duration::from_secs(5);

/// The size of the next statement. Smaller after a statement that was held up, because a table may be slow for all rows.
#[derive(Debug)]
pub(crate) struct BatchSize {
    most: usize,
    current: AtomicUsize,
}

impl BatchSize {
    pub(crate) fn new(most: usize) -> Self {
        let most = most.max(1);
        Self { most, current: AtomicUsize::new(most) }
    }

    /// The configured size.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// The size of the next statement.
    pub(super) fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// Notes that a statement was held up, and that its outcomes are stored in parts of this size.
    pub(super) fn note_held_up(&self, part: usize) {
        self.current.fetch_min(part.max(1), Ordering::Relaxed);
    }

    /// Notes that a statement for this many outcomes succeeded in this time. Small statements say nothing about larger ones.
    pub(super) fn note_stored(&self, outcomes: usize, took: Duration) {
        let current = self.current();
        if current < self.most && outcomes >= current.div_ceil(2) && took <= QUICK {
            self.current.store(current.saturating_mul(2).min(self.most), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_doubles_after_each_quick_statement_of_that_size() {
        let size = BatchSize::new(500);
        size.note_held_up(63);
        assert_eq!(size.current(), 63);

        size.note_stored(1, Duration::ZERO);
        size.note_stored(63, QUICK * 2);
        assert_eq!(size.current(), 63, "one row or a slow statement says nothing about more rows");

        let sizes = [63, 126, 252, 500].map(|stored| {
            size.note_stored(stored, QUICK);
            size.current()
        });
        assert_eq!(sizes, [126, 252, 500, 500]);
    }

    #[test]
    fn smaller_part_of_another_batch_counts() {
        let size = BatchSize::new(500);
        size.note_held_up(8);
        size.note_held_up(63);
        assert_eq!(size.current(), 8);
    }
}
