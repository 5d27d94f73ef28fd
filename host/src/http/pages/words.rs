//! How the pages say numbers, times and states. Pure; nothing here knows where a number comes from.

use std::time::Duration;

use maud::{Markup, html};

use crate::event::Status;
use crate::store::Record;
use crate::time::Timestamp;

/// Between the thousands of a number: narrow, and no place to break a line.
const SEPARATOR: char = '\u{202f}';

/// `10 000`, with narrow spaces.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(SEPARATOR);
        }
        text.push(digit);
    }
    text
}

/// `1 event`, `10 000 events`.
pub(super) fn count(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{} {noun}s", number(count)) }
}

/// `is` or `are`, by the number in front of it; `one` and `many` for other verbs.
pub(super) fn verb(count: u64, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// A rate or a measured value with two figures or more: `0.4`, `3.1`, `42`, `1 250`.
pub(super) fn figure(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value < 0.095 {
        format!("{value:.2}")
    } else if value < 9.95 {
        format!("{value:.1}")
    } else {
        // Rounded and cut to what a page can show.
        number(Duration::try_from_secs_f64(value.round()).map_or(u64::MAX, |whole| whole.as_secs()))
    }
}

/// A span in one unit with two figures: `0.4 ms`, `18 ms`, `1.2 s`, `42 s`, `4 min`, `5 h`, `12 d`.
pub(super) fn span(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    match seconds {
        0.0 => "0 s".to_owned(),
        s if s < 0.009_95 => format!("{:.1} ms", s * 1_000.0),
        s if s < 0.999_5 => format!("{:.0} ms", s * 1_000.0),
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 60.0 => format!("{} s", span.as_secs()),
        s if s < 3_600.0 => format!("{} min", span.as_secs() / 60),
        s if s < 172_800.0 => format!("{} h", span.as_secs() / 3_600),
        _ => format!("{} d", number(span.as_secs() / 86_400)),
    }
}

/// How far a time is from now: `12 s ago`, `in 42 s`, `now`.
pub(super) fn ago(time: Timestamp, now: Timestamp) -> String {
    let whole = |span: Duration| if span.as_secs() < 10 { Duration::from_secs(span.as_secs()) } else { span };
    let say = |distance: Duration| {
        if distance < Duration::from_secs(10) { format!("{} s", distance.as_secs()) } else { span(distance) }
    };
    if time > now {
        match whole(time.since(now)) {
            Duration::ZERO => "in a moment".to_owned(),
            distance => format!("in {}", say(distance)),
        }
    } else {
        match whole(now.since(time)) {
            Duration::ZERO => "just now".to_owned(),
            distance => format!("{} ago", say(distance)),
        }
    }
}

/// How far a time is from now, with the whole time to hover over and to copy.
pub(super) fn when(time: Timestamp, now: Timestamp) -> Markup {
    let whole = time.to_string();
    html! { time datetime=(whole) title=(whole) { (ago(time, now)) } }
}

/// As [`when`]; a dash for none.
pub(super) fn when_or_dash(time: Option<Timestamp>, now: Timestamp) -> Markup {
    match time {
        Some(time) => when(time, now),
        None => html! { "–" },
    }
}

/// The time of day in UTC, with the day where it is not the day of `now`: `14:02:11`, `2026-11-21 14:02:11`.
pub(super) fn clock(time: Timestamp, now: Timestamp) -> String {
    let (time, now) = (time.to_string(), now.to_string());
    let of_day = time.get(11..19).unwrap_or(&time);
    match (time.get(..10), now.get(..10)) {
        (Some(day), Some(today)) if day != today => format!("{day} {of_day}"),
        _ => of_day.to_owned(),
    }
}

/// A text on one line, cut to `most` characters.
pub(super) fn short(text: &str, most: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= most && line.len() == text.len() {
        return line.to_owned();
    }
    let mut cut: String = line.chars().take(most.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// A text whose hidden characters are written out: control characters, and the marks that turn the direction of text. Line breaks
/// stay.
pub(super) fn visible(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t')
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().fold(String::with_capacity(text.len()), |mut safe, c| {
        if is_hidden(c) {
            safe.extend(c.escape_unicode());
        } else {
            safe.push(c);
        }
        safe
    })
}

/// Whether every shell takes this text for one word, and no program for an option.
pub(super) fn is_word(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain)
}

/// Where an event stands, as people say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// Written, and not tried to an end yet.
    Waiting,
    /// Its time has not come: its writer or its listener asked for later.
    Delayed,
    /// With a host.
    InFlight,
    /// Its listener was done with it.
    Done,
    /// It failed, and is tried again.
    Retry,
    /// Given up.
    Dead,
    /// It waits for a listener, or for the end of a pause.
    Parked,
    /// It waits behind an earlier event of its aggregate.
    Blocked,
}

impl Stand {
    /// Where this row stands at `now`.
    pub(super) fn of(record: &Record, now: Timestamp) -> Self {
        match record.status {
            Status::Done => Self::Done,
            Status::Dead => Self::Dead,
            _ if record.lease_end.is_some_and(|end| end > now) => Self::InFlight,
            _ if record.behind.is_some() => Self::Blocked,
            _ if record.parked.is_some() => Self::Parked,
            Status::Retry => Self::Retry,
            Status::New if record.due_at.is_some_and(|due| due.max(record.available_at) > now) => Self::Delayed,
            Status::New => Self::Waiting,
        }
    }

    /// The word for it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delayed => "delayed",
            Self::InFlight => "in flight",
            Self::Done => "done",
            Self::Retry => "retry",
            Self::Dead => "dead",
            Self::Parked => "parked",
            Self::Blocked => "blocked",
        }
    }

    /// The class of its colour.
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delayed => "delayed",
            Self::InFlight => "in-flight",
            Self::Done => "done",
            Self::Retry => "retry",
            Self::Dead => "dead",
            Self::Parked => "parked",
            Self::Blocked => "blocked",
        }
    }

    /// Its shape, for whoever cannot tell the colours apart.
    pub(super) const fn shape(self) -> &'static str {
        match self {
            Self::Waiting => "○",
            Self::Delayed => "◷",
            Self::InFlight => "◐",
            Self::Done => "●",
            Self::Retry => "↻",
            Self::Dead => "✕",
            Self::Parked => "‖",
            Self::Blocked => "⊘",
        }
    }

    /// Shape and word in the colour of the state.
    pub(super) fn show(self) -> Markup {
        html! { span.state.(self.class()) { span aria-hidden="true" { (self.shape()) } " " (self.word()) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart_and_nouns_follow_their_number() {
        assert_eq!([0, 999, 10_000, 1_234_567].map(number), ["0", "999", "10\u{202f}000", "1\u{202f}234\u{202f}567"]);
        assert_eq!([0, 1, 17].map(|many| count(many, "event")), ["0 events", "1 event", "17 events"]);
    }

    #[test]
    fn figures_and_spans_have_two_figures_and_a_unit() {
        assert_eq!([0.0, 0.04, 0.44, 3.12, 41.6, 1_250.4].map(figure), ["0", "0.04", "0.4", "3.1", "42", "1\u{202f}250"]);
        let said = [0, 400, 18_000, 999_800, 1_200_000, 42_000_000, 250_000_000, 18_000_000_000, 1_036_800_000_000];
        let said = said.map(|micros| span(Duration::from_micros(micros)));
        assert_eq!(said, ["0 s", "0.4 ms", "18 ms", "1.0 s", "1.2 s", "42 s", "4 min", "5 h", "12 d"]);
    }

    #[test]
    fn a_time_is_told_by_its_distance_and_can_be_copied_whole() {
        let now: Timestamp = "2026-11-21T14:02:11Z".parse().unwrap();
        let at = |seconds: i64| Timestamp::from_micros(now.as_micros() + seconds * 1_000_000);
        assert_eq!(
            [-3_600, -12, -1, 0, 3, 42].map(|s| ago(at(s), now)),
            ["1 h ago", "12 s ago", "1 s ago", "just now", "in 3 s", "in 42 s"]
        );
        assert!(when(at(-12), now).into_string().contains("title=\"2026-11-21T14:01:59.000000Z\""));
        assert_eq!(clock(at(-12), now), "14:01:59");
        assert_eq!(clock(at(-86_400), now), "2026-11-20 14:02:11");
    }

    #[test]
    fn text_is_cut_at_its_first_line_and_hides_nothing() {
        assert_eq!([short("abcdef", 4), short("abc", 4), short("one\ntwo", 10)], ["abc…", "abc", "one…"]);
        assert_eq!(visible("a\u{1b}[31m\u{202e}b\nc"), "a\\u{1b}[31m\\u{202e}b\nc");
    }

    #[test]
    fn every_state_has_a_word_a_shape_and_a_colour_of_its_own() {
        let all = [
            Stand::Waiting,
            Stand::Delayed,
            Stand::InFlight,
            Stand::Done,
            Stand::Retry,
            Stand::Dead,
            Stand::Parked,
            Stand::Blocked,
        ];
        for (number, one) in all.iter().enumerate() {
            for other in &all[number + 1..] {
                assert!(
                    one.word() != other.word() && one.shape() != other.shape() && one.class() != other.class(),
                    "{one:?} {other:?}"
                );
            }
        }
    }
}
