//! Data to stdout, all else to stderr.

mod table;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use outbox::Route;
use outbox::deceptive;
pub(crate) use outbox::deceptive::{argument, shown, visible};
use outbox::time::{Clock, SystemClock, Timestamp};
pub(crate) use outbox::units::{count, minutes_ago, number, relative_to, size, span};
use serde::Serialize;

use crate::failure::{Exit, Failure};
use crate::terminal;
pub(crate) use table::table;

/// How data is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One JSON document per line.
    Jsonl,
}

/// `--output`, for every command that shows something.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Output {
    /// The output format: a table, one JSON document, or one JSON document per line
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// Prints text as it is.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Prints one value: as JSON, or the text that `people` makes of it.
pub(crate) fn one<T: Serialize>(value: &T, format: Format, people: impl FnOnce(&T) -> String) -> Result<(), Failure> {
    print(&match format {
        Format::Table => people(value),
        Format::Json => json(value, true),
        Format::Jsonl => json(value, false),
    })
}

/// Prints many: as an array, as lines, or the text that `people` makes of them.
pub(crate) fn many<T: Serialize>(values: &[T], format: Format, people: impl FnOnce(&[T]) -> String) -> Result<(), Failure> {
    print(&match format {
        Format::Table => people(values),
        Format::Json => json(&values, true),
        Format::Jsonl => values.iter().map(|value| json(value, false)).collect(),
    })
}

fn json<T: Serialize>(value: &T, pretty: bool) -> String {
    let text = if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    let text = text.expect("rows and reports are plain data");
    // A terminal would obey some characters.
    let mut safe = deceptive::json(&text).into_owned();
    safe.push('\n');
    safe
}

/// What a colour means; people who cannot see it lose nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    /// Good.
    Green,
    /// It will hurt.
    Yellow,
    /// It hurts.
    Red,
    /// Less important than what stands beside it.
    Faint,
}

/// A text in a colour where a person looks at it on a terminal that has colours; as it is elsewhere.
pub(crate) fn paint(text: &str, colour: Colour) -> Cow<'_, str> {
    if !terminal::stdout_has_colours() {
        return Cow::Borrowed(text);
    }
    let code = match colour {
        Colour::Green => 32,
        Colour::Yellow => 33,
        Colour::Red => 31,
        Colour::Faint => 2,
    };
    Cow::Owned(format!("\u{1b}[{code}m{text}\u{1b}[0m"))
}

/// Names and values, one a line; the later lines of a value stand below its first.
pub(crate) fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    pairs.iter().fold(String::new(), |mut text, (name, value)| {
        let value = value.replace('\n', &format!("\n{:width$}  ", ""));
        let _ = writeln!(text, "{name:width$}  {value}");
        text
    })
}

/// Text that may have several lines, safe for a terminal, the later ones below the first.
pub(crate) fn lines(text: &str) -> String {
    text.lines().map(shown).collect::<Vec<_>>().join("\n  ")
}

/// Routes on one line.
pub(crate) fn routes(routes: &[Route]) -> String {
    if routes.is_empty() {
        return "-".to_owned();
    }
    routes.iter().map(|route| shown(&route.to_string()).into_owned()).collect::<Vec<_>>().join(", ")
}

/// The first of these routes on a line that fits, and how many there are beside; `-` for none.
pub(crate) fn some_of(routes: &[Route]) -> String {
    some_of_all(routes, 0)
}

/// The same of more routes than those that are known by name.
pub(crate) fn some_of_all(routes: &[Route], more: usize) -> String {
    const WIDTH: usize = 100;
    let all = routes.len().saturating_add(more);
    let (mut text, mut named) = (String::new(), 0);
    for route in routes {
        let route = shown(&route.to_string()).into_owned();
        if named > 0 && text.chars().count() + route.chars().count() + 2 > WIDTH {
            break;
        }
        if named > 0 {
            text.push_str(", ");
        }
        text.push_str(&short(&route, WIDTH));
        named += 1;
    }
    match (named, all - named) {
        (0, 0) => "-".to_owned(),
        (_, 0) => text,
        (0, more) => count(more as u64, "route"),
        (_, more) => format!("{text} and {more} more"),
    }
}

