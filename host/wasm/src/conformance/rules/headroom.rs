//! Rules about what a call costs: an event that costs four times the usual must not break.

use std::time::Duration;

use outbox_event::units::{number, size};

use super::Checked;
use crate::conformance::ground::Ground;
use crate::conformance::report::Finding;
use crate::conformance::subject::{Answered, REALISTIC_BYTES};

const TIMES: u64 = 4;
/// How often a call that took long is measured again: another program may have had the machine.
const MEASUREMENTS: usize = 3;

pub(super) async fn fuel(ground: &mut Ground) -> Checked {
    let limit = ground.host.manifest().limits.fuel;
    judged(realistic(ground).iter().map(|one| (one, one.report.used.fuel)), limit, number)
}

pub(super) async fn memory(ground: &mut Ground) -> Checked {
    let limit = ground.host.manifest().limits.memory.0;
    judged(realistic(ground).iter().map(|one| (one, one.report.used.memory_bytes)), limit, size)
}

pub(super) async fn time(ground: &mut Ground) -> Checked {
    let limit = ground.host.manifest().limits.deadline;
    let mut measured = realistic(ground);
    for one in &mut measured {
        for _ in 1..MEASUREMENTS {
            if one.report.took * 4 <= limit {
                break;
            }
            let again = ground.call(&one.subject).await;
            one.report.took = one.report.took.min(again.took);
        }
    }
    let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    let shown = |micros: u64| format!("{:?}", Duration::from_micros(micros));
    judged(measured.iter().map(|one| (one, micros(one.report.took))), micros(limit), shown)
}

fn realistic(ground: &Ground) -> Vec<Answered> {
    let mut answered = ground.answered.clone();
    answered.retain(|one| one.subject.event.payload_bytes().len() <= REALISTIC_BYTES);
    answered
}

fn judged<'a>(measured: impl Iterator<Item = (&'a Answered, u64)>, limit: u64, shown: impl Fn(u64) -> String) -> Checked {
    let (mut findings, mut most) = (Vec::new(), 0);
    for (Answered { subject, .. }, used) in measured {
        most = most.max(used);
        if used.saturating_mul(TIMES) > limit {
            let found = format!("used {} of {}", shown(used), shown(limit));
            let finding = Finding::new(&subject.what, found).instead_of(format!("at most {}", shown(limit / TIMES)));
            findings.push(subject.breaks(finding));
        }
    }
    Checked { findings, note: Some(format!("at most {} of {}", shown(most), shown(limit))), skipped: None }
}
