//! Beginnings and ends put together: the calls of listeners, and which of them a fault excuses.

use std::collections::BTreeMap;

use outbox::EventId;
use outbox::time::micros;

use super::journal::History;
use super::step::{Delivery, Ended, Ending, Fault, FaultKind, Held, Step, UNSEEN};

/// How soon after it wakes up a host that was stopped has written what its threads were at, in microseconds.
const REST_OF_A_STEP: i64 = 250_000;
/// How many of its threads may have been stopped between the look at the clock and the line that says that a call begins.
const THREADS: usize = 4;

/// One call of a listener.
#[derive(Clone, Debug)]
pub(super) struct Call<'a> {
    /// What the listener was told.
    pub(super) delivery: &'a Delivery,
    /// Which host called it.
    pub(super) host: &'a str,
    /// When, in microseconds.
    pub(super) began: i64,
    /// How it ended, and when.
    pub(super) end: Option<(i64, &'a Ended)>,
    /// When its host was killed in the middle of it.
    pub(super) killed: Option<i64>,
}

impl Call<'_> {
    pub(super) fn ending(&self) -> Option<Ending> {
        self.end.map(|(_, ended)| ended.ending)
    }

    /// Until when the event was with the listener, as far as anybody knows.
    pub(super) fn until(&self) -> i64 {
        self.end.map(|(at, _)| at).or(self.killed).unwrap_or(self.began)
    }

    /// When its event may be called again, if its outcome was stored: `delay` after its end, unless the listener said otherwise.
    pub(super) fn due_again(&self, delay: i64) -> i64 {
        let asked = self.end.and_then(|(_, ended)| ended.after_ms);
        self.until().saturating_add(asked.map_or(delay, |ms| i64::try_from(ms.saturating_mul(1_000)).unwrap_or(i64::MAX)))
    }
}

/// What was done to hosts, and until when.
pub(super) struct Faults<'a>(Vec<(&'a Fault, i64)>);

impl Faults<'_> {
    /// Whether a fault came between this call and its outcome: its host held the event under this very claim.
    pub(super) fn excuse(&self, call: &Call<'_>) -> bool {
        self.any(call, |_| true)
    }

    /// Whether the host may have been asleep in the middle of this call, and could not end it in time.
    pub(super) fn slept_through(&self, call: &Call<'_>) -> bool {
        self.any(call, |kind| kind == FaultKind::Stalled)
    }

    /// A thread that was stopped while it wrote that a call begins writes it when it wakes up: the call began before. It goes
    /// no further: a call that has an end after that is none of these.
    fn move_lines_of_stopped_threads(&self, calls: &mut [Call<'_>]) {
        for (fault, until) in self.0.iter().filter(|(fault, _)| fault.kind == FaultKind::Stalled) {
            let late = calls.iter_mut().filter(|call| {
                let delay = call.began - until;
                call.host == fault.host && call.end.is_none() && held(fault, call) && (1..=REST_OF_A_STEP).contains(&delay)
            });
            for call in late.take(THREADS) {
                call.began = fault.from;
            }
        }
        calls.sort_by_key(|call| call.began);
    }

    fn any(&self, call: &Call<'_>, kind: impl Fn(FaultKind) -> bool) -> bool {
        self.0.iter().any(|(fault, until)| fault.host == call.host && kind(fault.kind) && reaches(fault, *until, call))
    }

    fn of<'b>(&'b self, host: &'b str, kind: FaultKind) -> impl Iterator<Item = &'b (&'b Fault, i64)> {
        self.0.iter().filter(move |(fault, _)| fault.host == host && fault.kind == kind)
    }
}

fn reaches(fault: &Fault, until: i64, call: &Call<'_>) -> bool {
    held(fault, call) && call.began <= until
}

fn held(fault: &Fault, call: &Call<'_>) -> bool {
    match &fault.held {
        Held::Claims(claims) => claims.contains(&(call.delivery.event_id, call.delivery.claim_seq())),
        Held::Unseen => call.end.is_none_or(|(end, _)| end.saturating_add(micros(UNSEEN)) >= fault.from),
    }
}

impl History {
    /// Every call, in the order of their beginnings.
    ///
    /// # Panics
    /// When a call ends that never began: the record has a hole.
    pub(super) fn calls(&self, faults: &Faults<'_>) -> Vec<Call<'_>> {
        let mut calls: Vec<Call<'_>> = Vec::new();
        let mut open: BTreeMap<(&str, EventId, u64), Vec<usize>> = BTreeMap::new();
        for line in self.lines() {
            match &line.step {
                Step::Began(delivery) => {
                    open.entry((&line.node, delivery.event_id, delivery.fence)).or_default().push(calls.len());
                    calls.push(Call { delivery, host: &line.node, began: line.at, end: None, killed: None });
                }
                Step::Ended(ended) => {
                    let call = open.get_mut(&(line.node.as_str(), ended.event_id, ended.fence)).and_then(Vec::pop);
                    let call = call.unwrap_or_else(|| panic!("a call ends that never began: {line:?}"));
                    calls[call].end = Some((line.at, ended));
                }
                _ => {}
            }
        }
        faults.move_lines_of_stopped_threads(&mut calls);
        for call in calls.iter_mut().filter(|call| call.end.is_none()) {
            let killed = faults.of(call.host, FaultKind::Killed).filter(|(_, until)| call.began <= *until);
            call.killed = killed.map(|(fault, _)| fault.from.max(call.began)).min();
        }
        calls
    }

    pub(super) fn faults(&self) -> Faults<'_> {
        let faults = self.lines().iter().filter_map(|line| match &line.step {
            Step::Fault(fault) => Some((fault, line.at)),
            _ => None,
        });
        Faults(faults.collect())
    }
}
