//! Values that the plugin keeps in the outbox's database, by key. Needs `state = true` in its manifest.
//!
//! Writes are committed together with the answer, in one transaction; a call that ends with a failure wrote nothing. When another
//! call has changed a key since this one read it, the host delivers the event again, uncounted: so a counter counts each event
//! once.
//!
//! ```
//! use outbox_sdk::prelude::*;
//!
//! fn count(_: &Event) -> Answer {
//!     let count: u64 = state::get_json("orders")?.unwrap_or_default();
//!     state::set_json("orders", &(count + 1))?;
//!     Ok(Done)
//! }
//!
//! count(&Event::for_test("Order", "OrderPlaced"))?;
//! assert_eq!(outbox_sdk::testing::state("orders").as_deref(), Some(&b"1"[..]));
//! # Ok::<(), Failure>(())
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Failure, Refusal};

/// The value under `key`; `None` when there is none. Sees what this call has written.
///
/// # Errors
/// What the host refuses, such as state that is not granted.
pub fn get(key: &str) -> Result<Option<Vec<u8>>, Refusal> {
    host::get(key)
}

/// Puts a value under `key`: 1 to 255 bytes of text.
///
/// # Errors
/// What the host refuses, such as a value beyond the plugin's quota.
pub fn set(key: &str, value: &[u8]) -> Result<(), Refusal> {
    host::set(key, value)
}

/// Removes a key, if it is there.
///
/// # Errors
/// What the host refuses.
pub fn delete(key: &str) -> Result<(), Refusal> {
    host::delete(key)
}

/// The value under `key`, read as JSON.
///
/// # Errors
/// What the host refuses, and an unrecoverable failure when the value is not of this type.
pub fn get_json<T: DeserializeOwned>(key: &str) -> Result<Option<T>, Failure> {
    let wrong = |error| Failure::unrecoverable(format_args!("invalid state under `{key}`: {error}"));
    get(key)?.map(|value| serde_json::from_slice(&value).map_err(wrong)).transpose()
}

/// Puts a value under `key` as JSON.
///
/// # Errors
/// What the host refuses, and an unrecoverable failure when the value cannot be JSON.
pub fn set_json(key: &str, value: &impl Serialize) -> Result<(), Failure> {
    let wrong = |error| Failure::unrecoverable(format_args!("the state for `{key}` cannot be written as JSON: {error}"));
    set(key, &serde_json::to_vec(value).map_err(wrong)?)?;
    Ok(())
}

#[cfg(target_family = "wasm")]
mod host {
    use crate::Refusal;
    use crate::bindings::outbox::listener::state;

    pub(super) fn get(key: &str) -> Result<Option<Vec<u8>>, Refusal> {
        state::get(key).map_err(Refusal::from)
    }

    pub(super) fn set(key: &str, value: &[u8]) -> Result<(), Refusal> {
        state::set(key, value).map_err(Refusal::from)
    }

    pub(super) fn delete(key: &str) -> Result<(), Refusal> {
        state::delete(key).map_err(Refusal::from)
    }
}

#[cfg(not(target_family = "wasm"))]
#[expect(clippy::unnecessary_wraps, reason = "as the host's own")]
mod host {
    use crate::Refusal;
    use crate::testing::with_host;

    pub(super) fn get(key: &str) -> Result<Option<Vec<u8>>, Refusal> {
        Ok(with_host(|host| host.state.get(key).cloned()))
    }

    pub(super) fn set(key: &str, value: &[u8]) -> Result<(), Refusal> {
        with_host(|host| host.state.insert(key.to_owned(), value.to_vec()));
        Ok(())
    }

    pub(super) fn delete(key: &str) -> Result<(), Refusal> {
        with_host(|host| host.state.remove(key));
        Ok(())
    }
}
