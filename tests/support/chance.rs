//! Chance that can be had again.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Where all random choices of a test run come from.
///
/// Drawn anew for every run, unless `OUTBOX_TEST_SEED` names the one of an earlier run: then every choice is the same again.
/// (What the machine makes of it, such as who is first, is not a choice.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(u64);

impl Seed {
    /// The one of this process.
    ///
    /// # Panics
    /// When `OUTBOX_TEST_SEED` is no number.
    #[must_use]
    pub fn of_this_run() -> Self {
        static SEED: OnceLock<Seed> = OnceLock::new();
        *SEED.get_or_init(|| given().unwrap_or_else(|| Self(rand::rng().random())))
    }

    /// The same one in every run.
    #[must_use]
    pub fn fixed(seed: u64) -> Self {
        Self(seed)
    }

    /// The number that brings it back.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }

    /// The choices of somebody, by name: independent of how many choices others make, and when.
    #[must_use]
    pub fn choices_of(self, name: &str) -> StdRng {
        // A standard hasher made by `new` has no key of its own.
        let mut hasher = DefaultHasher::new();
        (self.0, name).hash(&mut hasher);
        StdRng::seed_from_u64(hasher.finish())
    }
}

#[expect(clippy::disallowed_methods, reason = "tests are configured through the environment")]
fn given() -> Option<Seed> {
    std::env::var("OUTBOX_TEST_SEED").ok().map(|seed| Seed(seed.parse().expect("OUTBOX_TEST_SEED is a number")))
}

/// How many generated cases a test tries: `OUTBOX_TEST_CASES` of them, or this many.
///
/// # Panics
/// When `OUTBOX_TEST_CASES` is no number.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "tests are configured through the environment")]
pub fn generated_cases(otherwise: usize) -> usize {
    std::env::var("OUTBOX_TEST_CASES").ok().map_or(otherwise, |cases| cases.parse().expect("OUTBOX_TEST_CASES is a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(seed: u64, name: &str) -> Vec<u32> {
        let mut choices = Seed::fixed(seed).choices_of(name);
        (0..20).map(|_| choices.random_range(0..1_000)).collect()
    }

    #[test]
    fn the_same_seed_and_name_choose_the_same() {
        assert_eq!(draws(7, "writer-1"), draws(7, "writer-1"));
        assert_ne!(draws(7, "writer-1"), draws(7, "writer-2"));
        assert_ne!(draws(7, "writer-1"), draws(8, "writer-1"));
        assert_eq!((Seed::of_this_run(), Seed::fixed(7).number()), (Seed::of_this_run(), 7));
    }
}
