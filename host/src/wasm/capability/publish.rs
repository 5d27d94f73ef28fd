//! The `publish` interface: refused at every call, since this host has no sinks yet.

use super::{State, not_granted};
use crate::wasm::bindings::outbox::listener::publish::{Host, Message};
use crate::wasm::bindings::outbox::listener::types::Refusal;
use crate::wasm::limits::pairs_bytes;
use crate::wasm::text::keepable;

impl State {
    fn no_sink(&mut self, sink: &str, message: &Message) -> wasmtime::Result<Result<(), Refusal>> {
        let texts = message.subject.len() + message.content_type.len() + message.key.as_ref().map_or(0, String::len);
        let pairs = pairs_bytes(&message.headers) + pairs_bytes(&message.attributes);
        self.meter.charge(sink.len() + texts + message.body.len() + pairs)?;
        let sink = keepable(sink, 100);
        let refusal = not_granted(format!("publishing to the sink `{sink}`: this host has no sinks"));
        self.identity.refused(format!("a message to the sink `{sink}`"), "this host has no sinks");
        Ok(Err(refusal))
    }
}

impl Host for State {
    async fn send(&mut self, sink: String, message: Message) -> wasmtime::Result<Result<(), Refusal>> {
        self.no_sink(&sink, &message)
    }

    async fn send_all(&mut self, sink: String, messages: Vec<Message>) -> wasmtime::Result<Vec<Result<(), Refusal>>> {
        self.meter.charge(sink.len())?;
        messages.iter().map(|message| self.no_sink(&sink, message)).collect()
    }
}
