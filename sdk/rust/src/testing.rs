//! The host as a unit test meets it: what the operator set, and what the listener did. Native builds only.
//!
//! Everything is kept for each thread, since tests run beside each other, each on a thread of its own.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use crate::http::{Request, Response};
use crate::{Message, NewEvent, Refusal, RefusalKind};

/// What stands in for the host on one thread.
#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) config: BTreeMap<String, String>,
    pub(crate) secrets: BTreeMap<String, String>,
    pub(crate) state: BTreeMap<String, Vec<u8>>,
    pub(crate) emitted: Vec<NewEvent>,
    pub(crate) published: Vec<(String, Message)>,
    pub(crate) requests: Vec<Request>,
    pub(crate) responses: VecDeque<Result<Response, Refusal>>,
    pub(crate) log: Vec<String>,
}

thread_local! {
    static HOST: RefCell<Host> = RefCell::default();
}

pub(crate) fn with_host<T>(look: impl FnOnce(&mut Host) -> T) -> T {
    HOST.with_borrow_mut(look)
}

/// Sets a value of `[config]`.
pub fn set_config(key: &str, value: &str) {
    with_host(|host| host.config.insert(key.to_owned(), value.to_owned()));
}

/// Sets a value of `[secrets]`.
pub fn set_secret(key: &str, value: &str) {
    with_host(|host| host.secrets.insert(key.to_owned(), value.to_owned()));
}

/// Puts a value into the plugin's state.
pub fn set_state(key: &str, value: &[u8]) {
    with_host(|host| host.state.insert(key.to_owned(), value.to_vec()));
}

/// The value in the plugin's state; `None` when there is none.
#[must_use]
pub fn state(key: &str) -> Option<Vec<u8>> {
    with_host(|host| host.state.get(key).cloned())
}

/// What was emitted so far, in order.
#[must_use]
pub fn emitted() -> Vec<NewEvent> {
    with_host(|host| host.emitted.clone())
}

/// What was published so far, in order: the sink and the message.
#[must_use]
pub fn published() -> Vec<(String, Message)> {
    with_host(|host| host.published.clone())
}

/// Answers the next HTTP request that has no answer yet with this response. Responses are given in the order of these calls; a
/// request beyond them is refused as unavailable.
pub fn respond(response: Response) {
    with_host(|host| host.responses.push_back(Ok(response)));
}

/// Refuses the next HTTP request that has no answer yet, as a host does: no grant, a server that is down, a large response.
pub fn refuse_request(kind: RefusalKind, message: &str) {
    with_host(|host| host.responses.push_back(Err(Refusal { kind, message: message.to_owned() })));
}

/// The HTTP requests that were made so far, in order.
#[must_use]
pub fn requests() -> Vec<Request> {
    with_host(|host| host.requests.clone())
}

/// The lines that were logged so far, in order: `INFO order placed order_id=7`.
#[must_use]
pub fn log() -> Vec<String> {
    with_host(|host| host.log.clone())
}
