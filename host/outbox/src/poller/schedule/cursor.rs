//! The read position in the table, and when a read returns to the front.

use std::time::Duration;

use tokio::time::Instant;

use crate::store::Position;

/// How often a read begins at the front while reads return full batches. Transactions commit in another order than they began, and an
/// unparked event is due in the past.
const FRONT_EVERY: Duration = Duration::from_secs(1);
/// A read at the front that takes this long is slow, unless other reads take as long. It passes many events that are left out. While a
/// transaction holds a snapshot, it also passes every event that was delivered since the snapshot.
const SLOW_FRONT: Duration = Duration::from_millis(20);
/// How long to skip the front after a slow read, as a multiple of the duration of that read. Otherwise reads of a slow front would keep the
/// database busy.
const SLOW_FRONT_REST_FACTOR: u32 = 4;
/// The longest such pause: one read may have been slow by chance.
const SLOW_FRONT_LONGEST_REST: Duration = Duration::from_secs(5);
/// A statement at the front that takes this long hangs, for example because its connection is silent, unless one of the last reads of the
/// front took half as long.
const FRONT_HANGS: Duration = Duration::from_secs(5);
/// If the front is slow, a read after a short one begins this long before the last event that was ever read. Most transactions are shorter;
/// reads of the front find the events of longer ones.
const LATE_COMMITS_WITHIN: Duration = Duration::from_secs(1);

/// The read position in the table, and when a read returns to the front.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// The last event of the last read; `None` to begin at the front.
    after: Option<Position>,
    /// The furthest event that was ever read. No event behind it was read, but hot events behind it may be in flight.
    furthest: Option<Position>,
    /// When the last read at the front was answered, and how long it took. `None` if the next one is due.
    front_at: Option<Instant>,
    front_took: Duration,
    /// The longest of the last reads at the front. Each shorter one makes it an eighth smaller.
    front_longest: Duration,
    /// How long the last read elsewhere took, if there was one since then.
    other_took: Option<Duration>,
    /// Where the next concurrent read of the front begins. `None` for the front itself.
    front_after: Option<Position>,
    /// Whether such a read is in progress, and whether the front must be read again after it.
    front_under_way: bool,
    again: bool,
    /// How many events this host had ever dropped without an outcome, as of the last read.
    ever_dropped: u64,
    /// Whether claims fail now, and whether the next read retries them.
    claims_fail: bool,
    retries_claims: bool,
}

/// How a read ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// The last event of the read.
    pub(crate) last: Option<Position>,
    /// Whether there may be more events behind it.
    pub(crate) more: bool,
    pub(crate) asked_at: Instant,
    pub(crate) answered_at: Instant,
}

impl Ended {
    fn took(&self) -> Duration {
        self.answered_at.saturating_duration_since(self.asked_at)
    }
}

impl Cursor {
    /// Where the next read begins, and whether events that were read may be in flight behind that position. `beside`: whether a slow
    /// front is read [concurrently](Self::front_is_due), so that this read begins behind it.
    pub(crate) fn next(&mut self, now: Instant, beside: bool) -> (Option<Position>, bool) {
        let slow = self.rest_of_a_slow_front();
        let is_due = self.is_due(now, slow.unwrap_or(FRONT_EVERY));
        if self.retries_claims && self.after.is_none() && !self.front_took_long() {
            // The events at the front need a claim. A read of others would look as if no event needed one.
        } else if slow.is_some() && self.after.is_none() && (beside || !is_due) {
            self.after = self.furthest.map(|last| Position { due_at: last.due_at.minus(LATE_COMMITS_WITHIN), sequence: 0 });
        } else if is_due && !(beside && slow.is_some()) {
            self.after = None;
        }
        (self.after, self.after < self.furthest)
    }

    /// Whether a slow front is to be read now.
    pub(crate) fn front_is_due(&self, now: Instant) -> bool {
        self.rest_of_a_slow_front().is_some_and(|rest| self.is_due(now, rest))
    }

