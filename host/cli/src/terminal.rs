//! What the terminal can do: its colours and its width.

use std::ffi::OsString;
use std::io::IsTerminal;

use anstream::AutoStream;
use clap::{ColorChoice, ValueEnum};

/// The flag that decides about colours.
const FLAG: &str = "--color";

/// What `--color` says on this command line; `auto` when it is not there. Read before the command line is parsed, because help and
/// usage errors have colours, too. A value that is none is refused by the parser later.
pub(crate) fn wanted_colours(arguments: impl IntoIterator<Item = OsString>) -> ColorChoice {
    let arguments: Vec<String> = arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let ours = arguments.iter().position(|argument| argument == "--").map_or(&arguments[..], |end| &arguments[..end]);
    let pairs = ours.iter().zip(ours.iter().skip(1).map(Some).chain([None]));
    let given = pairs.filter_map(|(argument, next)| match argument.strip_prefix(FLAG)? {
        "" => next.map(String::as_str),
        rest => rest.strip_prefix('='),
    });
    given.last().and_then(|word| ColorChoice::from_str(word, false).ok()).unwrap_or_default()
}

/// Makes it the choice for everything that is printed. `auto` follows NO_COLOR, CLICOLOR, CLICOLOR_FORCE and TERM, and has
/// colours on a terminal only.
pub(crate) fn choose_colours(choice: ColorChoice) {
    match choice {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

/// Whether standard output shows colours.
pub(crate) fn stdout_has_colours() -> bool {
    AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}

/// Whether standard error shows colours.
pub(crate) fn stderr_has_colours() -> bool {
    AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
}

/// How many columns and rows standard output has; `None` when it is no terminal.
pub(crate) fn size() -> Option<(usize, usize)> {
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout))?.ok()?;
    // A terminal that does not know its size says 0.
    (size.ws_col > 0 && size.ws_row > 0).then(|| (usize::from(size.ws_col), usize::from(size.ws_row)))
}

/// How many columns standard output has; `None` when it is no terminal.
pub(crate) fn width() -> Option<usize> {
    size().map(|(columns, _)| columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_is_found_wherever_it_stands_and_the_last_one_counts() {
        let wanted = |line: &str| wanted_colours(line.split_whitespace().map(OsString::from));
        assert_eq!(wanted("outbox stats"), ColorChoice::Auto);
        assert_eq!(wanted("outbox --color always stats"), ColorChoice::Always);
        assert_eq!(wanted("outbox stats --color=never"), ColorChoice::Never);
        assert_eq!(wanted("outbox --color never stats --color=always"), ColorChoice::Always);
        for none in
            ["outbox stats --color", "outbox stats --color=purple", "outbox stats --colour=always", "outbox a -- --color=never"]
        {
            assert_eq!(wanted(none), ColorChoice::Auto, "{none}");
        }
    }
}
