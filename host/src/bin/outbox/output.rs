//! Data to stdout, all else to stderr.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use outbox::time::{Clock, SystemClock, Timestamp};
pub(crate) use outbox::units::{grouped, size};
use serde::Serialize;

use crate::config::no_color;
use crate::failure::{Exit, Failure};

/// How data is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One JSON document a line.
    Jsonl,
}

/// `--output`, for every command that shows something.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Output {
    /// How to print: for people, as one JSON document, or as one JSON document a line
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
    // Outside its strings JSON is printable ASCII, so only these are changed. A terminal would obey them.
    let mut safe = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        match c {
            c if is_hidden(c) && c != '\n' => safe.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => safe.push(c),
        }
    }
    safe.push('\n');
    safe
}

/// A table without borders, as wide as the terminal; a column whose name begins with `>` is aligned to the right.
pub(crate) fn table<R: IntoIterator<Item = String>>(header: &[&str], rows: impl IntoIterator<Item = R>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(|name| name.trim_start_matches('>').to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    for (column, name) in table.column_iter_mut().zip(header) {
        column.set_padding((0, 2));
        if name.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    lines(&table.to_string())
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
    if no_color() || !std::io::stdout().is_terminal() {
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

fn lines(text: &str) -> String {
    text.lines().fold(String::new(), |mut text, line| {
        text.push_str(line.trim_end());
        text.push('\n');
        text
    })
}

/// Text of a guest or a payload, safe for a terminal: nothing in it can move the cursor, colour, or hide what follows.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().fold(String::with_capacity(text.len() + 8), |mut safe, c| {
        if is_hidden(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
        safe
    }))
}

/// Control characters, and the marks that turn the direction of text.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Bytes as people read them, safe for a terminal: text line by line, other bytes as base64.
pub(crate) fn bytes_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.lines().fold(String::new(), |safe, line| safe + &shown(line) + "\n"),
        Err(_) => data_encoding::BASE64.encode(bytes) + "\n",
    }
}

/// A word of a command line as a shell takes it whole: in quotes where it has to be.
pub(crate) fn argument(word: &str) -> String {
    let word = shown(word);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
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

/// `1 event`, `2 events`.
pub(crate) fn count(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// `123.3 KiB (126,272 bytes)`; `512 B` says it all.
pub(crate) fn whole_size(bytes: u64) -> String {
    if bytes < 1_024 { size(bytes) } else { format!("{} ({} bytes)", size(bytes), grouped(bytes)) }
}

/// A span in one unit, as people say it.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 if span.is_zero() => "0s".to_owned(),
        0 => format!("{}ms", span.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How far a time is from now.
pub(crate) fn relative(time: Timestamp) -> String {
    relative_to(time, SystemClock::default().now())
}

/// How far a time is from another, which is the present one: `in 3s`, `3s ago`.
pub(crate) fn relative_to(time: Timestamp, now: Timestamp) -> String {
    if time > now { format!("in {}", span(time.since(now))) } else { format!("{} ago", span(now.since(time))) }
}

/// Asks before something that cannot be taken back.
pub(crate) fn confirm(what: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::new(Exit::Usage, format!("this would {what}; add --yes to do it without a question")));
    }
    eprint!("This will {what}. Continue? [y/N] ");
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
        "{msg} {wide_bar} {human_pos}/{human_len} {per_sec}, {eta} left"
    } else {
        "{spinner} {msg} {human_pos} events, {per_sec}"
    };
    bar.set_style(ProgressStyle::with_template(template).expect("the template is ours"));
    bar.set_message(verb.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_can_steer_the_terminal() {
        assert_eq!(shown("plain ünïcode"), "plain ünïcode");
        assert_eq!(shown("a\u{1b}[31mred\r\n"), "a\\u{1b}[31mred\\r\\n");
        assert_eq!(shown("\u{202e}txt.exe\u{9b}2J"), "\\u{202e}txt.exe\\u{9b}2J");
    }

    #[test]
    fn nothing_in_a_json_document_can_steer_the_terminal_and_its_strings_are_the_same() {
        let value = "a\u{9b}2J\u{202e}b\u{7f}\u{61c}\n\u{1b}ü";
        for pretty in [false, true] {
            let text = json(&[value], pretty);
            assert!(!text.chars().any(|c| is_hidden(c) && c != '\n'), "{text}");
            assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), [value]);
        }
    }

    #[test]
    fn a_word_that_a_shell_would_read_otherwise_is_quoted() {
        assert_eq!(argument("Order/OrderPlaced"), "Order/OrderPlaced");
        assert_eq!([argument("Order/*"), argument("it's"), argument("")], ["'Order/*'", r"'it'\''s'", "''"]);
    }

    #[test]
    fn a_whole_size_says_the_bytes_too_where_the_unit_hides_them() {
        assert_eq!([1_023, 126_272].map(whole_size), ["1023 B", "123.3 KiB (126,272 bytes)"]);
    }

    #[test]
    fn texts_are_cut_and_spans_are_said_in_one_unit() {
        assert_eq!(short("abcdef", 4), "abc…");
        let said = [0, 59, 60, 7_200, 864_000].map(|seconds| span(Duration::from_secs(seconds)));
        assert_eq!(said, ["0s", "59s", "1m", "2h", "10d"]);
    }

    #[test]
    fn a_table_is_plain_text_without_spaces_at_the_end() {
        let text = table(&[">n", "name"], [["7".to_owned(), "a".to_owned()], ["10".to_owned(), "bb".to_owned()]]);
        assert_eq!(text, " N  NAME\n 7  a\n10  bb\n");
    }
}
