//! Rules about what an answer may depend on: the event, the settings and the state.

use std::sync::Arc;

use outbox_event::Route;

use super::Checked;
use crate::conformance::essence::Essence;
use crate::conformance::ground::{Ground, breakage};
use crate::conformance::report::Finding;
use crate::conformance::subject::Answered;
use crate::{Call, CallReport};

/// Once more in a fresh instance, and three times in one that is kept.
pub(super) async fn same_twice(ground: &mut Ground) -> Checked {
    let mut findings = Vec::new();
    for Answered { subject, report } in ground.answered.clone() {
        let again = ground.call(&subject).await;
        if let Some(finding) = difference(&subject.what, "a second fresh instance", &report, &again) {
            findings.push(subject.breaks(finding));
            continue;
        }
        subject.host.forget().await;
        for time in ["the first", "the second", "the third"] {
            let kept = ground.call_with(&subject, Call::kept).await;
            let how = format!("{time} call of a kept instance");
            if let Some(finding) = difference(&subject.what, &how, &report, &kept) {
                findings.push(subject.breaks(finding));
                break;
            }
        }
        subject.host.forget().await;
    }
    findings.into()
}

/// All events of a route in one kept instance, forwards and backwards.
pub(super) async fn order(ground: &mut Ground) -> Checked {
    let mut findings = Vec::new();
    let mut tried = false;
    for together in of_one_instance(&ground.answered) {
        tried |= together.len() > 1;
        let backwards = together.iter().rev().cloned().collect();
        for (how, run) in [("after the events before it", together), ("after the events behind it", backwards)] {
            let host = run[0].subject.host.clone();
            host.forget().await;
            for Answered { subject, report } in run {
                let kept = ground.call_with(&subject, Call::kept).await;
                let finding = difference(&subject.what, how, &report, &kept);
                findings.extend(finding.map(|finding| subject.breaks(finding)));
            }
            host.forget().await;
        }
    }
    if tried { findings.into() } else { Checked::skipped("no route has two events that were answered") }
}

/// The events that one instance may meet: of one route, with the same settings and the same state.
fn of_one_instance(answered: &[Answered]) -> Vec<Vec<Answered>> {
    let belongs = |one: &Answered, other: &Answered| {
        let route = |answered: &Answered| -> Route { answered.subject.route().clone() };
        route(one) == route(other) && Arc::ptr_eq(&one.subject.host, &other.subject.host)
    };
    let mut groups: Vec<Vec<Answered>> = Vec::new();
    for one in answered {
        match groups.iter_mut().find(|group| belongs(&group[0], one)) {
            Some(group) => group.push(one.clone()),
            None => groups.push(vec![one.clone()]),
        }
    }
    groups
}

fn difference(what: &str, how: &str, first: &CallReport, again: &CallReport) -> Option<Finding> {
    let at = format!("{what}; {how}");
    if let Some(broke) = breakage(again) {
        return Some(Finding::new(at, broke).instead_of("what a fresh instance had answered"));
    }
    let (expected, got) = Essence::of(first).differs(&Essence::of(again))?;
    Some(Finding::new(at, got).instead_of(expected))
}
