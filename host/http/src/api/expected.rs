//! `expected_count`: a change of many events happens only if its caller knows how many events match.

use outbox_event::units::count;

use super::super::problem::{Kind, Problem};

/// How many events a request may find.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// Exactly as many as its caller expects.
    Exactly,
    /// At most as many: the host itself may take some of them, too.
    AtMost,
}

impl Expected {
    /// Compares `expected_count` with all events that match now, whatever the `limit` of the request: if a request with a limit
    /// is sent twice, the second is refused, because fewer events are left.
    ///
    /// # Errors
    /// 422 without `expected_count`, 409 when other events match; both tell how many do.
    pub(super) fn check(self, expected: Option<u64>, matching: u64, noun: &str) -> Result<(), Problem> {
        let Some(expected) = expected else {
            let detail =
                "say how many events you expect to match: `count` and `left` of the same request with `dry_run`, added up";
            return Err(Problem::field("expected_count", detail).counted(matching));
        };
        if matching == expected || (self == Self::AtMost && matching < expected) {
            return Ok(());
        }
        let verb = if matching == 1 { "matches" } else { "match" };
        let detail = format!("{} {verb}, not {expected}; nothing was done. Count again with `dry_run`", count(matching, noun));
        Err(Problem::new(Kind::CountChanged, detail).counted(matching))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_events_than_expected_are_refused_and_fewer_only_where_nobody_else_takes_them() {
        let refused = |rule: Expected, expected, matching| {
            rule.check(expected, matching, "dead event").err().map(|problem| problem.detail().to_owned())
        };
        let more = "2 dead events match, not 1; nothing was done. Count again with `dry_run`";
        assert_eq!([Expected::AtMost, Expected::Exactly].map(|rule| refused(rule, Some(1), 2).unwrap()), [more; 2]);
        assert_eq!([refused(Expected::AtMost, Some(2), 2), refused(Expected::Exactly, Some(2), 2)], [None, None]);
        assert_eq!(refused(Expected::AtMost, Some(3), 2), None);
        assert!(refused(Expected::Exactly, Some(3), 2).is_some());
        assert!([Expected::AtMost, Expected::Exactly].iter().all(|rule| refused(*rule, None, 0).is_some()));
    }
}