/// Bytes as people read them, safe for a terminal: text line by line, other bytes as base64.
pub(crate) fn bytes_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.lines().fold(String::new(), |safe, line| safe + &shown(line) + "\n"),
        Err(_) => data_encoding::BASE64.encode(bytes) + "\n",
    }
}

/// The beginning of a text, safe for a terminal.
pub(crate) fn short(text: &str, max: usize) -> String {
    let safe = shown(text);
    if safe.chars().count() <= max {
        return safe.into_owned();
    }
    let mut cut: String = safe.chars().take(max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// What is not there, as a dash.
pub(crate) fn or_dash(text: Option<&str>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| shown(text).into_owned())
}

/// `123.3 KiB (126,272 bytes)`; `512 B` says it all.
pub(crate) fn whole_size(bytes: u64) -> String {
    if bytes < 1_024 { size(bytes) } else { format!("{} ({} bytes)", size(bytes), number(bytes)) }
}

/// How far a time is from now.
pub(crate) fn relative(time: Timestamp) -> String {
    relative_to(time, SystemClock.now())
}

/// Asks before something that cannot be undone.
pub(crate) fn confirm(what: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !can_ask() {
        return Err(Failure::new(Exit::Usage, format!("this would {what}; add --yes to confirm")));
    }
    ask(&format!("This will {what}. Continue? [y/N] "))
}

/// Whether somebody sits there who can answer.
pub(crate) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks, and fails unless the answer is yes.
pub(crate) fn ask(question: &str) -> Result<(), Failure> {
    eprint!("{question}");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        Ok(())
    } else {
        Err(Failure::new(Exit::Failed, "nothing was done"))
    }
}

/// A running count on a terminal; nothing elsewhere.
pub(crate) fn progress(verb: &str, total: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
    let template = if total.is_some() {
        "{msg} {wide_bar} {human_pos}/{human_len} {rate}, {eta} left"
    } else {
        "{spinner} {msg} {human_pos} events, {rate}"
    };
    // A fraction of an event a second interests nobody.
    let rate = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        let _ = write!(text, "{:.0}/s", state.per_sec());
    };
    bar.set_style(ProgressStyle::with_template(template).expect("the template is ours").with_key("rate", rate));
    bar.set_message(verb.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Changes many events, with a running count on a terminal. A failure says how many had been changed before it: `done` is the
/// word for them, such as `deleted`.
pub(crate) async fn counting<T>(
    doing: &str,
    done: &str,
    total: u64,
    change: impl AsyncFnOnce(&mut (dyn FnMut(u64) + Send)) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let bar = progress(doing, Some(total));
    let mut events = 0;
    let mut so_far = |number| {
        events = number;
        bar.set_position(number);
    };
    let ended = change(&mut so_far).await;
    bar.finish_and_clear();
    ended.map_err(|failure| failure.after(events, done))
}

/// Shows on a terminal that something takes its time, until it is done; nothing elsewhere.
pub(crate) async fn busy<T>(verb: &str, work: impl Future<Output = T>) -> T {
    if !std::io::stderr().is_terminal() {
        return work.await;
    }
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("the template is ours"));
    bar.set_message(verb.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    let done = work.await;
    bar.finish_and_clear();
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_json_document_can_steer_the_terminal_and_its_strings_are_the_same() {
        let value = "a\u{9b}2J\u{202e}b\u{7f}\u{61c}\n\u{1b}ü葛\u{e0100}";
        for pretty in [false, true] {
            let text = json(&[value], pretty);
            assert!(!text.chars().any(|c| deceptive::is_deceptive(c) && c != '\n'), "{text}");
            assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), [value]);
        }
    }

    #[test]
    fn a_whole_size_says_the_bytes_too_where_the_unit_hides_them() {
        assert_eq!([1_023, 126_272].map(whole_size), ["1023 B", "123.3 KiB (126,272 bytes)"]);
    }

    #[test]
    fn a_text_that_is_cut_says_so() {
        assert_eq!([short("abcdef", 4), short("abcd", 4)], ["abc…", "abcd"]);
    }
}
