//! The `http` interface: one request, one response, each as a whole.

use crate::wasm::bindings::outbox::listener::http::{Host, Request, Response};
use crate::wasm::bindings::outbox::listener::types::Refusal;
use crate::wasm::capability::{State, not_granted};
use crate::wasm::limits::pairs_bytes;
use crate::wasm::text::keepable;

impl Host for State {
    async fn send(&mut self, request: Request) -> wasmtime::Result<Result<Response, Refusal>> {
        let pairs = pairs_bytes(&request.headers) + pairs_bytes(&request.attributes);
        self.meter.charge(request.method.len() + request.url.len() + request.body.len() + pairs)?;
        let url = keepable(&request.url, 200);
        Ok(Err(not_granted(format!("a request to {url}: plugins have no network in this version of the host"))))
    }
}
