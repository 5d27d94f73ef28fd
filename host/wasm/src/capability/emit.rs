//! The `emit` interface: follow-up events, kept until the answer is committed.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use outbox_event::text::keepable;
use outbox_event::time::system_clock;
use outbox_event::{Envelope, EnvelopeError, Event, EventId, TRACEPARENT};
use outbox_listener::Reminder;

use super::log::TARGET;
use super::{HostState, Identity, not_granted, refusal};
use crate::bindings::outbox::listener::emit::{Envelope as Given, Host};
use crate::bindings::outbox::listener::types::{Refusal, RefusalKind};
use crate::capability::bucket::Bucket;
use crate::limits::pairs_bytes;
use crate::manifest::Emit;
use crate::manifest::advice::at_the_top;

/// The most follow-up events of one call.
const MOST: usize = 100;
/// The most headers of one.
const MAX_HEADERS: usize = 100;
/// The longest chain of events of which each was emitted for the one before. A loop between plugins ends here.
const MAX_HOPS: u32 = 32;
/// The header in which the chain is counted.
const HOPS: &str = "outbox-hops";

/// What a plugin may emit, and how much it has.
#[derive(Debug)]
pub(crate) struct EmitGrant {
    pub(crate) emit: Emit,
    events: Bucket,
    bytes: Bucket,
    /// Whether the log has just said that the rate holds events up.
    told: Mutex<Reminder>,
}

impl EmitGrant {
    pub(crate) fn new(emit: Emit) -> Self {
        let bytes = u32::try_from(emit.bytes_per_second.0).unwrap_or(u32::MAX);
        Self { events: Bucket::new(emit.per_second), bytes: Bucket::new(bytes), emit, told: Mutex::default() }
    }

    /// Notes the follow-up events of an answer. They are not refused: no call is made for nothing. The next ones wait.
    pub(super) fn spend(&self, emitted: &[Envelope]) {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let headers =
            |envelope: &Envelope| envelope.headers().iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        let bytes = emitted.iter().map(|envelope| envelope.payload_bytes().len() + headers(envelope)).sum();
        let now = Instant::now();
        self.events.spend(count(emitted.len()), now);
        self.bytes.spend(count(bytes), now);
    }

    /// How long the plugin has to wait before its next call, since it has emitted more than it may; `None` when it has not.
    pub(crate) fn rest(&self, identity: &Identity) -> Option<Duration> {
        let now = Instant::now();
        let (of_events, of_bytes) = (self.events.rest(now), self.bytes.rest(now));
        let rest = of_events.max(of_bytes)?;
        if self.told.lock().unwrap_or_else(PoisonError::into_inner).is_due(now.into()) {
            let plugin = &identity.name;
            let used_up = if rest == of_events.unwrap_or_default() {
                format!("emit.per_second of {}", self.emit.per_second)
            } else {
                format!("emit.bytes_per_second of {}", self.emit.bytes_per_second)
            };
            tracing::warn!(
                target: TARGET, plugin, digest = identity.digest,
                "the plugin has used up its {used_up}; its events wait and lose no attempt; to allow more, raise it in {plugin}.toml"
            );
        }
        Some(rest)
    }
}

impl Host for HostState {
    fn emit(&mut self, given: Given) -> wasmtime::Result<Result<String, Refusal>> {
        self.meter.charge(size(&given))?;
        Ok(self.accept(given).inspect_err(|refusal| {
            if refusal.kind == RefusalKind::NotGranted {
                self.identity.refused("an event to emit", &refusal.message);
            }
        }))
    }
}

