//! What this host did in the last hour, minute by minute, for the charts. In memory only: it begins anew with the host.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use outbox::metrics::Counts;
use outbox_event::time::Timestamp;
use outbox_listener::Lags;

/// How many minutes are kept.
pub(super) const MINUTES: usize = 60;
/// How often the counters are read.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_secs(5);

const MINUTE_MICROS: i64 = 60_000_000;

/// The last hour.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Oldest first.
    minutes: VecDeque<Minute>,
    last: Option<(Timestamp, Counts, Lags)>,
}

/// One minute of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Minute {
    /// Minutes since 1970.
    number: i64,
    /// How much of the minute was seen.
    seen: Duration,
    done: u64,
    failed: u64,
    lags: Lags,
    /// How many events waited when the table was last counted in this minute; `None` when it was not.
    pub(super) waiting: Option<u64>,
    /// How long the oldest of them had waited by then; `None` also when none waited.
    pub(super) oldest: Option<Duration>,
}

/// What a count of the table found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counted {
    /// Events that are not finished.
    pub(super) waiting: u64,
    /// How long the oldest due one has waited; zero if no due event waits.
    pub(super) oldest: Duration,
}

impl Minute {
    /// Events that this host delivered, a second.
    pub(super) fn done_per_second(&self) -> Option<f64> {
        self.per_second(self.done)
    }

    /// Attempts that failed on this host, a second; those that made an event dead are among them.
    pub(super) fn failed_per_second(&self) -> Option<f64> {
        self.per_second(self.failed)
    }

    /// The time within which this part of the events that this host delivered was done, from when they were due; `None` when it
    /// delivered none.
    pub(super) fn lag(&self, part: f64) -> Option<Duration> {
        self.lags.quantile(part)
    }

    fn set_counted(&mut self, counted: Counted) {
        self.waiting = Some(counted.waiting);
        self.oldest = Some(counted.oldest);
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate for a chart")]
    fn per_second(&self, count: u64) -> Option<f64> {
        (!self.seen.is_zero()).then(|| count as f64 / self.seen.as_secs_f64())
    }
}

impl History {
    /// Adds what was counted since the last sample to the minute of `now`. `counted` is `None` when the table was not counted, or
    /// could not be.
    pub(super) fn sample(&self, now: Timestamp, counts: Counts, lags: Lags, counted: Option<Counted>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = now.as_micros().div_euclid(MINUTE_MICROS);
        let (since, before, lags_before) = kept.last.replace((now, counts, lags)).unwrap_or((now, counts, lags));
        // The clock was set back: these minutes have not come yet.
        while kept.minutes.back().is_some_and(|minute| minute.number > number) {
            kept.minutes.pop_back();
        }
        if kept.minutes.back().is_none_or(|minute| minute.number < number) {
            kept.minutes.push_back(Minute { number, ..Minute::default() });
            if kept.minutes.len() > MINUTES {
                kept.minutes.pop_front();
            }
        }
        let failures = |counts: &Counts| counts.dispatch_failure + counts.dispatch_dead;
        if let Some(minute) = kept.minutes.back_mut() {
            minute.seen += now.since(since);
            minute.done += counts.dispatch_success.saturating_sub(before.dispatch_success);
            minute.failed += failures(&counts).saturating_sub(failures(&before));
            minute.lags = minute.lags.plus(&lags.since(&lags_before));
            if let Some(counted) = counted {
                minute.set_counted(counted);
            }
        }
    }

    /// The last hour before `now`, oldest minute first; `None` for a minute that was not seen. Always [`MINUTES`] long. The present
    /// minute shows `counted`, the latest count of the table, since the last sample may be older than what the page says beside it.
    pub(super) fn hour(&self, now: Timestamp, counted: Option<Counted>) -> Vec<Option<Minute>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = now.as_micros().div_euclid(MINUTE_MICROS);
        let length = i64::try_from(MINUTES).unwrap_or(i64::MAX);
        let find = |number| kept.minutes.iter().find(|minute| minute.number == number).copied();
        let mut hour: Vec<Option<Minute>> = (last - length + 1..=last).map(find).collect();
        if let (Some(counted), Some(present)) = (counted, hour.last_mut()) {
            present.get_or_insert(Minute { number: last, ..Minute::default() }).set_counted(counted);
        }
        hour
    }

    /// Events that this host delivered a second, over the last minute or two; `None` when too little was seen.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub(super) fn rate(&self) -> Option<f64> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, seen) = kept
            .minutes
            .iter()
            .rev()
            .take(2)
            .fold((0, Duration::ZERO), |(done, seen), minute| (done + minute.done, seen + minute.seen));
        (!seen.is_zero()).then(|| done as f64 / seen.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(1_795_249_980_000_000 + seconds * 1_000_000)
    }