    /// How long until the front is due. Zero if it is due or is being read.
    pub(crate) fn front_rests(&self, now: Instant) -> Duration {
        let rest = self.rest_of_a_slow_front().unwrap_or_default();
        self.front_at.map_or(Duration::ZERO, |at| (at + rest).saturating_duration_since(now))
    }

    fn is_due(&self, now: Instant, rest: Duration) -> bool {
        self.front_at.is_none_or(|at| now.saturating_duration_since(at) >= rest)
    }

    /// Whether events were dropped without an outcome since the last call. `ever_dropped`: how many ever were.
    pub(crate) fn dropped_since(&mut self, ever_dropped: u64) -> bool {
        std::mem::replace(&mut self.ever_dropped, ever_dropped) != ever_dropped
    }

    /// Notes whether claims fail now, and whether the next read may claim events.
    pub(crate) fn note_claims(&mut self, fail: bool, may_claim: bool) {
        (self.claims_fail, self.retries_claims) = (fail, fail && may_claim);
    }

    fn front_took_long(&self) -> bool {
        self.front_took >= SLOW_FRONT && self.other_took.is_none_or(|other| self.front_took >= 2 * other)
    }

    /// How long to skip a slow front. `None` if the front is not slow, or if every read is slow. While claims fail, the front counts as
    /// slow: it may have any number of events that need a claim, and a read that returned to it would not get past them.
    pub(crate) fn rest_of_a_slow_front(&self) -> Option<Duration> {
        let is_slow = self.front_took_long() || self.claims_fail;
        is_slow.then(|| (SLOW_FRONT_REST_FACTOR * self.front_took).clamp(FRONT_EVERY, SLOW_FRONT_LONGEST_REST))
    }

    /// After which time a statement at the front hangs.
    pub(crate) fn front_hangs_after(&self) -> Duration {
        FRONT_HANGS.max(2 * self.front_longest)
    }

    /// Notes that reads pause. The durations of the last reads at the front then do not predict that of the next one.
    pub(crate) fn rests(&mut self) {
        (self.front_took, self.front_longest) = (Duration::ZERO, Duration::ZERO);
    }

    fn note_front_took(&mut self, took: Duration) {
        self.front_took = took;
        self.front_longest = took.max(self.front_longest * 7 / 8);
    }

    /// The next read begins at the front.
    pub(crate) fn begin_again(&mut self) {
        (self.front_at, self.again) = (None, true);
    }

    /// Notes how a read ended that began at the position of [`next`](Self::next).
    pub(crate) fn read(&mut self, ended: Ended) {
        if self.after.is_none() {
            (self.front_at, self.other_took) = (Some(ended.answered_at), None);
            self.note_front_took(ended.took());
        } else if !self.front_under_way {
            // A read that ran concurrently with one of the front may have waited for its connection.
            self.other_took = Some(ended.took());
        }
        self.furthest = self.furthest.max(ended.last);
        self.after = ended.last.filter(|_| ended.more);
    }

    /// Begins a concurrent read of the slow front. Returns its position.
    pub(crate) fn front_begins(&mut self) -> Option<Position> {
        if std::mem::take(&mut self.again) {
            self.front_after = None;
        }
        self.front_under_way = true;
        self.front_after
    }

    /// Notes that this read failed: the next one begins at the front, after a pause.
    pub(crate) fn front_failed(&mut self, now: Instant) {
        (self.front_at, self.front_under_way, self.again) = (Some(now), false, true);
    }

