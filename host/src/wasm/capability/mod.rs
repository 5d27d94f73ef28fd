//! What a guest reaches outside its memory: one file each. Everything is linked, nothing is granted, so that a guest that
//! imports more than it uses still loads, and one that uses more is refused at the call.

pub(super) mod config;
pub(super) mod http;
pub(super) mod log;
pub(super) mod wasi;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use wasmtime::component::ResourceTable;
use wasmtime_wasi::WasiCtx;
use wasmtime_wasi_http::WasiHttpCtx;

use self::http::Denied;
use self::log::{LogLines, SharedLines};
use super::limits::{Limiter, MAX_RESOURCES, Meter};
use crate::event::EventId;

/// What is the same in all calls of one loaded component.
#[derive(Debug)]
pub(super) struct Identity {
    /// The plugin's name.
    pub(super) name: String,
    /// The first 12 hex digits of its digest.
    pub(super) digest: String,
    /// What `wasi:config` answers.
    pub(super) config: BTreeMap<String, String>,
    told: Mutex<BTreeSet<String>>,
}

impl Identity {
    pub(super) fn new(name: String, digest: String, config: BTreeMap<String, String>) -> Self {
        Self { name, digest, config, told: Mutex::default() }
    }

    /// Logs that something was refused, once for each thing.
    pub(super) fn refused(&self, what: String, advice: &str) {
        const MOST: usize = 64;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < MOST && !told.contains(&what) {
            tracing::warn!(target: log::TARGET, plugin = self.name, digest = self.digest, "refused {what}: {advice}");
            told.insert(what);
        }
    }
}

/// What a store carries. What most guests never touch is made when they do.
pub(super) struct State {
    pub(super) identity: Arc<Identity>,
    /// The event of the call; `None` for `describe`.
    pub(super) event: Option<EventId>,
    pub(super) limiter: Limiter,
    pub(super) meter: Meter,
    lines: Option<SharedLines>,
    wasi: Option<Box<WasiCtx>>,
    table: ResourceTable,
    http: WasiHttpCtx,
    denied: Denied,
}

impl State {
    pub(super) fn new(identity: &Arc<Identity>, max_memory: usize) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(MAX_RESOURCES);
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(16 << 10);
        Self {
            identity: identity.clone(),
            event: None,
            limiter: Limiter::new(max_memory),
            meter: Meter::default(),
            lines: None,
            wasi: None,
            table,
            http,
            denied: Denied(identity.clone()),
        }
    }

    /// Begins a call: budgets are full again.
    pub(super) fn begin(&mut self, event: Option<EventId>) {
        self.event = event;
        self.meter = Meter::default();
        self.limiter.denied = false;
        if let Some(lines) = &self.lines {
            lines.lock().unwrap_or_else(PoisonError::into_inner).begin(event);
        }
    }

    /// Ends a call: unfinished lines are written, dropped ones counted in the log. Returns the last lines of stderr.
    pub(super) fn end(&mut self) -> Option<String> {
        let lines = self.lines.as_ref()?;
        lines.lock().unwrap_or_else(PoisonError::into_inner).end()
    }

    /// The log lines of the call, made with the first.
    fn lines(&mut self) -> &SharedLines {
        let Self { lines, identity, event, .. } = self;
        lines.get_or_insert_with(|| Arc::new(Mutex::new(LogLines::new(identity.clone(), *event))))
    }
}

/// The types of the contract are an interface without functions.
impl super::bindings::outbox::listener::types::Host for State {}
