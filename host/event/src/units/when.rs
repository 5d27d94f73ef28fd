//! Times as people give them: `2h` ago, or `2026-11-21T08:30:00Z`.

use std::str::FromStr;
use std::time::Duration;

use super::duration;
use crate::time::Timestamp;

/// A time, or how long ago it was.
#[doc(hidden)] // for our own program
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At this time.
    At(Timestamp),
    /// So long before now.
    Ago(Duration),
}

impl When {
    /// How a time is written.
    pub const HINT: &'static str = "write a span like 2h, or a time like 2026-11-21T08:30:00Z";

    /// The time, by the clock that tells `now`.
    #[must_use]
    pub fn from(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(span) => now.minus(span),
        }
    }
}

impl FromStr for When {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(span) = duration::parse(text) {
            return Ok(Self::Ago(span));
        }
        text.parse().map(Self::At).map_err(|_| Self::HINT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_given_as_such_or_as_how_long_ago() {
        let now = Timestamp::from_micros(10_000_000_000);
        assert_eq!("2h".parse::<When>().unwrap().from(now), now.minus(Duration::from_secs(7_200)));
        assert_eq!("1970-01-01T00:00:01Z".parse::<When>().unwrap().from(now), Timestamp::from_micros(1_000_000));
        assert!("yesterday".parse::<When>().unwrap_err().contains("2h"));
    }
}
