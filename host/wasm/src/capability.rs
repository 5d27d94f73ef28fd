//! What a guest reaches outside its memory: one file each. Everything is linked, nothing is granted, so that a guest that
//! imports more than it uses still loads, and one that uses more is refused at the call.

mod bucket;
mod call;
pub(super) mod emit;
pub(super) mod http;
pub(super) mod log;
mod outgoing;
pub(super) mod publish;
mod secrets;
mod settings;
pub(super) mod state;
mod stdio;
pub(super) mod wasi;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::WasiCtx;
use wasmtime_wasi_http::WasiHttpCtx;

use self::bucket::Bucket;
use self::emit::EmitGrant;
pub(super) use self::http::kept::count_what_is_kept;
use self::http::kept::{Written, holds_bytes};
use self::http::{HttpClient, Requests};
use self::log::{LogLine, LogLines, SharedLines};
use self::publish::PublishGrant;
pub(super) use self::secrets::Secrets;
use outbox_event::text::keepable;
use outbox_event::{Effects, Event, Outcome, ShortDigest};
use outbox_listener::Reminder;

use self::state::{Seen, StateGrant};
use super::bindings::outbox::listener::types::{Refusal, RefusalKind};
use super::limits::{Limiter, MAX_LEFT_BYTES, MAX_LEFT_RESOURCES, MAX_RESOURCES, Meter};
use super::manifest::Limits;
use super::shares::PluginShare;

/// The attribute that says for which event of a call for several something is done.
const EVENT_ID: &str = "event-id";

/// What the operator granted one plugin.
#[derive(Clone, Debug, Default)]
pub(super) struct Grants {
    /// `[config]`.
    pub(super) config: BTreeMap<String, String>,
    /// `[secrets]`.
    pub(super) secrets: Secrets,
    /// `None` when it may emit nothing.
    pub(super) emit: Option<Arc<EmitGrant>>,
    /// `None` when it may keep nothing.
    pub(super) state: Option<StateGrant>,
    /// `None` when it may publish nowhere.
    pub(super) publish: Option<Arc<PublishGrant>>,
    /// `None` when it may make no requests.
    pub(super) http: Option<Arc<HttpClient>>,
}

/// The most that one plugin writes to the log, whatever number of calls it has; ten times as much at once after a rest.
const LOG_BYTES_PER_SECOND: u32 = 1 << 20;
/// The most that is told of what was refused, and of what would grant it.
const MAX_REFUSED_BYTES: usize = 1_024;
/// What the shortest line counts for.
const LEAST_LINE: usize = 128;

/// Something that a guest asked for and was not granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// What it asked for, such as `an event to emit`.
    pub what: String,
    /// Why it was refused, and the line that grants it.
    pub advice: String,
}

/// The lines of a plugin that were not logged.
#[derive(Debug, Default)]
struct Unlogged {
    lines: u64,
    told: Reminder,
}

/// What is the same in all calls of one loaded component.
#[derive(Debug)]
pub(super) struct Identity {
    /// The plugin's name.
    pub(super) name: String,
    /// The first 12 hex digits of its digest.
    pub(super) digest: String,
    /// The same, as it stands in the cost of a call.
    pub(super) short: ShortDigest,
    pub(super) grants: Grants,
    told: Mutex<BTreeSet<String>>,
    /// How much it may still write to the log, all its calls together.
    log: Bucket,
    unlogged: Mutex<Unlogged>,
    /// What was refused since it was last asked, where it goes into reports and not into the log.
    refused: Option<Mutex<Vec<Refused>>>,
}

impl Identity {
    pub(super) fn new(name: String, digest: String, grants: Grants) -> Self {
        let (log, unlogged) = (Bucket::new(LOG_BYTES_PER_SECOND), Mutex::default());
        let short = digest.parse().unwrap_or_default();
        Self { name, digest, short, grants, told: Mutex::default(), log, unlogged, refused: None }
    }

    /// Whether a line of this many bytes may go to the log. Dropped lines are counted, and reported now and then.
    fn may_log(&self, bytes: usize) -> bool {
        let now = Instant::now();
        if self.log.take(u32::try_from(bytes.max(LEAST_LINE)).unwrap_or(u32::MAX), now) {
            return true;
        }
        let mut unlogged = self.unlogged.lock().unwrap_or_else(PoisonError::into_inner);
        unlogged.lines += 1;
        if unlogged.told.is_due(now.into()) {
            let kib = LOG_BYTES_PER_SECOND >> 10;
            tracing::warn!(
                target: log::TARGET, plugin = self.name, digest = self.digest,
                "{} lines dropped so far: the plugin writes more than {kib} KiB a second", unlogged.lines
            );
        }
        false
    }

