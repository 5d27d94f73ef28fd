//! `wasi:config/store`, answered from the manifest's `[config]`.
//!
//! Answered here and not by wasmtime's own crate for it, which cannot count the calls. A key that is
//! not set is no refusal: a guest may have a default of its own.

use super::State;
use crate::wasm::bindings::wasi::config::store::{Error, Host};

impl Host for State {
    fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<String>, Error>> {
        let value = self.identity.config.get(&key);
        self.meter.charge(key.len() + value.map_or(0, String::len))?;
        Ok(Ok(value.cloned()))
    }

    fn get_all(&mut self) -> wasmtime::Result<Result<Vec<(String, String)>, Error>> {
        let all: Vec<_> = self.identity.config.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        self.meter.charge(all.iter().map(|(key, value)| key.len() + value.len()).sum())?;
        Ok(Ok(all))
    }
}
