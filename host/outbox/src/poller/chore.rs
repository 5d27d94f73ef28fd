//! Work of the poller beside its reads. While it fails, events are read all the same, and it is retried after a delay of its own.

use std::time::Duration;

use tokio::time::Instant;

use super::intake::Intake;
use super::{OUTAGE_FIRST_REST, OUTAGE_LONGEST_REST};
use crate::recurring::Outage;
use crate::store::StoreError;

/// All chores of the poller.
#[derive(Debug)]
pub(super) struct Chores {
    pub(super) unpark: Chore,
    pub(super) unblock: Chore,
    pub(super) claim: Chore,
    pub(super) claim_dropped: Chore,
    pub(super) read_carefully: Chore,
}

impl Default for Chores {
    fn default() -> Self {
        Self {
            unpark: Chore::new("unpark events"),
            unblock: Chore::new("unblock events"),
            claim: Chore::new("claim the events that need a claim"),
            claim_dropped: Chore::new("claim the events that it dropped"),
            read_carefully: Chore::new("take the events of hosts that are gone"),
        }
    }
}

impl Chores {
    /// Whether one of them fails now.
    pub(super) fn is_one_failing(&self) -> bool {
        let all = [&self.unpark, &self.unblock, &self.claim, &self.claim_dropped, &self.read_carefully];
        all.into_iter().any(Chore::is_failing)
    }
}

/// A statement that the poller repeats beside its reads.
#[derive(Debug)]
pub(super) struct Chore {
    /// Its action, for the log.
    action: &'static str,
    outage: Outage,
    /// The delay after the next failure.
    rest: Duration,
    /// When it is retried; `None` while it does not fail.
    again_at: Option<Instant>,
}

impl Chore {
    fn new(action: &'static str) -> Self {
        Self { action, outage: Outage::default(), rest: OUTAGE_FIRST_REST, again_at: None }
    }

    /// Whether its last run failed.
    pub(super) fn is_failing(&self) -> bool {
        self.again_at.is_some()
    }

    /// Whether it may run in this turn: it does not fail, or the delay after its last failure is over.
    pub(super) fn may_run(&self) -> bool {
        self.again_at.is_none_or(|at| at <= Instant::now())
    }

    /// Notes how its run in this turn ended, and wakes the poller for a retry. `None` if it did not run, `Ok(false)` if it had nothing to
    /// ask the database for.
    pub(super) fn note(&mut self, ran: Option<Result<bool, StoreError>>, intake: &Intake) {
        match ran {
            None => {}
            Some(Ok(asked)) => {
                self.again_at = None;
                if asked {
                    self.rest = OUTAGE_FIRST_REST;
                    if self.outage.ends() {
                        tracing::info!("the poller can {} again", self.action);
                    }
                }
            }
            Some(Err(error)) => {
                intake.metrics.db_error(&error);
                if self.outage.begins() {
                    let (action, error) = (self.action, crate::chain(&error));
                    tracing::error!(error, "the poller cannot {action}; retrying while it takes other events");
                }
                self.again_at = Some(Instant::now() + self.rest);
                self.rest = (self.rest * 2).min(OUTAGE_LONGEST_REST);
            }
        }
        if let Some(at) = self.again_at {
            // In every turn: the poller remembers only the next time to wake.
            intake.wake.within(at.saturating_duration_since(Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chore_that_failed_rests_and_its_turns_are_not_counted_as_well() {
        let mut chores = Chores::default();
        assert!(chores.unblock.may_run() && !chores.is_one_failing());

        chores.unblock.again_at = Some(Instant::now() + OUTAGE_LONGEST_REST);
        assert!(!chores.unblock.may_run() && chores.is_one_failing());
        assert!(chores.unpark.may_run(), "each has a delay of its own");

        chores.unblock.again_at = Some(Instant::now());
        assert!(chores.unblock.may_run() && chores.is_one_failing(), "it fails until a run succeeds");
    }
}
