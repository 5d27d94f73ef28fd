//! The call that is under way.

use std::time::Duration;

/// How long until the host cuts the call off, in whole milliseconds; in a native build, such as a unit test, always 5 seconds.
#[must_use]
pub fn remaining() -> Duration {
    #[cfg(target_family = "wasm")]
    return Duration::from_millis(u64::from(crate::bindings::outbox::listener::call::remaining_ms()));
    #[cfg(not(target_family = "wasm"))]
    Duration::from_secs(5)
}
