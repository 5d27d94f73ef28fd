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
//!
//! All of it as a type of one's own, with [`parse`]; given to [`listener!`](crate::listener!) as `check`, such a look keeps a
//! version with settings that will not do from serving.
//!
//! ```
//! use outbox_sdk::prelude::*;
//!
//! #[derive(Deserialize)]
//! struct Settings {
//!     endpoint: String,
//!     retries: Option<u8>,
//! }
//!
//! outbox_sdk::testing::set_config("endpoint", "https://api.example.com");
//! outbox_sdk::testing::set_config("retries", "many");
//! let failure = config::parse::<Settings>().err().expect("many is not a number");
//! assert!(failure.message.starts_with("the setting `retries` is \"many\": it must be a whole number"), "{}", failure.message);
//! ```

mod read;

use std::fmt::Display;
use std::str::FromStr;

use serde::de::DeserializeOwned;

use crate::Failure;

/// The value under `key` of `[config]`; `None` when the operator gave none.
#[must_use]
pub fn get(key: &str) -> Option<String> {
    host::get(key)
}

/// The value under `key` of `[config]`.
///
/// # Errors
/// A retryable failure that says what to add to the manifest when there is none: the operator can fix it, and the event waits.
pub fn require(key: &str) -> Result<String, Failure> {
    get(key).ok_or_else(|| {
        Failure::retryable(format_args!("the setting `{key}` is missing; add it to [config] of the plugin's manifest"))
    })
}

/// The value under `key` of `[config]`, parsed: a number, an address, whatever has [`FromStr`]. `None` when the operator gave none.
///
/// # Errors
/// A retryable failure that names the key when the value does not parse: the operator can fix it, and the event waits.
pub fn get_as<T: FromStr<Err: Display>>(key: &str) -> Result<Option<T>, Failure> {
    let Some(value) = get(key) else { return Ok(None) };
    let wrong = |error: T::Err| {
        Failure::retryable(format_args!(
            "the setting `{key}` is {value:?}: {error}; fix it in [config] of the plugin's manifest"
        ))
    };
    value.parse().map(Some).map_err(wrong)
}

/// All of `[config]` as a type that derives `Deserialize`: a struct whose fields are texts, numbers, truth values, enums
/// without data, or options of these.
///
/// # Errors
/// A retryable failure that names the first key that is missing, unknown or wrong: the operator can fix it, and the event waits.
pub fn parse<T: DeserializeOwned>() -> Result<T, Failure> {
    read::read(all()).map_err(|wrong| Failure::retryable(format_args!("{wrong}; fix it in [config] of the plugin's manifest")))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::set_config;

    #[test]
    fn a_value_that_does_not_parse_is_named_with_its_key_and_its_table() {
        assert_eq!(get_as::<u16>("port"), Ok(None));
        set_config("port", "8080");
        assert_eq!(get_as::<u16>("port"), Ok(Some(8080)));
        set_config("port", "eighty");

        let failure = get_as::<u16>("port").unwrap_err();

        assert!(
            failure.message.contains("`port` is \"eighty\"") && failure.message.contains("[config]"),
            "{}",
            failure.message
        );
    }
}
