//! Durations and sizes as people write them in a file, `"30s"`, `"1MiB"`; numbers, spans and times as people read and give them.

mod when;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
pub use when::When;

use crate::time::Timestamp;

/// The longest span that a configuration may name, a hundred years: it can be added to any time.
pub const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// What is wrong with a span that is given by a program, if it is too long.
#[doc(hidden)] // for the host
pub fn too_long(name: impl fmt::Display, span: Duration) -> Option<String> {
    (span > LONGEST).then(|| format!("{name} is {span:?}; a hundred years is the most"))
}

/// A number of bytes, written `"64MiB"`, `"4 kB"` or `1048576`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// This many times 1,048,576 bytes.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// This many times 1,024 bytes.
    #[must_use]
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// The number of bytes as an index; the largest index when it would not fit.
    #[must_use]
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
            if self.0 >= 1 << shift && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let factor: u64 = match text[digits..].trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "kb" => 1_000,
            "k" | "kib" => 1 << 10,
            "mb" => 1_000_000,
            "m" | "mib" => 1 << 20,
            "gb" => 1_000_000_000,
            "g" | "gib" => 1 << 30,
            _ => return Err(format!("`{text}` is not a size; write it like \"64MiB\", \"512KiB\" or 1048576")),
        };
        text[..digits]
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(factor))
            .map(Self)
            .ok_or_else(|| format!("`{text}` is not a size; write it like \"64MiB\", \"512KiB\" or 1048576"))
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = ByteSize;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size like \"64MiB\"")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_i64<E: serde::de::Error>(self, count: i64) -> Result<ByteSize, E> {
                u64::try_from(count)
                    .map(ByteSize)
                    .map_err(|_| E::custom(format!("{count} is not a size; it must not be negative")))
            }
            fn visit_u64<E: serde::de::Error>(self, count: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(count))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// A number as people read it: `200,000,000`.
#[doc(hidden)]
#[must_use]
pub fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate or a measured value with up to two figures, or more from 100 on: `<0.001`, `0.04`, `0.4`, `3.1`, `42`, `1,250`.
#[doc(hidden)]
#[must_use]
pub fn figure(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value < 0.000_5 {
        // Never a zero for something that happened.
        "<0.001".to_owned()
    } else if value < 0.009_5 {
        format!("{value:.3}")
    } else if value < 0.095 {
        format!("{value:.2}")
    } else if value < 9.95 {
        format!("{value:.1}")
    } else {
        // Rounded and cut to what can be shown.
        number(Duration::try_from_secs_f64(value.round()).map_or(u64::MAX, |whole| whole.as_secs()))
    }
}

/// A number of bytes as people read it: `512 B`, `2.0 KiB`, `1.1 MiB`.
#[doc(hidden)]
#[must_use]
pub fn size(bytes: u64) -> String {
    let tenths = |shift: u32| {
        let tenths = bytes.saturating_mul(10) >> shift;
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", tenths(10)),
        _ => format!("{} MiB", tenths(20)),
    }
}

/// `1 event`, `10,000 events`.
#[doc(hidden)]
#[must_use]
pub fn count(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{} {noun}s", number(count)) }
}

/// A span in one unit with two figures: `0.4 ms`, `18 ms`, `1.2 s`, `42 s`, `4 min`, `5 h`, `12 d`.
#[doc(hidden)]
#[must_use]
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    match seconds {
        0.0 => "0 s".to_owned(),
        s if s < 0.009_95 => format!("{:.1} ms", s * 1_000.0),
        s if s < 0.999_5 => format!("{:.0} ms", s * 1_000.0),
        s if s < 9.95 && span.subsec_nanos() != 0 => format!("{s:.1} s"),
        s if s < 60.0 => format!("{} s", span.as_secs()),
        s if s < 3_600.0 => format!("{} min", span.as_secs() / 60),
        s if s < 172_800.0 => format!("{} h", span.as_secs() / 3_600),
        _ => format!("{} d", number(span.as_secs() / 86_400)),
    }
}

/// How far a time is from another, which is the present one, in whole seconds or more: `12 s ago`, `in 42 s`, `just now`.
#[doc(hidden)]
#[must_use]
pub fn relative_to(time: Timestamp, now: Timestamp) -> String {
    let say = |distance: Duration| if distance.as_secs() < 10 { format!("{} s", distance.as_secs()) } else { span(distance) };
    let (ahead, behind) = (time.since(now), now.since(time));
    match (ahead.as_secs(), behind.as_secs()) {
        (0, 0) if time > now => "in a moment".to_owned(),
        (0, 0) => "just now".to_owned(),
        (0, _) => format!("{} ago", say(behind)),
        _ => format!("in {}", say(ahead)),
    }
}

/// As [`relative_to`], for a time of which only the minute is certain: `within the last minute`, `5 min ago`.
#[doc(hidden)]
#[must_use]
pub fn minutes_ago(time: Timestamp, now: Timestamp) -> String {
    if now.since(time) < Duration::from_secs(60) { "within the last minute".to_owned() } else { relative_to(time, now) }
}

/// `"30s"` ↔ [`Duration`]; for `#[serde(with = "outbox::units::duration")]`.
pub mod duration {
    use serde::de::{Error, Visitor};

    use super::{Deserializer, Duration, LONGEST, Serializer, fmt};

