//! A hasher without a seed.

use std::hash::{BuildHasherDefault, DefaultHasher};

/// As foldhash's, but the same in every run.
pub type RandomState = BuildHasherDefault<DefaultHasher>;
