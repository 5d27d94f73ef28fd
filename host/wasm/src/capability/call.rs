//! The `call` interface: what is left of the deadline.

use std::time::Instant;

use super::HostState;
use crate::bindings::outbox::listener::call::Host;

impl Host for HostState {
    fn remaining_ms(&mut self) -> wasmtime::Result<u32> {
        self.meter.charge(0)?;
        let left = self.ends.saturating_duration_since(Instant::now());
        Ok(u32::try_from(left.as_millis()).unwrap_or(u32::MAX))
    }
}
