//! What was found, for people and programs.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::PluginHost;

/// The most bytes of what is compared with something else, and of the place where it was found.
const MAX_COMPARED_BYTES: usize = 400;
/// The most bytes of what stands alone: how a call broke off, or what to add to a case.
const MAX_FOUND_BYTES: usize = 4 << 10;

/// What a plugin was checked against, and what was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The plugin's name.
    pub plugin: String,
    /// What the component says of its version.
    pub version: String,
    /// SHA-256 of the component, in hex.
    pub digest: String,
    /// How often it was called for the rules.
    pub calls: u64,
    /// The rules, in a fixed order.
    pub rules: Vec<RuleReport>,
    /// The author's cases, as they were given.
    pub cases: Vec<CaseReport>,
}

/// What was found of one rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuleReport {
    /// The rule's name; stable.
    pub id: &'static str,
    /// What a plugin that keeps it promises, in one line.
    pub promise: &'static str,
    /// Whether it is kept.
    pub verdict: Verdict,
    /// What a passed rule was measured at, or why a rule was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Where it is broken; empty when it is not.
    pub findings: Vec<Finding>,
    /// For the author of a plugin that breaks it: why it matters, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<&'static str>,
    /// How long it took to try it. Written as seconds.
    #[serde(rename = "took_seconds", serialize_with = "seconds")]
    pub took: Duration,
}

/// What was found of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseReport {
    /// The case's name.
    pub name: String,
    /// The file that it stands in; `None` for one that was in no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Whether everything that it expects was found.
    pub verdict: Verdict,
    /// What was not; empty when it passed.
    pub findings: Vec<Finding>,
    /// How long it took to try it. Written as seconds.
    #[serde(rename = "took_seconds", serialize_with = "seconds")]
    pub took: Duration,
}

fn seconds<S: Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(took.as_secs_f64())
}

/// Whether a rule or a case holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It holds.
    Passed,
    /// It does not.
    Failed,
    /// It could not be tried on this plugin.
    Skipped,
}

/// One place where a rule or a case does not hold. Holds text of the guest: escape it before it is shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// With which event, or in which respect.
    pub at: String,
    /// What was found.
    pub found: String,
    /// What was expected instead, where that can be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
}

impl Finding {
    pub(super) fn new(at: impl Into<String>, found: impl Into<String>) -> Self {
        Self { at: at.into(), found: found.into(), expected: None }
    }

    pub(super) fn instead_of(self, expected: impl Into<String>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    /// As it may be read: without the secrets of the plugin, and cut.
    pub(super) fn fit_to_show(self, host: &PluginHost) -> Self {
        let Self { at, found, expected } = self;
        // Hidden before anything is cut, or a part of a secret might stay.
        let shown = |text: &str, max: usize| shown(&host.hide(text), max);
        let most = if expected.is_some() { MAX_COMPARED_BYTES } else { MAX_FOUND_BYTES };
        Self {
            at: shown(&at, MAX_COMPARED_BYTES),
            found: shown(&found, most),
            expected: expected.map(|expected| shown(&expected, most)),
        }
    }
}

/// The beginning of a text, and how much of it is missing.
fn shown(text: &str, max: usize) -> String {
    let end = text.floor_char_boundary(max);
    if end == text.len() { text.to_owned() } else { format!("{}… ({} bytes more)", &text[..end], text.len() - end) }
}

impl Verdict {
    /// Passed, unless something was found.
    pub(super) fn of(findings: &[Finding]) -> Self {
        if findings.is_empty() { Self::Passed } else { Self::Failed }
    }

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

impl Report {
    /// Whether no rule and no case failed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.count(Verdict::Failed) == 0
    }

    /// How many rules and cases have this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        let rules = self.rules.iter().map(|rule| rule.verdict);
        rules.chain(self.cases.iter().map(|case| case.verdict)).filter(|one| *one == verdict).count()
    }

    /// How long it took to try all rules and cases.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.rules.iter().map(|rule| rule.took).chain(self.cases.iter().map(|case| case.took)).sum()
    }
}

/// What failed, one line for each finding; one line when nothing did.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, failed) = (self.count(Verdict::Passed), self.count(Verdict::Failed));
        write!(f, "{} {}: {passed} passed, {failed} failed", self.plugin, self.version)?;
        let rules = self.rules.iter().map(|rule| (rule.id, &rule.findings));
        for (what, findings) in rules.chain(self.cases.iter().map(|case| (case.name.as_str(), &case.findings))) {
            for Finding { at, found, expected } in findings {
                write!(f, "\n{what}: {at}: {found}")?;
                if let Some(expected) = expected {
                    write!(f, " (expected: {expected})")?;
                }
            }
        }
        Ok(())
    }
}