    fn counts(done: u64, failed: u64, dead: u64) -> Counts {
        Counts { dispatch_success: done, dispatch_failure: failed, dispatch_dead: dead, ..Counts::default() }
    }

    /// This many events that took this many milliseconds each.
    fn lags(of: &[(u32, u64)]) -> Lags {
        let routes = outbox_listener::Routes::default();
        for (count, millis) in of {
            (0..*count).for_each(|_| routes.other().lag.observe(Duration::from_millis(*millis)));
        }
        routes.lags()
    }

    #[test]
    fn a_rate_is_what_was_counted_between_two_samples_over_the_time_between_them() {
        let history = History::default();
        assert_eq!((history.rate(), history.hour(at(0), None).iter().flatten().count()), (None, 0));
        history.sample(at(0), counts(1_000, 5, 1), Lags::default(), None);
        assert_eq!(history.rate(), None, "what was counted before the first sample belongs to no minute");

        history.sample(
            at(5),
            counts(1_050, 6, 2),
            lags(&[(9, 2), (1, 700)]),
            Some(Counted { waiting: 7, oldest: Duration::from_secs(3) }),
        );

        let hour = history.hour(at(6), None);
        assert_eq!(hour.len(), MINUTES);
        let minute = hour[MINUTES - 1].expect("the present minute");
        assert_eq!((minute.done_per_second(), minute.failed_per_second()), (Some(10.0), Some(0.4)));
        assert_eq!((minute.waiting, minute.oldest), (Some(7), Some(Duration::from_secs(3))));
        let [half, most] = [0.5, 0.99].map(|part| minute.lag(part).expect("ten were delivered"));
        assert!(half <= Duration::from_millis(5) && most >= Duration::from_millis(500), "{half:?} {most:?}");
        assert_eq!(history.rate(), Some(10.0));
    }

    #[test]
    fn the_present_minute_shows_the_latest_count_of_the_table() {
        let history = History::default();
        let count = |waiting| Counted { waiting, oldest: Duration::from_secs(waiting) };
        history.sample(at(0), counts(0, 0, 0), Lags::default(), Some(count(1)));
        let waiting = |seconds, counted| {
            let hour = history.hour(at(seconds), counted);
            [hour[MINUTES - 2], hour[MINUTES - 1]].map(|minute| minute.and_then(|minute| minute.waiting))
        };

        assert_eq!(waiting(5, None), [None, Some(1)]);
        assert_eq!(waiting(5, Some(count(204))), [None, Some(204)]);
        assert_eq!(waiting(65, Some(count(204))), [Some(1), Some(204)], "no sample was taken in this minute yet");
    }

    #[test]
    fn a_minute_that_nobody_saw_is_a_gap_and_an_hour_is_all_that_is_kept() {
        let history = History::default();
        for minute in (0..100).filter(|minute| *minute != 90) {
            history.sample(at(minute * 60), counts(u64::try_from(minute).unwrap() * 60, 0, 0), Lags::default(), None);
        }
        let hour = history.hour(at(99 * 60 + 30), None);
        assert_eq!(hour.iter().position(Option::is_none), Some(50), "minute 90 of 40 to 99");
        assert_eq!(hour.iter().flatten().count(), 59);
        assert!(history.0.lock().unwrap().minutes.len() <= MINUTES);
        assert_eq!(history.hour(at(200 * 60), None).iter().flatten().count(), 0, "later nothing of it is within the hour");
    }

    #[test]
    fn a_clock_that_goes_back_and_counters_that_begin_anew_count_nothing() {
        let history = History::default();
        history.sample(at(120), counts(100, 0, 0), Lags::default(), None);
        history.sample(at(60), counts(40, 0, 0), Lags::default(), None);
        let hour = history.hour(at(120), None);
        assert_eq!(hour[MINUTES - 1].and_then(|minute| minute.done_per_second()), None);
        assert_eq!(hour.iter().flatten().count(), 1);
    }

    #[test]
    fn charts_continue_after_the_clock_was_set_back() {
        let history = History::default();
        history.sample(at(7_200), counts(100, 0, 0), Lags::default(), None);
        for (seconds, done) in [(0, 100), (5, 150)] {
            history.sample(at(seconds), counts(done, 0, 0), Lags::default(), None);
        }

        let hour = history.hour(at(6), None);
        assert_eq!(hour[MINUTES - 1].and_then(|minute| minute.done_per_second()), Some(10.0));
    }
}