impl HostState {
    fn accept(&mut self, given: Given) -> Result<String, Refusal> {
        let name = self.identity.name.clone();
        let Some(grant) = self.identity.grants.emit.clone() else {
            let advice = at_the_top("emit = true", &name);
            return Err(not_granted(format!("emitting events is not granted to the plugin {name}; {advice}")));
        };
        let event = self.stored_event("emit")?;
        if self.effects().emitted.len() >= MOST {
            return Err(refusal(RefusalKind::OverLimit, format!("one call may emit at most {MOST} events")));
        }
        let hops = hops(&event).saturating_add(1);
        if hops > MAX_HOPS {
            let message = format!(
                "the event {} ends a chain of {MAX_HOPS} events, each emitted for the one before; is it a loop?",
                event.id()
            );
            return Err(refusal(RefusalKind::OverLimit, message));
        }
        let has_id = given.id.is_some();
        let envelope = envelope(&event, given, hops).map_err(|error| {
            let why = keepable(&outbox_event::chain::chain(&error), 500);
            refusal(RefusalKind::Invalid, format!("the event to emit is not valid: {why}"))
        })?;
        let missing = |what: String, line: &str| {
            Err(not_granted(format!("{what} is not granted to the plugin {name}; {line} in {name}.toml")))
        };
        let route = envelope.route();
        if !grant.emit.allows(route) {
            return missing(format!("emitting {route}"), &format!("add `\"{route}\"` to emit.routes"));
        }
        if !grant.emit.other_tenants && envelope.tenant_id() != event.tenant_id() {
            return missing(
                "emitting for another tenant than the event's own".to_owned(),
                "add `other_tenants = true` to emit",
            );
        }
        if has_id && !grant.emit.ids {
            return missing("choosing the id of an event".to_owned(), "add `ids = true` to emit");
        }
        let id = envelope.id().to_string();
        self.effects().emitted.push(envelope);
        Ok(id)
    }
}

fn size(given: &Given) -> usize {
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let names = given.route.aggregate_type.len() + given.route.event_type.len() + given.content_type.len();
    let ids = optional(&given.id) + optional(&given.aggregate_id) + optional(&given.tenant_id);
    given.payload.len() + names + ids + pairs_bytes(&given.headers) + pairs_bytes(&given.attributes)
}

/// Why a follow-up event is no valid event.
#[derive(Debug, thiserror::Error)]
enum Invalid {
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    #[error("its id {0}")]
    Id(String),
    #[error("it has the attribute `{0}`, which this host does not know")]
    Attribute(String),
    #[error("expires-after-ms is {expires_ms} and deliver-after-ms is {delay_ms}: the event would expire before its delivery")]
    ExpiresBefore { expires_ms: u32, delay_ms: u32 },
    #[error("it has {0} headers; at most {MAX_HEADERS} are allowed")]
    Headers(usize),
    #[error("its content type must have 1 to 255 visible ASCII characters")]
    ContentType,
}

/// How many events led to this one by emitting.
fn hops(event: &Event) -> u32 {
    event.headers().get(HOPS).and_then(|hops| hops.parse().ok()).unwrap_or(0)
}

fn envelope(event: &Event, given: Given, hops: u32) -> Result<Envelope, Invalid> {
    if given.headers.len() > MAX_HEADERS {
        return Err(Invalid::Headers(given.headers.len()));
    }
    if let Some((attribute, _)) = given.attributes.first() {
        return Err(Invalid::Attribute(keepable(attribute, 100)));
    }
    let delay_ms = given.deliver_after_ms.unwrap_or(0);
    let expires_ms = given.expires_after_ms.filter(|expires_ms| *expires_ms > 0);
    if let Some(expires_ms) = expires_ms.filter(|expires_ms| *expires_ms <= delay_ms) {
        return Err(Invalid::ExpiresBefore { expires_ms, delay_ms });
    }
    let content_type = given.content_type;
    if content_type.is_empty() || content_type.len() > 255 || !content_type.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Err(Invalid::ContentType);
    }
    let mut builder = Envelope::new(given.route.event_type).aggregate_type(given.route.aggregate_type);
    if let Some(id) = given.id {
        builder = builder.id(id.parse::<EventId>().map_err(|error| Invalid::Id(error.to_string()))?);
    }
    if let Some(aggregate_id) = given.aggregate_id {
        builder = builder.aggregate_id(aggregate_id);
    }
    if let Some(tenant) = given.tenant_id.or_else(|| event.tenant_id().map(str::to_owned)) {
        builder = builder.tenant(tenant);
    }
    if delay_ms > 0 {
        builder = builder.deliver_after(Duration::from_millis(u64::from(delay_ms)));
    }
    if let Some(expires_ms) = expires_ms {
        builder = builder.expires_at(system_clock().now().plus(Duration::from_millis(u64::from(expires_ms))));
    }
    // The trace goes on, unless the guest says otherwise.
    if let Some(trace) = event.traceparent() {
        builder = builder.header(TRACEPARENT, trace);
    }
    // Last, so that no guest says otherwise.
    let builder = builder.headers(given.headers).header(HOPS, hops.to_string());
    Ok(if content_type == "application/json" {
        let text = String::from_utf8(given.payload).unwrap_or_default();
        builder.json_text(text)?
    } else {
        builder.bytes(content_type, Bytes::from(given.payload))?
    })
}