    /// Writes `30s`.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(*span))
    }

    /// Reads `30s`.
    ///
    /// # Errors
    /// When the value is no duration, or a longer one than [`LONGEST`].
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        deserializer.deserialize_any(Written)
    }

    /// The span that a text such as `1h 30m` names.
    ///
    /// # Errors
    /// When it is no duration, or a longer one than [`LONGEST`]; the text says what to write.
    #[doc(hidden)] // for our own program
    pub fn parse(text: &str) -> Result<Duration, String> {
        let span = humantime::parse_duration(text).map_err(|_| {
            let why = match text.trim() {
                text if text.starts_with('-') => "is negative, and no duration is",
                text if text.parse::<f64>().is_ok() => "has no unit",
                _ => "is not a duration",
            };
            format!("`{text}` {why}; write it like \"30s\", \"250ms\" or \"1h 30m\"")
        })?;
        if span > LONGEST {
            return Err(format!("`{text}` is too long; a hundred years is the most"));
        }
        Ok(span)
    }

    struct Written;

    impl Visitor<'_> for Written {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration like \"30s\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
            parse(text).map_err(E::custom)
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<Duration, E> {
            parse(&number.to_string()).map_err(E::custom)
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<Duration, E> {
            parse(&number.to_string()).map_err(E::custom)
        }

        fn visit_f64<E: Error>(self, number: f64) -> Result<Duration, E> {
            parse(&number.to_string()).map_err(E::custom)
        }
    }
}

/// `"30s"` or nothing ↔ `Option<Duration>`; for `#[serde(with = "outbox::units::duration_option", default)]`.
pub mod duration_option {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    /// Writes `30s`, or nothing.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => super::duration::serialize(span, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads `30s`.
    ///
    /// # Errors
    /// When the text is no duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        #[derive(Deserialize)]
        struct Span(#[serde(with = "super::duration")] Duration);
        Ok(Option::<Span>::deserialize(deserializer)?.map(|span| span.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them_and_written_back() {
        for (text, bytes) in [("64MiB", 64 << 20), ("4 kB", 4_000), ("1048576", 1 << 20), ("2g", 2 << 30)] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        assert_eq!(ByteSize::mib(64).to_string(), "64MiB");
        assert!("64 parsecs".parse::<ByteSize>().is_err());
    }

    #[test]
    fn numbers_and_sizes_can_be_read_at_a_glance() {
        assert_eq!([0, 999, 8_812, 200_000_000].map(number), ["0", "999", "8,812", "200,000,000"]);
        assert_eq!([0, 1_023, 1_024, 1_048_576, 67_108_864].map(size), ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "64.0 MiB"]);
    }

    #[test]
    fn a_span_that_no_time_could_be_added_to_is_refused() {
        #[derive(Deserialize)]
        struct Written {
            #[serde(with = "duration")]
            rest: Duration,
        }
        let read =
            |text: &str| serde_json::from_value::<Written>(serde_json::json!({ "rest": text })).map(|written| written.rest);
        assert_eq!(read("36500days").unwrap(), LONGEST);
        let fault = read("18446744073709551615s").unwrap_err().to_string();
        assert!(fault.contains("`18446744073709551615s` is too long"), "{fault}");
    }

    #[test]
    fn a_number_without_a_unit_is_no_duration_and_says_so() {
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "only read")]
        struct Written {
            #[serde(with = "duration")]
            rest: Duration,
        }
        for value in [serde_json::json!(60), serde_json::json!(1.5), serde_json::json!("60")] {
            let fault = serde_json::from_value::<Written>(serde_json::json!({ "rest": value })).unwrap_err().to_string();
            assert!(fault.contains("has no unit; write it like \"30s\""), "{fault}");
        }
        assert_eq!(duration::parse("1h 30m"), Ok(Duration::from_secs(5_400)));
        assert!(duration::parse("soon").unwrap_err().contains("`soon` is not a duration"));
        assert!(duration::parse("-1s").unwrap_err().contains("`-1s` is negative"));
    }

    #[test]
    fn figures_and_spans_have_two_figures_and_a_unit() {
        assert_eq!([0.0, 0.04, 0.44, 3.12, 41.6, 1_250.4].map(figure), ["0", "0.04", "0.4", "3.1", "42", "1,250"]);
        assert_eq!([0.003_3, 0.000_1].map(figure), ["0.003", "<0.001"], "what happened is never told as a zero");
        let said = [0, 400, 18_000, 999_800, 1_200_000, 2_000_000, 42_000_000, 250_000_000, 18_000_000_000, 1_036_800_000_000];
        let said = said.map(|micros| span(Duration::from_micros(micros)));
        assert_eq!(said, ["0 s", "0.4 ms", "18 ms", "1.0 s", "1.2 s", "2 s", "42 s", "4 min", "5 h", "12 d"]);
    }

    #[test]
    fn a_time_is_told_by_its_distance_and_nouns_follow_their_number() {
        let now: Timestamp = "2026-11-21T14:02:11Z".parse().unwrap();
        let at = |millis: i64| Timestamp::from_micros(now.as_micros() + millis * 1_000);
        assert_eq!(
            [-3_600_000, -12_000, -1_500, -999, 0, 999, 3_900, 42_000].map(|millis| relative_to(at(millis), now)),
            ["1 h ago", "12 s ago", "1 s ago", "just now", "just now", "in a moment", "in 3 s", "in 42 s"]
        );
        assert_eq!([0, 1, 10_000].map(|many| count(many, "event")), ["0 events", "1 event", "10,000 events"]);
    }
}
