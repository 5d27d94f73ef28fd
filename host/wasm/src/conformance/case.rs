//! One case of a plugin's author: an event, and what must come of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use outbox_event::time::Timestamp;
use outbox_event::wording::{json_fault, toml_fault};
use outbox_event::{Envelope, Event, EventId};
use outbox_sink::Sinks;
use serde::Deserialize;
use serde_json::Value;

use super::expect::Expect;
use super::replies::{HttpReply, PublishReply, Replies, Script, ScriptedSink};
use super::report::{CaseReport, Finding, Verdict};
use super::subject::{OCCURRED_AT, Subject};
use super::written::{WrittenBytes, base64};
use crate::{Call, MemoryState, PluginHost};

/// Their id, unless they say otherwise.
const EVENT_ID: &str = "01KDVQ2C000000000000000000";

/// One event, the settings and the state that the plugin has then, and what must come of it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// The file that it stands in; `None` for one that is in no file.
    pub file: Option<PathBuf>,
    event: Arc<Event>,
    deferrals: u32,
    max_attempts: Option<u32>,
    config: Option<BTreeMap<String, String>>,
    secrets: Option<BTreeMap<String, String>>,
    state: BTreeMap<String, Bytes>,
    replies: Replies,
    expect: Expect,
}

/// What a file of cases says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenCases {
    case: Vec<WrittenCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCase {
    name: String,
    event: WrittenEvent,
    /// In place of the manifest's.
    config: Option<BTreeMap<String, String>>,
    secrets: Option<BTreeMap<String, String>>,
    #[serde(default)]
    state: BTreeMap<String, WrittenBytes>,
    /// What comes of its requests.
    #[serde(default)]
    http: Vec<HttpReply>,
    /// What comes of its messages.
    #[serde(default)]
    publish: Vec<PublishReply>,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEvent {
    event_type: String,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    tenant_id: Option<String>,
    event_id: Option<EventId>,
    occurred_at: Option<Timestamp>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    content_type: Option<String>,
    payload: Option<Value>,
    payload_text: Option<String>,
    payload_base64: Option<String>,
    payload_file: Option<PathBuf>,
    #[serde(default = "one")]
    attempt: u32,
    #[serde(default)]
    deferrals: u32,
    max_attempts: Option<u32>,
    #[serde(default = "one")]
    sequence: u64,
}

fn one<T: From<u8>>() -> T {
    T::from(1)
}

impl Case {
    /// Reads cases from TOML, `[[case]]` for each. A `payload_file` is looked for where this process runs.
    ///
    /// # Errors
    /// What is wrong, where, and what is allowed.
    pub fn from_toml(text: &str) -> Result<Vec<Self>, String> {
        let written = toml::from_str(text).map_err(|error| toml_fault::<WrittenCases>(text, &error))?;
        Self::written(written, Path::new("."))
    }

    /// Reads cases from JSON, `{"case": […]}`. A `payload_file` is looked for where this process runs.
    ///
    /// # Errors
    /// What is wrong, where, and what is allowed.
    pub fn from_json(text: &str) -> Result<Vec<Self>, String> {
        let written = serde_json::from_str(text).map_err(|error| json_fault::<WrittenCases>(text.as_bytes(), &error))?;
        Self::written(written, Path::new("."))
    }

    /// The cases as they were written, with the files that they name read from `dir`.
    pub(super) fn written(written: WrittenCases, dir: &Path) -> Result<Vec<Self>, String> {
        let of = |(index, case): (usize, WrittenCase)| {
            let named = if case.name.is_empty() { format!("case {}", index + 1) } else { format!("the case {:?}", case.name) };
            Self::of(case, dir).map_err(|reason| format!("{named}: {reason}"))
        };
        written.case.into_iter().enumerate().map(of).collect()
    }

    fn of(written: WrittenCase, dir: &Path) -> Result<Self, String> {
        let WrittenCase { name, event, config, secrets, state, http, publish, expect } = written;
        if name.is_empty() {
            return Err("its name is empty".to_owned());
        }
        expect.check()?;
        let (deferrals, max_attempts) = (event.deferrals, event.max_attempts);
        let event = Arc::new(event.event(dir)?);
        let state = state.into_iter().map(|(key, value)| (key, value.bytes())).collect();
        let replies = Replies { http, publish };
        Ok(Self { name, file: None, event, deferrals, max_attempts, config, secrets, state, replies, expect })
    }

    /// The event as the rules try it.
    pub(super) fn subject(&self, host: &Arc<PluginHost>) -> Subject {
        let event = Event::clone(&self.event);
        let what = format!("the event of {:?}", self.name);
        let (deferrals, max_attempts) = (self.deferrals, self.max_attempts);
        let subject = |host| Subject { deferrals, max_attempts, ..Subject::new(what, host, event) };
        // Where the case says nothing of the outside, the rules let everything succeed.
        if !self.replies.is_empty() {
            let script = Script::of(&self.replies);
            return Subject { script: Some(script.clone()), ..subject(Arc::new(scripted(&self.host(host), &script))) };
        }
        // One instance meets all events that have nothing of their own.
        let plain = self.config.is_none() && self.secrets.is_none() && self.state.is_empty();
        subject(if plain { host.clone() } else { Arc::new(self.host(host)) })
    }

    /// The plugin with the case's settings and state.
    fn host(&self, host: &PluginHost) -> PluginHost {
        let host = host.with_state(Arc::new(MemoryState::of(self.state.clone())));
        if self.config.is_none() && self.secrets.is_none() {
            return host;
        }
        host.with_settings(self.config.clone(), self.secrets.clone())
    }

    /// Calls the plugin once, and compares.
    pub(super) async fn check(&self, host: &PluginHost) -> CaseReport {
        let started = Instant::now();
        let call = Call { deferrals: self.deferrals, max_attempts: self.max_attempts, ..Call::from(self.event.clone()) };
        let own = scripted(&self.host(host), &Script::of(&self.replies));
        let report = own.call(call).await;
        let mut findings = self.expect.compare(&report, &self.state);
        findings.extend(self.replies.missing(&report.outside));
        if let (false, Some(refused)) = (findings.is_empty(), report.refused.first()) {
            findings.push(Finding::new("it was refused", format!("{}: {}", refused.what, refused.advice)));
        }
        if !findings.is_empty() && !host.routes().contains(self.event.route()) {
            let routes: Vec<String> = host.routes().iter().map(ToString::to_string).collect();
            let found = format!("{}, which the plugin does not answer; it answers {}", self.event.route(), routes.join(", "));
            findings.push(Finding::new("its event is of the route", found));
        }
        let findings: Vec<Finding> = findings.into_iter().map(|finding| finding.fit_to_show(&own)).collect();
        CaseReport {
            name: self.name.clone(),
            file: self.file.as_ref().map(|file| file.display().to_string()),
            verdict: Verdict::of(&findings),
            findings,
            took: started.elapsed(),
        }
    }
}

/// The plugin with the replies of a case in place of endpoints and brokers.
fn scripted(host: &PluginHost, script: &Arc<Script>) -> PluginHost {
    let granted = host.manifest().publish.iter().flat_map(|publish| &publish.sinks);
    let sink = |name: &String| Arc::new(ScriptedSink { script: script.clone(), name: name.clone() });
    let sinks = granted.fold(Sinks::default(), |sinks, name| sinks.with(name, sink(name)));
    host.with_http(script.clone()).with_sinks(sinks)
}

impl WrittenEvent {
    fn event(self, dir: &Path) -> Result<Event, String> {
        let told =
            |error: outbox_event::EnvelopeError| format!("its event is not valid: {}", outbox_event::chain::chain(&error));
        let id = self.event_id.map_or_else(|| EVENT_ID.parse().map_err(|error| format!("{error}")), Ok)?;
        let occurred_at = self.occurred_at.unwrap_or(Timestamp::from_micros(OCCURRED_AT));
        let mut builder = Envelope::new(self.event_type).id(id).occurred_at(occurred_at).headers(self.headers);
        if let Some(aggregate_type) = self.aggregate_type {
            builder = builder.aggregate_type(aggregate_type);
        }
        if let Some(aggregate_id) = self.aggregate_id {
            builder = builder.aggregate_id(aggregate_id);
        }
        if let Some(tenant_id) = self.tenant_id {
            builder = builder.tenant(tenant_id);
        }
        let payload = match (self.payload, self.payload_text, self.payload_base64, self.payload_file) {
            (Some(json), None, None, None) => json.to_string().into(),
            (None, Some(text), None, None) => Bytes::from(text),
            (None, None, Some(text), None) => base64(&text)?,
            (None, None, None, Some(file)) => read(&dir.join(file))?,
            (None, None, None, None) => Bytes::from_static(b"null"),
            _ => return Err("its event needs at most one of payload, payload_text, payload_base64, payload_file".to_owned()),
        };
        let content_type = self.content_type.as_deref().unwrap_or("application/json");
        let envelope = builder.bytes(content_type, payload).map_err(told)?;
        Ok(Event::of(envelope).sequence(self.sequence).attempt(self.attempt).build())
    }
}

fn read(file: &Path) -> Result<Bytes, String> {
    let told = |error: std::io::Error| format!("its payload_file {} cannot be read: {error}", file.display());
    std::fs::read(file).map(Bytes::from).map_err(told)
}
