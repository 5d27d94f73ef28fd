//! `expected_count`: a change of many events happens only if its caller knows how many it changes.

use super::super::problem::{Kind, Problem};
use crate::units::count;

/// Compares `expected_count` with what a request is about to do.
pub(super) struct Check {
    /// What it does, such as `replayed`.
    pub(super) done: &'static str,
    /// What it does it to, such as `dead event`.
    pub(super) noun: String,
    /// Whether fewer events than expected are right, too.
    pub(super) may_be_fewer: bool,
}

impl Check {
    /// Whether `now`, the number of events that the request would change, is what its caller expects: the `count` that the same request
    /// returned with `dry_run`.
    pub(super) fn count(&self, expected: Option<u64>, now: u64) -> Result<(), Problem> {
        let Self { done, noun, may_be_fewer } = self;
        let Some(expected) = expected else {
            let detail = format!("say how many events you expect to be {done}; `dry_run` returns the number");
            return Err(Problem::field("expected_count", detail).counted(now));
        };
        if now == expected || (*may_be_fewer && now < expected) {
            return Ok(());
        }
        let detail =
            format!("{} would be {done}, not {expected}; nothing was done. `dry_run` returns the number", count(now, noun));
        Err(Problem::new(Kind::CountChanged, detail).counted(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(may_be_fewer: bool) -> Check {
        Check { done: "replayed", noun: "dead event".to_owned(), may_be_fewer }
    }

    #[test]
    fn more_events_than_expected_are_refused_and_fewer_only_where_nobody_else_takes_them() {
        let refused = |may_be_fewer, expected, now| {
            check(may_be_fewer).count(expected, now).err().map(|problem| problem.detail().to_owned())
        };
        let more = "2 dead events would be replayed, not 1; nothing was done. `dry_run` returns the number";
        assert_eq!([refused(true, Some(1), 2), refused(false, Some(1), 2)].map(Option::unwrap), [more; 2]);
        assert_eq!([refused(true, Some(2), 2), refused(false, Some(2), 2), refused(true, Some(3), 2)], [None, None, None]);
        assert!(refused(false, Some(3), 2).is_some() && refused(true, None, 0).is_some() && refused(false, None, 0).is_some());
    }
}