    /// Of a component whose log lines and refusals go into the reports of its calls, and not into the log.
    pub(super) fn reporting(self) -> Self {
        Self { refused: Some(Mutex::default()), ..self }
    }

    pub(super) fn is_reporting(&self) -> bool {
        self.refused.is_some()
    }

    /// What was refused since the last question, for a report.
    pub(super) fn take_refused(&self) -> Vec<Refused> {
        let take = |refused: &Mutex<Vec<Refused>>| std::mem::take(&mut *refused.lock().unwrap_or_else(PoisonError::into_inner));
        self.refused.as_ref().map(take).unwrap_or_default()
    }

    /// Logs that something was refused, once for each thing.
    pub(super) fn refused(&self, what: &str, advice: &str) {
        const MOST: usize = 64;
        // A guest may ask for what is named like a secret of its own. Before it is cut: half a secret is not found.
        let told = |text: &str| keepable(&self.grants.hide(text), MAX_REFUSED_BYTES);
        let (what, advice) = (told(what), told(advice));
        if let Some(refused) = &self.refused {
            let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
            if refused.len() < MOST {
                refused.push(Refused { what, advice });
            }
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < MOST && !told.contains(&what) && self.may_log(what.len() + advice.len()) {
            tracing::warn!(target: log::TARGET, plugin = self.name, digest = self.digest, "refused {what}: {advice}");
            told.insert(what);
        }
    }
}

/// What a store carries. What most guests never touch is made when they do.
pub(super) struct HostState {
    pub(super) identity: Arc<Identity>,
    /// The event of the call; `None` for `describe`.
    pub(super) event: Option<Arc<Event>>,
    /// When the call is cut off.
    ends: Instant,
    /// What is committed with the answer.
    effects: Option<Box<Effects>>,
    seen: Seen,
    pub(super) limiter: Limiter,
    pub(super) meter: Meter,
    /// What it was given last: what is missing from it was used.
    pub(super) fuel: u64,
    lines: Option<SharedLines>,
    wasi: Option<Box<WasiCtx>>,
    table: ResourceTable,
    /// What was written to streams and is not counted yet; `None` without one.
    written: Option<Written>,
    http: WasiHttpCtx,
    requests: Requests,
}

impl HostState {
    pub(super) fn new(share: &Arc<PluginShare>, identity: &Arc<Identity>, limits: &Limits) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(MAX_RESOURCES);
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(16 << 10);
        Self {
            identity: identity.clone(),
            event: None,
            ends: Instant::now(),
            effects: None,
            seen: Seen::default(),
            limiter: Limiter::new(limits.memory.as_usize(), share),
            meter: Meter::new(limits.host_calls),
            fuel: 0,
            lines: None,
            wasi: None,
            table,
            written: None,
            http,
            requests: Requests::new(identity.clone()),
        }
    }

    /// Counts a call of the host from where it cannot be refused. A limit that it exceeds ends the guest when the call returns.
    fn count(&mut self) {
        let _ = self.meter.charge(0);
    }

    /// Counts what the guest has written to streams.
    pub(super) fn count_written(&mut self) {
        if let Some(written) = &self.written {
            self.meter.keep_written(written.take());
        }
    }

    /// Whether the instance may wait for another event with all that the host keeps for it behind its handles.
    pub(super) fn may_wait(&mut self) -> bool {
        let (mut handles, mut holds) = (0, false);
        for behind in self.table.iter_mut() {
            handles += 1;
            holds = holds || holds_bytes(behind);
        }
        if !holds {
            self.meter.forget_kept();
        }
        handles <= MAX_LEFT_RESOURCES && self.meter.kept() <= MAX_LEFT_BYTES
    }

    /// Begins a call that is cut off at `ends`: budgets are full again.
    pub(super) fn begin(&mut self, event: Option<Arc<Event>>, ends: Instant) {
        self.requests.outgoing.begin(event.clone());
        (self.event, self.ends) = (event, ends);
        self.effects = None;
        self.seen = Seen::default();
        self.meter.begin(ends);
        self.limiter.begin();
        if let Some(lines) = &self.lines {
            lines.lock().unwrap_or_else(PoisonError::into_inner).begin(self.event.as_ref().map(|event| event.id()));
        }
    }

    /// Begins a call for several events.
    pub(super) fn begin_many(&mut self, events: Vec<Arc<Event>>, ends: Instant) {
        self.begin(None, ends);
        self.requests.outgoing.begin_many(events);
    }

    /// What is to be committed with the outcome of the call: `None` when there is nothing, or the outcome is no answer.
    pub(super) fn take_effects(&mut self, outcome: &Outcome) -> Option<Box<Effects>> {
        // An instance that is kept holds on to nothing of the call.
        (self.event, self.seen) = (None, Seen::default());
        let effects = self.effects.take().filter(|effects| outcome.is_answer() && !effects.is_empty())?;
        if let Some(emit) = self.identity.grants.emit.as_ref().filter(|_| !effects.emitted.is_empty()) {
            emit.spend(&effects.emitted);
        }
        Some(effects)
    }

