//! The rules that every listener keeps, each with the name by which it is known, its promise, and what to do about it.

mod headroom;
mod input;
mod outside;
mod sameness;

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;

use super::ground::{Ground, breakage};
use super::report::{Finding, RuleReport, Verdict};
use super::subject::{Answered, Subject};
use crate::PluginHost;

/// One rule.
struct Rule {
    id: &'static str,
    promise: &'static str,
    advice: &'static str,
    check: for<'g> fn(&'g mut Ground) -> BoxFuture<'g, Checked>,
}

/// What looking at one rule brought.
#[derive(Default)]
struct Checked {
    findings: Vec<Broken>,
    /// What it was measured at.
    note: Option<String>,
    /// Why it could not be tried.
    skipped: Option<String>,
}

/// Where a rule is broken.
struct Broken {
    finding: Finding,
    /// The plugin as it was called there: with the secrets that the finding may hold.
    host: Arc<PluginHost>,
}

impl Subject {
    /// Says that a rule is broken by a call with this subject.
    fn breaks(&self, finding: Finding) -> Broken {
        Broken { finding, host: self.host.clone() }
    }
}

impl Checked {
    fn skipped(why: impl Into<String>) -> Self {
        Self { skipped: Some(why.into()), ..Self::default() }
    }
}

impl From<Vec<Broken>> for Checked {
    fn from(findings: Vec<Broken>) -> Self {
        Self { findings, ..Self::default() }
    }
}

/// In the order in which they are tried. The first finds the events that can be used by the others; `order` needs
/// `same-twice`, and `grants` looks at all calls of the others.
const RULES: [Rule; 17] = [
    Rule {
        id: "answers",
        promise: "answers an event of every declared route",
        advice: "Every event of a route that `describe` declares must come to an answer. An event that it cannot use is a failure \
                 or `dead`, never a panic: the host stops the instance, counts an attempt, and tries again what will break again.",
        check: |ground| Box::pin(answers(ground)),
    },
    Rule {
        id: "empty-payload",
        promise: "answers an event without a payload",
        advice: "Look at the payload's length before its first byte. What cannot be read is unrecoverable, or `dead`.",
        check: |ground| Box::pin(input::empty_payload(ground)),
    },
    Rule {
        id: "large-payload",
        promise: "answers an event of 1 MiB, the largest that a writer can write",
        advice: "A writer may write 1 MiB. Refuse what is too large for you before you read it, by its length; or give the plugin \
                 more in [limits] of its manifest.",
        check: |ground| Box::pin(input::large_payload(ground)),
    },
    Rule {
        id: "nested-payload",
        promise: "answers an event whose JSON is nested 1,000 deep",
        advice: "A parser that calls itself for each bracket runs out of stack (512 KiB). Bound the depth: most parsers have a \
                 setting for it.",
        check: |ground| Box::pin(input::nested_payload(ground)),
    },
    Rule {
        id: "invalid-text",
        promise: "answers an event whose payload is not text, though its content type is JSON",
        advice: "The content type is what the writer said. Read the payload as text with an error, not with a panic.",
        check: |ground| Box::pin(input::invalid_text(ground)),
    },
    Rule {
        id: "unknown-type",
        promise: "answers an event of a type that it did not declare",
        advice: "End the match over event types with a failure: routes change from one version to the next while events are \
                 under way.",
        check: |ground| Box::pin(input::unknown_type(ground)),
    },
    Rule {
        id: "many-headers",
        promise: "answers an event with 1,000 headers",
        advice: "Do not keep headers in a table of a fixed size.",
        check: |ground| Box::pin(input::many_headers(ground)),
    },
    Rule {
        id: "last-attempt",
        promise: "answers an event on its attempt 4,294,967,295",
        advice: "What is made of the attempt's number (a delay that doubles, an index) must not overflow.",
        check: |ground| Box::pin(input::last_attempt(ground)),
    },
    Rule {
        id: "same-twice",
        promise: "answers the same event in the same way, in a fresh and in a kept instance",
        advice: "An event may be delivered twice, and its second delivery meets another instance or the same. Its answer and its \
                 effects must come from the event, the settings and the state: not from the clock, random numbers, or what an \
                 earlier call left in memory. What must be remembered belongs in `state`.",
        check: |ground| Box::pin(sameness::same_twice(ground)),
    },
    Rule {
        id: "order",
        promise: "answers an event in the same way whatever came before it",
        advice: "A kept instance meets events in any order, and loses its memory at any time. Do not carry anything from one call \
                 to the next in a variable; what must be remembered belongs in `state`.",
        check: |ground| Box::pin(sameness::order(ground)),
    },
    Rule {
        id: "fuel-headroom",
        promise: "uses at most a quarter of its fuel for an event of up to 16 KiB",
        advice: "An event that costs four times the usual must not break. Do less for each event, or raise limits.fuel in the \
                 manifest that you ship.",
        check: |ground| Box::pin(headroom::fuel(ground)),
    },
    Rule {
        id: "memory-headroom",
        promise: "uses at most a quarter of its memory for an event of up to 16 KiB",
        advice: "An event that needs four times the usual must not break. Keep less in memory, or raise limits.memory in the \
                 manifest that you ship.",
        check: |ground| Box::pin(headroom::memory(ground)),
    },
    Rule {
        id: "time-headroom",
        promise: "takes at most a quarter of its deadline for an event of up to 16 KiB",
        advice: "A busy machine takes several times as long as this one. Wait less, or raise limits.deadline in the manifest that \
                 you ship.",
        check: |ground| Box::pin(headroom::time(ground)),
    },
    Rule {
        id: "host-call-refused",
        promise: "answers when it is refused what it asks the host for",
        advice: "An operator may grant less than you ask for. Every call of the host that can be refused returns an error: make a \
                 failure of it, with the error's text, which says what to grant.",
        check: |ground| Box::pin(outside::refused(ground)),
    },
    Rule {
        id: "host-call-fails",
        promise: "answers when a call of the host fails",
        advice: "A database or a broker that is away is ordinary. Make a retryable failure of the error; the host tries again.",
        check: |ground| Box::pin(outside::fails(ground)),
    },
    Rule {
        id: "host-call-cut",
        promise: "answers the delivery that follows one which was cut off in a call of the host",
        advice: "A call may be cut off wherever it waits, and nothing that it emitted or kept has happened then. The next delivery \
                 begins at the beginning: do not take a later attempt for one that knows what an earlier one did.",
        check: |ground| Box::pin(outside::cut(ground)),
    },
    Rule {
        id: "grants",
        promise: "uses no more than its manifest grants",
        advice: "Ship a manifest with the lines that are named here, or do without. An operator who reads the manifest must see \
                 what the plugin does.",
        check: |ground| Box::pin(grants(ground)),
    },
];

