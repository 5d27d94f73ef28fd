//! What the operator told this plugin: `[config]` and `[secrets]` of its manifest, `NAME.toml` beside `NAME.wasm`.
//!
//! ```
//! use outbox_sdk::prelude::*;
//!
//! fn sender() -> String {
//!     config::get("sender").unwrap_or_else(|| "shop@example.com".to_owned())
//! }
//!
//! assert_eq!(sender(), "shop@example.com");
//! outbox_sdk::testing::set_config("sender", "orders@example.com");
//! assert_eq!(sender(), "orders@example.com");
//! ```

use crate::Failure;

/// The value under `key` of `[config]`; `None` when the operator gave none.
#[must_use]
pub fn get(key: &str) -> Option<String> {
    host::get(key)
}

/// The value under `key` of `[config]`.
///
/// # Errors
/// A retryable failure that says what to add to the manifest when there is none: the operator can mend it, and the event waits.
pub fn require(key: &str) -> Result<String, Failure> {
    get(key).ok_or_else(|| {
        Failure::retryable(format_args!("the setting `{key}` is missing; add it to [config] of the plugin's manifest"))
    })
}

/// All of `[config]`, sorted by key.
#[must_use]
pub fn all() -> Vec<(String, String)> {
    host::all()
}

/// The value under `key` of `[secrets]`; `None` when the operator gave none. The host blanks it out in log lines and failures.
#[must_use]
pub fn secret(key: &str) -> Option<String> {
    host::secret(key)
}

/// The value under `key` of `[secrets]`.
///
/// # Errors
/// A retryable failure that says what to add to the manifest when there is none.
pub fn require_secret(key: &str) -> Result<String, Failure> {
    secret(key).ok_or_else(|| {
        Failure::retryable(format_args!("the secret `{key}` is missing; add it to [secrets] of the plugin's manifest"))
    })
}

#[cfg(target_family = "wasm")]
mod host {
    pub(super) use crate::bindings::outbox::listener::settings::{get, get_all as all, secret};
}

#[cfg(not(target_family = "wasm"))]
mod host {
    use crate::testing::with_host;

    pub(super) fn get(key: &str) -> Option<String> {
        with_host(|host| host.config.get(key).cloned())
    }

    pub(super) fn all() -> Vec<(String, String)> {
        with_host(|host| host.config.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    pub(super) fn secret(key: &str) -> Option<String> {
        with_host(|host| host.secrets.get(key).cloned())
    }
}