    fn effects(&mut self) -> &mut Effects {
        self.effects.get_or_insert_default()
    }

    /// The event of the call, when effects can be committed with its outcome.
    fn stored_event(&self, what: &str) -> Result<Arc<Event>, Refusal> {
        let Some(event) = &self.event else {
            return Err(refusal(RefusalKind::Invalid, format!("{what} can be used in on-event only")));
        };
        if event.sequence() == 0 {
            let message =
                format!("{what} needs an event that is stored, and the event {} is excluded from the store", event.id());
            return Err(refusal(RefusalKind::Invalid, message));
        }
        Ok(event.clone())
    }

    /// Ends a call: unfinished lines are written, dropped ones counted in the log. Returns the last lines of stderr.
    pub(super) fn end(&mut self) -> Option<String> {
        let lines = self.lines.as_ref()?;
        lines.lock().unwrap_or_else(PoisonError::into_inner).end()
    }

    /// The log lines of a call that has ended, and how many were dropped, where they go into a report.
    pub(super) fn take_lines(&mut self) -> (Vec<LogLine>, u32) {
        let take = |lines: &SharedLines| lines.lock().unwrap_or_else(PoisonError::into_inner).take_reported();
        self.lines.as_ref().map(take).unwrap_or_default()
    }

    /// The log lines of the call, made with the first.
    fn lines(&mut self) -> &SharedLines {
        let Self { lines, identity, event, .. } = self;
        let event = event.as_ref().map(|event| event.id());
        lines.get_or_insert_with(|| Arc::new(Mutex::new(LogLines::new(identity.clone(), event))))
    }
}

/// The types of the contract are an interface without functions.
impl super::bindings::outbox::listener::types::Host for HostState {}

/// The event that something is done for, where the guest says it among the attributes.
///
/// # Errors
/// The first attribute that this host does not know.
fn event_of(attributes: Vec<(String, String)>) -> Result<Option<String>, String> {
    let mut event = None;
    for (name, value) in attributes {
        if name != EVENT_ID {
            return Err(name);
        }
        event = Some(value);
    }
    Ok(event)
}

fn refusal(kind: RefusalKind, message: String) -> Refusal {
    Refusal { kind, message }
}

fn not_granted(message: String) -> Refusal {
    refusal(RefusalKind::NotGranted, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::logged;

    #[test]
    fn what_a_plugin_writes_to_the_log_is_bounded_over_all_its_calls() {
        let identity = Identity::new("chatty".to_owned(), "0123456789ab".to_owned(), Grants::default());
        let line = 8 << 10;
        let logged = (0..10_000).filter(|_| identity.may_log(line)).count();
        // Ten seconds' worth at once, and what comes in while the loop runs.
        assert!((1_280..2_560).contains(&logged), "{logged}");
        assert_eq!(identity.unlogged.lock().unwrap().lines, 10_000 - logged as u64);
    }

    #[test]
    fn neither_what_was_refused_nor_the_advice_shows_a_secret() {
        let secrets = BTreeMap::from([("token".to_owned(), "s3cr3t-t0ken".to_owned())]).into();
        let identity = Identity::new("asks".to_owned(), "0123456789ab".to_owned(), Grants { secrets, ..Grants::default() });
        let identity = identity.reporting();
        identity.refused("a message to the sink `s3cr3t-t0ken`", "add `\"s3cr3t-t0ken\"` to `publish.sinks`");
        let refused = identity.take_refused();
        assert_eq!(
            (refused[0].what.as_str(), refused[0].advice.as_str()),
            ("a message to the sink `***`", "add `\"***\"` to `publish.sinks`")
        );
    }

    #[tokio::test]
    async fn what_was_refused_is_told_in_bounds_and_counts_as_what_the_plugin_writes() {
        let identity = Identity::new("asks".to_owned(), "0123456789ab".to_owned(), Grants::default());
        let ((), lines) = logged(async {
            for number in 0..10 {
                identity.refused(&format!("{number} {}", "x".repeat(1 << 20)), &"y".repeat(1 << 20));
            }
            identity.log.spend(u32::MAX, Instant::now());
            identity.refused("one more", "of which nothing is said");
        })
        .await;
        let told: Vec<_> = lines.iter().filter(|line| line.contains("refused")).collect();
        assert_eq!(told.len(), 10, "{:?}", lines.last());
        assert!(told.iter().all(|line| line.len() < 3_000), "{}", told[0].len());
        assert!(identity.told.lock().unwrap().iter().all(|what| what.len() < 1_200));
    }
}
