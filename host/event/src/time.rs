//! Points in time and the clock that tells them.
//!
//! What is due, leased or old enough is decided by the database's clock inside a statement; this one serves what a person
//! sees and what a test sets. It must not know any other module.

mod anchor;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[doc(hidden)] // for the host
pub use anchor::time_of;

/// A point in time, UTC, in whole microseconds: the finest unit all our databases keep.
/// Cut to microseconds on the way in, so a time read back equals the time written.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// # use outbox_event as outbox;
/// use outbox::time::Timestamp;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let time: Timestamp = "2026-11-21T08:30:00Z".parse()?;
///
/// assert_eq!(time.plus(Duration::from_millis(1_500)).to_string(), "2026-11-21T08:30:01.500000Z");
/// assert_eq!(Timestamp::from(SystemTime::from(time)), time); // and From, TryFrom with jiff's Timestamp
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The time `micros` microseconds after 1970-01-01T00:00:00Z; negative before it.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Milliseconds since 1970-01-01T00:00:00Z, cut; 0 for a time before it.
    #[doc(hidden)] // for the host
    #[must_use]
    pub fn as_millis_unsigned(self) -> u64 {
        u64::try_from(self.0 / 1_000).unwrap_or(0)
    }

    /// This time plus `span`; the end of time when it would not fit.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(micros(span)))
    }

    /// This time minus `span`; the beginning of time when it would not fit.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(micros(span)))
    }

    /// How long after `earlier` this is; zero when it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// A span in whole microseconds, as the databases count; the largest number when it would not fit.
#[must_use]
pub fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(micros(after)),
            Err(before) => Self(-micros(before.duration())),
        }
    }
}

/// Exact. The epoch stands for times that the system cannot show at all, hundreds of thousands of years away.
impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let span = Duration::from_micros(time.0.unsigned_abs());
        let shown = if time.0 >= 0 { UNIX_EPOCH.checked_add(span) } else { UNIX_EPOCH.checked_sub(span) };
        shown.unwrap_or(UNIX_EPOCH)
    }
}

/// Cut to microseconds.
impl From<jiff::Timestamp> for Timestamp {
    fn from(time: jiff::Timestamp) -> Self {
        Self(time.as_microsecond())
    }
}

/// Fails beyond the years -9999 to 9999.
impl TryFrom<Timestamp> for jiff::Timestamp {
    type Error = jiff::Error;

    fn try_from(time: Timestamp) -> Result<Self, jiff::Error> {
        Self::from_microsecond(time.0)
    }
}

/// The first microsecond of the year 0, the earliest that RFC 3339 can write.
const EARLIEST_WRITTEN: i64 = -62_167_219_200_000_000;

/// RFC 3339 in UTC, always with six digits of a second, so that times stand below each other and sort as text:
/// `2026-11-21T03:33:00.500000Z`. A time before the year 0 is written as its start, and a time after 9999-12-30T22:00:00 as that time.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latest = jiff::Timestamp::MAX.as_second() * 1_000_000;
        let time = jiff::Timestamp::from_microsecond(self.0.clamp(EARLIEST_WRITTEN, latest)).map_err(|_| fmt::Error)?;
        write!(f, "{time:.6}")
    }
}

/// Text that is not a time. The message says what one looks like.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not an RFC 3339 time; write it like 2026-11-21T08:30:00Z")]
pub struct TimestampError {
    text: String,
    source: jiff::Error,
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<jiff::Timestamp>()
            .map(|time| Self(time.as_microsecond()))
            .map_err(|source| TimestampError { text: text.to_owned(), source })
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;

        impl serde::de::Visitor<'_> for Written {
            type Value = Timestamp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time like \"2026-11-21T08:30:00Z\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Timestamp, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Written)
    }
}

/// Tells the time of day. The host reads it through this and nowhere else.
pub trait Clock: Send + Sync + 'static {
    /// The current time.
    fn now(&self) -> Timestamp;
}

/// The operating system's clock. Its time goes back if that clock is set back, because receivers check signed times against the
/// correct time. `Instant` measures waits and leases of the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the operating system's clock")]
    fn now(&self) -> Timestamp {
        Timestamp::from(SystemTime::now())
    }
}

/// The clock of this process, for callers that were not given one.
#[doc(hidden)] // for the host
#[must_use]
pub fn system_clock() -> Arc<dyn Clock> {
    static CLOCK: std::sync::OnceLock<Arc<SystemClock>> = std::sync::OnceLock::new();
    CLOCK.get_or_init(Arc::default).clone()
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self(AtomicI64::new(now.0))
    }

    /// Moves the clock forward.
    pub fn advance(&self, span: Duration) {
        self.0.fetch_add(micros(span), Ordering::SeqCst);
    }

    /// Sets the clock, backward too.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

impl<C: Clock> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_rfc_3339_and_read_back_to_the_microsecond() {
        let time = Timestamp::from_micros(1_795_249_980_123_456);
        assert_eq!(time.to_string().parse::<Timestamp>().expect("own text"), time);
    }

    #[test]
    fn a_time_is_the_same_time_for_the_standard_library_and_for_jiff() {
        for micros in [0, -1, 1_795_249_980_123_456, -62_135_596_800_000_000] {
            let time = Timestamp::from_micros(micros);
            assert_eq!(Timestamp::from(SystemTime::from(time)), time);
            let jiff = jiff::Timestamp::try_from(time).expect("a year that jiff knows");
            assert_eq!((Timestamp::from(jiff), jiff.as_microsecond()), (time, micros));
        }
        assert!(jiff::Timestamp::try_from(Timestamp::from_micros(i64::MAX)).is_err());
    }

    #[test]
    fn every_time_is_written_with_the_same_digits() {
        let written = [0, 500_000, 1_795_249_980_123_456].map(|micros| Timestamp::from_micros(micros).to_string());
        assert_eq!(written, ["1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.500000Z", "2026-11-21T08:33:00.123456Z"]);
    }

    #[test]
    fn a_time_that_rfc_3339_cannot_write_is_written_as_the_nearest_that_it_can() {
        let written = [i64::MIN, EARLIEST_WRITTEN, i64::MAX].map(|micros| Timestamp::from_micros(micros).to_string());
        assert_eq!(written, ["0000-01-01T00:00:00.000000Z", "0000-01-01T00:00:00.000000Z", "9999-12-30T22:00:00.000000Z"]);
        assert!(written.iter().all(|text| text.parse::<Timestamp>().is_ok_and(|time| time.to_string() == *text)));
    }

    #[test]
    fn text_that_is_no_time_is_refused_with_an_example() {
        let error = "tomorrow".parse::<Timestamp>().expect_err("not a time");
        assert!(error.to_string().contains("`tomorrow` is not an RFC 3339 time"), "{error}");
    }
}
