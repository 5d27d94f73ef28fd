//! What a plugin is checked against before it serves: the rules that every listener keeps, and the cases of its author.
//!
//! A rule asks for what a host needs of any honest listener, whatever it does: that it answers every event that can come, the
//! same event in the same way, with room to its limits. It never says which answer is right: a failure is an answer, and so is
//! "dead". What is right for one plugin is said by its author's [`Case`]s. Nothing that the plugin does beside its answers
//! happens: a case replies to its requests and messages, and for the rules all of them succeed.

mod case;
mod essence;
mod expect;
mod files;
mod ground;
mod junit;
mod replies;
mod report;
mod rules;
mod sent;
mod subject;
mod written;

pub use case::Case;
pub use files::{CaseError, read_cases};
pub use report::{CaseReport, Finding, Report, RuleReport, Verdict};

use ground::Ground;

use crate::PluginHost;

/// Calls the plugin with events of every kind, some hundred times, and tells which rules and which cases it keeps.
///
/// A case's event is tried by the rules as well, with the settings and the state of the case. The state that `host` reads is not
/// looked at: the rules begin with an empty one.
pub async fn check(host: &PluginHost, cases: &[Case]) -> Report {
    let mut ground = Ground::new(host, cases);
    let rules = rules::check(&mut ground).await;
    let mut checked = Vec::with_capacity(cases.len());
    for case in cases {
        checked.push(case.check(host).await);
    }
    let description = host.description();
    Report {
        plugin: description.name.clone(),
        version: description.version.clone(),
        digest: description.digest.clone(),
        calls: ground.calls(),
        rules,
        cases: checked,
    }
}
