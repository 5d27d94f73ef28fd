//! The transactional outbox whose listeners are sandboxed WebAssembly components.

pub mod event;
pub mod listener;
pub mod time;
pub mod units;
#[cfg(feature = "wasm")]
pub mod wasm;
