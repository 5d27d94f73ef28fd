//! The time of day of a moment of this process, by the clock as it is set now.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Timestamp, micros, system_clock};

/// A smaller deviation of the clock is ignored: times that change a little at each look would be news each time.
const TOLERANCE: Duration = Duration::from_secs(1);

/// The time of day of a moment, by the clock as it is set now. The same moment has the same time until the clock is set.
#[doc(hidden)] // for the host
#[must_use]
pub fn time_of(moment: Instant) -> Timestamp {
    static ANCHOR: Mutex<Option<Anchor>> = Mutex::new(None);
    let mut anchor = ANCHOR.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Anchor { moment: Instant::now(), time: system_clock().now() };
    let followed = anchor.map_or(now, |anchor| anchor.follow(now));
    *anchor = Some(followed);
    followed.time_of(moment)
}

/// A moment whose time of day is known.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Anchor {
    moment: Instant,
    time: Timestamp,
}

impl Anchor {
    /// This anchor, or the one of `now` if the clock was set since.
    fn follow(self, now: Self) -> Self {
        let deviation = now.time.as_micros().abs_diff(self.time_of(now.moment).as_micros());
        if deviation > micros(TOLERANCE).unsigned_abs() { now } else { self }
    }

    fn time_of(self, moment: Instant) -> Timestamp {
        match moment.checked_duration_since(self.moment) {
            Some(after) => self.time.plus(after),
            None => self.time.minus(self.moment.saturating_duration_since(moment)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn moment_keeps_its_time_until_the_clock_is_set() {
        let (moment, time) = (Instant::now(), Timestamp::from_micros(1_795_249_980_000_000));
        let anchor = Anchor { moment, time };
        let shown = |after: Duration, time: Timestamp| {
            let now = Anchor { moment: moment + after, time };
            anchor.follow(now).time_of(moment)
        };

        assert_eq!(shown(seconds(60), time.plus(seconds(61))), time, "the clock deviates a little");
        assert_eq!(shown(seconds(60), time.minus(seconds(7_200 - 60))), time.minus(seconds(7_200)), "it was set back");
        assert_eq!(shown(seconds(60), time.plus(seconds(7_200 + 60))), time.plus(seconds(7_200)), "it was set forward");
    }

    #[test]
    fn times_of_moments_are_as_far_apart_as_the_moments() {
        let moment = Instant::now();
        let anchor = Anchor { moment: moment + seconds(5), time: Timestamp::from_micros(0) };

        assert_eq!(anchor.time_of(moment + seconds(9)).since(anchor.time_of(moment)), seconds(9));
        assert!(time_of(moment + seconds(9)).since(time_of(moment)) >= Duration::from_millis(8_999));
    }
}