/// Tries all rules.
pub(super) async fn check(ground: &mut Ground) -> Vec<RuleReport> {
    let mut reports: Vec<RuleReport> = Vec::with_capacity(RULES.len());
    for Rule { id, promise, advice, check } in &RULES {
        let failed = |id: &str| reports.iter().any(|rule| rule.id == id && rule.verdict == Verdict::Failed);
        let started = Instant::now();
        let checked = if *id == "order" && failed("same-twice") {
            Checked::skipped("`same-twice` is broken: one event alone does not come to the same answer")
        } else if *id != "answers" && *id != "grants" && ground.answered.is_empty() {
            Checked::skipped("`answers` is broken for every event")
        } else {
            check(ground).await
        };
        let Checked { findings, note, skipped } = checked;
        let findings: Vec<Finding> = findings.into_iter().map(|Broken { finding, host }| finding.fit_to_show(&host)).collect();
        let verdict = if skipped.is_some() { Verdict::Skipped } else { Verdict::of(&findings) };
        let advice = (verdict == Verdict::Failed).then_some(*advice);
        reports.push(RuleReport { id, promise, verdict, note: skipped.or(note), findings, advice, took: started.elapsed() });
    }
    reports
}

/// Asks every subject, and keeps those that were answered for the other rules.
async fn answers(ground: &mut Ground) -> Checked {
    let mut findings = Vec::new();
    for subject in ground.subjects.clone() {
        let report = ground.call(&subject).await;
        match breakage(&report) {
            Some(broke) => findings.push(subject.breaks(Finding::new(&subject.what, broke))),
            None => ground.answered.push(Answered { subject, report }),
        }
    }
    findings.into()
}

async fn grants(ground: &mut Ground) -> Checked {
    // A secret that is not set is told to the operator, and is no request for a capability.
    let asked = ground.refused.iter().filter(|(what, _)| !what.starts_with("the secret "));
    let broken = |(what, (advice, subject)): (&String, &(String, Subject))| {
        subject.breaks(Finding::new(&subject.what, format!("asked for {what}: {advice}")))
    };
    asked.map(broken).collect::<Vec<_>>().into()
}
