//! Rules about what a plugin asks the host for: it may be refused, it may fail, it may never come back.

use super::Checked;
use crate::conformance::ground::{Ground, breakage};
use crate::conformance::report::Finding;
use crate::conformance::subject::{Answered, redelivered};
use crate::{Disturbance, Outside, Trouble};

/// The most calls to the outside that are disturbed, one at a time, in one event.
const MOST: usize = 20;
const NONE: &str = "no event made it ask; your --cases can";

pub(super) async fn refused(ground: &mut Ground) -> Checked {
    let (mut findings, mut asked) = (Vec::new(), false);
    for Answered { subject, .. } in ground.answered.clone() {
        let report = ground.call_without_grants(&subject).await;
        asked |= !report.refused.is_empty();
        if let (false, Some(broke)) = (report.refused.is_empty(), breakage(&report)) {
            findings.push(subject.breaks(Finding::new(format!("{}; granted nothing", subject.what), broke)));
        }
    }
    if asked { findings.into() } else { Checked::skipped(NONE) }
}

pub(super) async fn fails(ground: &mut Ground) -> Checked {
    let mut findings = Vec::new();
    let calls = calls(ground);
    let tried = !calls.is_empty();
    for (Answered { subject, .. }, at, outside) in calls {
        let failing = Disturbance { at, trouble: Trouble::Fails };
        let report = ground.call_with(&subject, |call| call.disturbed(failing)).await;
        if let Some(broke) = breakage(&report) {
            let at = format!("{}; {} fails", subject.what, named(at, &outside));
            findings.push(subject.breaks(Finding::new(at, broke)));
        }
    }
    if tried { findings.into() } else { Checked::skipped(NONE) }
}

pub(super) async fn cut(ground: &mut Ground) -> Checked {
    let mut findings = Vec::new();
    let calls = calls(ground);
    let tried = !calls.is_empty();
    for (Answered { subject, .. }, at, outside) in calls {
        let hanging = Disturbance { at, trouble: Trouble::Hangs };
        ground.call_with(&subject, |call| call.disturbed(hanging)).await;
        let next = subject.with("the next delivery", redelivered(&subject.event));
        if let Some(broke) = breakage(&ground.call(&next).await) {
            let at = format!("{}; {} was cut off", subject.what, named(at, &outside));
            findings.push(subject.breaks(Finding::new(at, broke)));
        }
    }
    if tried { findings.into() } else { Checked::skipped(NONE) }
}

/// Every call to the outside that an answered subject made.
fn calls(ground: &Ground) -> Vec<(Answered, usize, Outside)> {
    let of = |answered: &Answered| {
        let calls = answered.report.outside.iter().take(MOST).enumerate();
        calls.map(|(at, outside)| (answered.clone(), at, outside.clone())).collect::<Vec<_>>()
    };
    ground.answered.iter().flat_map(of).collect()
}

fn named(at: usize, outside: &Outside) -> String {
    let what = match outside {
        Outside::Message { sink, .. } => format!("a message to the sink {sink}"),
        Outside::HttpRequest { method, url, .. } => format!("the request {method} {url}"),
        Outside::StateRead { key } => format!("reading {key:?} of its state"),
        Outside::StateUsage => "asking how much it keeps".to_owned(),
    };
    format!("call {} to the outside, {what},", at + 1)
}
