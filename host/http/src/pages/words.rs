//! How the pages write times, texts and states; numbers and spans are written by `units`, as everywhere. Pure.

use maud::{Markup, html};
use outbox_event::Status;
use outbox_event::deceptive::is_deceptive;
use outbox_event::time::Timestamp;
use outbox_event::units::relative_to;
use outbox_store::Record;

/// `is` or `are`, by the number in front of it; `one` and `many` for other verbs.
pub(super) fn verb(count: u64, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// How far a time is from now, with the whole time to hover over and to copy.
pub(super) fn when(time: Timestamp, now: Timestamp) -> Markup {
    let whole = time.to_string();
    html! { time datetime=(whole) title=(whole) { (relative_to(time, now)) } }
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

/// A text whose deceptive characters are escaped. Line breaks and tabs stay.
pub(super) fn visible(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut safe, c| {
        if is_deceptive(c) && !matches!(c, '\n' | '\t') {
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
    /// Claimed by a host.
    Claimed,
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
            _ if record.lease_end.is_some_and(|end| end > now) => Self::Claimed,
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
            // What the table knows: an event that is held by its partition alone has no claim.
            Self::Claimed => "claimed",
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
            Self::Claimed => "in-flight",
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
            Self::Claimed => "◐",
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
    fn a_time_can_be_copied_whole() {
        let now: Timestamp = "2026-11-21T14:02:11Z".parse().unwrap();
        let at = |seconds: i64| Timestamp::from_micros(now.as_micros() + seconds * 1_000_000);
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
            Stand::Claimed,
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
