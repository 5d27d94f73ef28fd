//! How many events to ask for, where payloads are so large that the byte limit ends a batch.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many events fit into one batch, as far as the batches before tell. A database looks at the size of every row that it is asked for, and
/// may have to read all of a payload to tell it.
#[derive(Debug)]
pub(crate) struct Fitting(AtomicU32);

impl Default for Fitting {
    fn default() -> Self {
        Self(AtomicU32::new(u32::MAX))
    }
}

impl Fitting {
    pub(super) fn most(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes that so many were taken of a most of `limit`, and whether the bytes of a batch were used up.
    pub(super) fn note(&self, taken: usize, limit: u32, no_more_bytes: bool) {
        let taken = u32::try_from(taken).unwrap_or(u32::MAX);
        if no_more_bytes {
            self.0.store(taken.saturating_add(1), Ordering::Relaxed);
        } else if taken >= limit && limit >= self.most() {
            self.0.store(limit.saturating_mul(4), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_asked_for_as_fitted_last_and_more_again_when_they_all_do() {
        let fitting = Fitting::default();
        fitting.note(500, 500, false);
        assert_eq!(fitting.most(), u32::MAX, "nothing was cut short");

        fitting.note(4, 500, true);
        assert_eq!(fitting.most(), 5, "one more than fitted shows whether they have become smaller");
        fitting.note(2, 2, false);
        assert_eq!(fitting.most(), 5, "there was room for no more");
        fitting.note(3, 5, false);
        assert_eq!(fitting.most(), 5, "nothing more was due");

        fitting.note(5, 5, false);
        assert_eq!(fitting.most(), 20);
    }
}
