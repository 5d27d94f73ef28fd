//! What the operator told this plugin: the `[config]` and `[secrets]` of its manifest, `NAME.toml` beside `NAME.wasm`.
//!
//! ```
//! use outbox_sdk::prelude::*;
//!
//! fn sender() -> Result<String, Failure> {
//!     Ok(config::get("sender")?.unwrap_or_else(|| "shop@example.com".to_owned()))
//! }
//!
//! assert_eq!(sender().as_deref(), Ok("shop@example.com"));
//! config::set_for_test("sender", "orders@example.com");
//! assert_eq!(sender().as_deref(), Ok("orders@example.com"));
//! ```

use std::error::Error;
use std::fmt;

/// The host could not say what a key holds. A key that is merely absent is `None`, not this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    key: String,
    why: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the host could not read the config key {:?}: {}", self.key, self.why)
    }
}

impl Error for ConfigError {}

/// The value under `key`; `None` when the operator gave none.
///
/// # Errors
/// When the host could not look; asking again may succeed.
#[cfg(target_family = "wasm")]
pub fn get(key: &str) -> Result<Option<String>, ConfigError> {
    use crate::bindings::wasi::config::store;

    store::get(key).map_err(|error| match error {
        store::Error::Upstream(why) | store::Error::Io(why) => ConfigError { key: key.to_owned(), why },
    })
}

/// The value under `key`; `None` when none was set on this thread.
///
/// # Errors
/// Never, in a native build.
#[cfg(not(target_family = "wasm"))]
pub fn get(key: &str) -> Result<Option<String>, ConfigError> {
    Ok(for_test::VALUES.with_borrow(|values| values.get(key).cloned()))
}

/// Sets what [`get`] finds on this thread, which is to say: in this test. Native builds only.
#[cfg(not(target_family = "wasm"))]
pub fn set_for_test(key: &str, value: &str) {
    for_test::VALUES.with_borrow_mut(|values| values.insert(key.to_owned(), value.to_owned()));
}

#[cfg(not(target_family = "wasm"))]
mod for_test {
    use std::cell::RefCell;
    use std::collections::HashMap;

    thread_local! {
        /// Per thread, since tests run beside each other, each on a thread of its own.
        pub(super) static VALUES: RefCell<HashMap<String, String>> = RefCell::default();
    }
}
