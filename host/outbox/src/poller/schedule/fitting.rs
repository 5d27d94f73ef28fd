//! How many events to request if large payloads make the byte limit end a batch.

/// How many events fit into one batch, according to earlier batches. A database checks the size of every row that a read requests, and may
/// have to load the whole payload for that.
#[derive(Debug)]
pub(super) struct Fitting {
    most: u32,
}

impl Default for Fitting {
    fn default() -> Self {
        Self { most: u32::MAX }
    }
}

impl Fitting {
    /// The most events to request.
    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// Notes that a read returned `taken` of at most `limit` events, and whether it reached the byte limit of a batch.
    pub(super) fn note(&mut self, taken: usize, limit: u32, no_more_bytes: bool) {
        let taken = u32::try_from(taken).unwrap_or(u32::MAX);
        if no_more_bytes {
            self.most = taken.saturating_add(1);
        } else if taken >= limit && limit >= self.most {
            self.most = limit.saturating_mul(4);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_asked_for_as_fitted_last_and_more_again_when_they_all_do() {
        let mut fitting = Fitting::default();
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