    /// Notes how this read ended. There is no other event to read between its start and the last event that it returned.
    pub(crate) fn front_read(&mut self, ended: Ended) {
        self.front_under_way = false;
        if self.front_after.is_none() {
            // A later read, which continues behind the front, may be quick.
            self.note_front_took(ended.took());
        }
        let reached = self.after.or(self.furthest);
        self.furthest = self.furthest.max(ended.last);
        self.front_after = ended.last.filter(|_| ended.more && self.rest_of_a_slow_front().is_some() && ended.last < reached);
        if ended.more && self.front_after.is_none() {
            self.after = ended.last;
        }
        let is_over = self.front_after.is_none() && !self.again;
        self.front_at = is_over.then_some(ended.answered_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    const SECOND: Duration = Duration::from_secs(1);
    const QUICK: Duration = Duration::from_millis(5);

    /// A cursor, and a clock that each read advances by `takes`.
    struct Reads {
        cursor: Cursor,
        now: Instant,
        takes: Duration,
        /// Whether a slow front is read concurrently.
        beside: bool,
    }

    impl Reads {
        fn new() -> Self {
            Self { cursor: Cursor::default(), now: Instant::now(), takes: QUICK, beside: false }
        }

        /// Where a read that ends at `last` begins, and whether events in flight may be behind that position.
        fn read(&mut self, last: Option<Position>, more: bool) -> (Option<Position>, bool) {
            let begins = self.cursor.next(self.now, self.beside);
            let ended = self.passes(last, more);
            self.cursor.read(ended);
            begins
        }

        /// A concurrent read of the slow front that takes this long. Returns where it begins.
        fn front(&mut self, takes: Duration, last: Option<Position>, more: bool) -> Option<Position> {
            let begins = self.cursor.front_begins();
            let others = std::mem::replace(&mut self.takes, takes);
            let ended = self.passes(last, more);
            self.takes = others;
            self.cursor.front_read(ended);
            begins
        }

        /// Advances the clock by the duration of a read.
        fn passes(&mut self, last: Option<Position>, more: bool) -> Ended {
            let asked_at = self.now;
            self.now += self.takes;
            Ended { last, more, asked_at, answered_at: self.now }
        }
    }

    fn position(number: u64) -> Option<Position> {
        Some(Position { due_at: Timestamp::from_micros(60_000_000), sequence: number })
    }

    /// Where a read begins that may find late commits.
    fn before() -> Option<Position> {
        Some(Position { due_at: Timestamp::from_micros(60_000_000).minus(LATE_COMMITS_WITHIN), sequence: 0 })
    }

    #[test]
    fn it_goes_on_behind_a_full_read_and_back_to_the_front_after_a_short_one() {
        let mut reads = Reads::new();
        assert_eq!(reads.read(position(5), true), (None, false), "nothing was ever read");
        assert_eq!(reads.read(position(7), false), (position(5), false), "nothing in hand stands behind the last");
        assert_eq!(reads.read(None, false), (None, true));
        assert_eq!(reads.read(None, false), (None, true));
    }

    #[test]
    fn it_returns_to_the_front_once_a_second_and_then_meets_what_is_in_hand() {
        let mut reads = Reads::new();
        assert_eq!(reads.read(position(9), true), (None, false));
        reads.now += SECOND / 2;
        assert_eq!(reads.read(position(20), true), (position(9), false));
        reads.now += SECOND / 2;
        assert_eq!(reads.read(position(3), true), (None, true), "a second after the last time");
        assert_eq!(reads.read(position(21), true), (position(3), true), "between here and the furthest some are in hand");
        assert_eq!(reads.read(None, false), (position(21), false));
    }

    #[test]
    fn a_front_that_is_slow_to_read_is_read_once_a_second_and_late_commits_in_between() {
        let mut reads = Reads { takes: SLOW_FRONT, ..Reads::new() };
        assert_eq!(reads.read(position(9), false), (None, false));
        reads.takes = QUICK;
        assert_eq!(reads.read(None, false), (before(), true), "what was committed late");
        reads.now += SECOND / 2;
        assert_eq!(reads.read(position(9), true), (before(), true));
        assert_eq!(reads.read(None, false), (position(9), false));
        reads.now += SECOND / 2;
        assert_eq!(reads.read(None, false), (None, true), "a second after the last time");
        assert_eq!(reads.read(None, false), (None, true), "it is quick again");

        reads.takes = SLOW_FRONT;
        assert_eq!(reads.read(None, false), (None, true));
        reads.cursor.begin_again();
        assert_eq!(reads.read(None, false), (None, true), "something is due again that was due before");
    }

    #[test]
    fn while_claims_fail_reads_do_not_return_to_the_events_that_need_one() {
        let mut reads = Reads { beside: true, ..Reads::new() };
        assert_eq!(reads.read(position(50), true), (None, false));
        reads.cursor.note_claims(true, false);
        for number in 1..=5 {
            reads.now += SECOND;
            let (last, next) = (position(50 * number), position(50 * (number + 1)));
            assert_eq!(reads.read(next, true), (last, false), "each read begins behind the last event");
        }
        assert!(reads.cursor.front_is_due(reads.now), "the front is read beside");
        assert_eq!(reads.front(QUICK, position(50), true), None);

        assert_eq!(reads.read(position(300), false), (position(300), false));
        assert_eq!(reads.read(position(300), false), (before(), true), "behind the front");
        reads.cursor.note_claims(true, true);
        assert_eq!(reads.read(position(50), true), (None, true), "claims are retried at the front");

        reads.cursor.note_claims(false, true);
        reads.now += SECOND;
        assert_eq!(reads.read(position(50), true), (None, true), "its events can be claimed");
    }

    #[test]
    fn a_front_that_takes_seconds_is_not_all_that_is_ever_read() {
        let mut reads = Reads { takes: 2 * SECOND, ..Reads::new() };
        assert_eq!(reads.read(position(9), true), (None, false));
        reads.takes = QUICK;
        assert_eq!(reads.read(position(9), true), (position(9), false));
        reads.now += 4 * SECOND;
        assert_eq!(reads.read(position(9), true), (position(9), false));
        reads.now += SECOND;
        assert_eq!(reads.read(position(9), true), (None, true), "at the latest");
    }

    #[test]
    fn where_every_read_takes_long_the_front_is_not_slow() {
        let mut reads = Reads { takes: 2 * SLOW_FRONT, ..Reads::new() };
        assert_eq!(reads.read(position(9), false), (None, false));
        assert_eq!(reads.read(None, false), (before(), true), "one read elsewhere shows it");
        assert_eq!(reads.read(None, false), (None, true));
    }
    #[test]
    fn no_other_read_waits_for_a_slow_front_that_is_read_beside_them() {
        let mut reads = Reads { takes: SLOW_FRONT, beside: true, ..Reads::new() };
        assert!(!reads.cursor.front_is_due(reads.now), "nobody knows yet that it is slow");
        assert_eq!(reads.read(position(9), false), (None, false));
        reads.takes = QUICK;
        assert_eq!(reads.read(position(9), true), (before(), true));
        assert!(!reads.cursor.front_is_due(reads.now));
        reads.now += SECOND;
        assert!(reads.cursor.front_is_due(reads.now));
        assert_eq!(reads.read(position(20), true), (position(9), false), "though it is due");

        assert_eq!(reads.front(SLOW_FRONT, position(5), true), None);
        assert_eq!(reads.read(position(21), true), (position(20), false), "what the front brought comes before that");
        assert!(reads.cursor.front_is_due(reads.now), "it brought a full batch");
        assert_eq!(reads.front(SLOW_FRONT, None, false), position(5), "it goes on where it was");
        assert!(!reads.cursor.front_is_due(reads.now + SECOND / 2));

        assert_eq!(reads.front(SLOW_FRONT, position(30), true), None);
        assert!(!reads.cursor.front_is_due(reads.now + SECOND / 2));
        assert_eq!(reads.read(None, false), (position(30), false), "all up to there was read at the front");
    }

    #[test]
    fn where_a_front_is_slow_no_more_the_other_reads_go_back_to_it() {
        let mut reads = Reads { takes: SLOW_FRONT, beside: true, ..Reads::new() };
        reads.read(position(9), true);
        reads.takes = QUICK;
        reads.read(position(20), true);
        assert_eq!(reads.front(QUICK, position(5), true), None);
        assert_eq!(reads.read(position(6), true), (position(5), true));
        assert!(!reads.cursor.front_is_due(reads.now + SECOND));
    }

    #[test]
    fn a_quick_read_that_goes_on_where_a_slow_one_ended_does_not_make_the_front_quick() {
        let mut reads = Reads { takes: SLOW_FRONT, beside: true, ..Reads::new() };
        reads.read(position(9), false);
        reads.takes = QUICK;
        reads.read(position(20), false);
        assert_eq!(reads.front(SLOW_FRONT, position(5), true), None);
        assert_eq!(reads.front(QUICK, None, false), position(5));
        reads.now += SECOND;
        assert!(reads.cursor.front_is_due(reads.now));
        let (begins, _) = reads.read(None, false);
        assert!(begins.is_some(), "behind the front");
    }

    #[test]
    fn a_read_that_waits_for_the_one_at_the_front_does_not_make_that_one_quick() {
        let mut reads = Reads { takes: SLOW_FRONT, beside: true, ..Reads::new() };
        reads.read(position(9), false);
        reads.takes = QUICK;
        reads.read(position(20), false);
        reads.cursor.front_begins();
        reads.takes = SLOW_FRONT;
        reads.read(None, false);
        let ended = reads.passes(None, false);
        reads.cursor.front_read(ended);
        assert!(reads.cursor.rest_of_a_slow_front().is_some());
    }

    #[test]
    fn while_a_read_of_the_front_hangs_the_other_reads_begin_at_the_front() {
        let mut reads = Reads { takes: SLOW_FRONT, beside: true, ..Reads::new() };
        reads.read(position(9), false);
        reads.takes = QUICK;
        reads.read(position(20), true);
        assert_eq!(reads.cursor.front_begins(), None);
        assert_eq!(reads.cursor.front_hangs_after(), FRONT_HANGS);
        reads.now += FRONT_HANGS;

        reads.beside = false;
        assert_eq!(reads.read(None, false), (None, true), "events in flight are left out");
        assert_eq!(reads.read(position(25), false), (None, true));

        let ended = Ended { asked_at: reads.now - 2 * FRONT_HANGS, ..reads.passes(position(5), false) };
        reads.cursor.front_read(ended);
        assert_eq!(reads.cursor.front_hangs_after(), 2 * ended.took(), "a front that takes so long does not hang");
    }

    #[test]
    fn short_read_of_the_front_does_not_make_a_long_one_hang() {
        let mut reads = Reads { takes: 12 * SECOND, beside: true, ..Reads::new() };
        reads.read(position(9), false);
        reads.takes = QUICK;
        reads.read(position(20), true);
        reads.front(SECOND, position(5), false);
        assert!(reads.cursor.front_hangs_after() > 12 * SECOND);
        for _ in 0..20 {
            reads.front(SECOND, position(5), false);
        }
        assert_eq!(reads.cursor.front_hangs_after(), FRONT_HANGS, "the long read was long ago");
    }

    #[test]
    fn after_a_failed_read_of_a_slow_front_there_is_a_rest() {
        let mut reads = Reads { takes: SLOW_FRONT, beside: true, ..Reads::new() };
        reads.read(position(9), false);
        reads.takes = QUICK;
        reads.read(position(20), true);
        assert_eq!(reads.front(SLOW_FRONT, position(5), true), None);
        assert_eq!(reads.cursor.front_begins(), position(5));
        reads.cursor.front_failed(reads.now);
        assert!(!reads.cursor.front_is_due(reads.now + SECOND / 2));
        assert!(reads.cursor.front_is_due(reads.now + SECOND));
        assert_eq!(reads.cursor.front_begins(), None, "at the front");
    }

    #[test]
    fn a_slow_front_is_read_once_more_for_what_is_due_again_since_a_read_of_it_began() {
        let mut reads = Reads { takes: SLOW_FRONT, beside: true, ..Reads::new() };
        reads.read(position(9), false);
        reads.takes = QUICK;
        reads.read(position(20), true);
        assert_eq!(reads.cursor.front_begins(), None);
        reads.cursor.begin_again();
        let ended = Ended { asked_at: reads.now - SLOW_FRONT, ..reads.passes(position(5), true) };
        reads.cursor.front_read(ended);
        assert!(reads.cursor.front_is_due(reads.now), "the read may have begun before");
        assert_eq!(reads.front(SLOW_FRONT, None, false), None, "not behind what that one brought");
        assert!(!reads.cursor.front_is_due(reads.now));
    }
}
