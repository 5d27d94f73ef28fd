//! What the rules share: the plugin, the events that it is tried with, and what has been seen so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use outbox_event::Outcome;

use super::case::Case;
use super::subject::{Answered, Subject, ordinary};
use crate::{Call, CallReport, MemoryState, PluginHost};

/// A plugin under test.
pub(super) struct Ground {
    /// With an empty state.
    pub(super) host: Arc<PluginHost>,
    pub(super) subjects: Vec<Subject>,
    /// The subjects that were answered, once the first rule has asked all of them.
    pub(super) answered: Vec<Answered>,
    /// What was asked for and not granted, each with the advice and the first subject that asked.
    pub(super) refused: BTreeMap<String, (String, Subject)>,
    calls: u64,
}

impl Ground {
    pub(super) fn new(host: &PluginHost, cases: &[Case]) -> Self {
        let host = Arc::new(host.with_state(Arc::new(MemoryState::default())));
        let mut subjects: Vec<Subject> = host.routes().iter().flat_map(|route| ordinary(&host, route)).collect();
        subjects.extend(cases.iter().map(|case| case.subject(&host)));
        Self { host, subjects, answered: Vec::new(), refused: BTreeMap::new(), calls: 0 }
    }

    /// How often the plugin was called.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// Calls the plugin with a subject, in a fresh instance.
    pub(super) async fn call(&mut self, subject: &Subject) -> CallReport {
        self.call_with(subject, |call| call).await
    }

    /// Calls the plugin with a subject, otherwise than in a fresh instance or undisturbed.
    pub(super) async fn call_with(&mut self, subject: &Subject, how: impl FnOnce(Call) -> Call) -> CallReport {
        self.begin(subject);
        let call =
            Call { deferrals: subject.deferrals, max_attempts: subject.max_attempts, ..Call::from(subject.event.clone()) };
        let report = subject.host.call(how(call)).await;
        for refused in &report.refused {
            self.refused.entry(refused.what.clone()).or_insert_with(|| (refused.advice.clone(), subject.clone()));
        }
        report
    }

    /// Calls the plugin where it is granted nothing; what it is refused there tells nothing of its manifest.
    pub(super) async fn call_without_grants(&mut self, subject: &Subject) -> CallReport {
        self.begin(subject);
        subject.host.without_grants().call(subject.event.clone()).await
    }

    fn begin(&mut self, subject: &Subject) {
        self.calls += 1;
        if let Some(script) = &subject.script {
            script.begin();
        }
    }

    /// One answered subject of each route.
    pub(super) fn of_each_route(&self) -> Vec<Answered> {
        let mut seen = Vec::new();
        let mut firsts = self.answered.clone();
        firsts.retain(|answered| {
            let route = answered.subject.route().clone();
            let is_new = !seen.contains(&route);
            seen.push(route);
            is_new
        });
        firsts
    }
}

/// How a call broke off; `None` when it answered, with whatever.
pub(super) fn breakage(report: &CallReport) -> Option<String> {
    match &report.outcome {
        Outcome::Failed(failure) if failure.cause.is_breakage() => Some(failure.to_string()),
        Outcome::Busy { reason, .. } => Some(reason.to_string()),
        _ => None,
    }
}
