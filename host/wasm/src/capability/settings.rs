//! The `settings` interface: `[config]` and `[secrets]` of the plugin's manifest.
//!
//! A key that is not set is no refusal: a guest may have a default of its own.

use outbox_event::text::keepable;

use super::HostState;
use crate::bindings::outbox::listener::settings::Host;

impl Host for HostState {
    fn get(&mut self, key: String) -> wasmtime::Result<Option<String>> {
        let value = self.identity.grants.config.get(&key).cloned();
        self.meter.charge(key.len() + value.as_ref().map_or(0, String::len))?;
        Ok(value)
    }

    fn get_all(&mut self) -> wasmtime::Result<Vec<(String, String)>> {
        let config = &self.identity.grants.config;
        let all: Vec<_> = config.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        self.meter.charge(all.iter().map(|(key, value)| key.len() + value.len()).sum())?;
        Ok(all)
    }

    fn secret(&mut self, key: String) -> wasmtime::Result<Option<String>> {
        let value = self.identity.grants.secrets.get(&key).cloned();
        self.meter.charge(key.len() + value.as_ref().map_or(0, String::len))?;
        if value.is_none() {
            let name = &self.identity.name;
            // Before it is cut: half a secret is not found.
            let key = keepable(&self.identity.grants.hide(&key), 100);
            let advice = format!("it has none; to give it one, add `{key} = \"${{env:…}}\"` to [secrets] of {name}.toml");
            self.identity.refused(&format!("the secret `{key}`"), &advice);
        }
        Ok(value)
    }
}
