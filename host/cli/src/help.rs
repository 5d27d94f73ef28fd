//! How help is laid out: the examples of each command as they were written, since one that is wrapped cannot be copied.

use clap::CommandFactory;

use crate::Cli;

/// How a command's help is laid out, but for its examples.
const HELP: &str = "{before-help}{about-with-newline}\n{usage-heading} {usage}\n\n{all-args}";

/// The command line, with the examples of each command as they were written: one that is wrapped cannot be copied.
pub(crate) fn command_line() -> clap::Command {
    with_whole_examples(Cli::command())
}

/// Puts the examples of a command, the first part of what stands below its help, where nothing is wrapped.
fn with_whole_examples(command: clap::Command) -> clap::Command {
    let command = command.mut_subcommands(with_whole_examples);
    let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if !below.starts_with("Example") {
        return command;
    }
    let (examples, prose) = below.split_once("\n\n").unwrap_or((&below, ""));
    command.help_template(format!("{HELP}\n\n{examples}{{after-help}}")).after_help(prose.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
    }

    /// Every command, with the words that lead to it.
    fn every_command(command: &clap::Command, words: &str, visit: &mut impl FnMut(&str, &clap::Command)) {
        visit(words, command);
        for below in command.get_subcommands() {
            every_command(below, &format!("{words} {}", below.get_name()), visit);
        }
    }

    #[test]
    fn every_help_fits_into_100_columns_and_no_example_of_it_is_wrapped() {
        let (mut examples, mut faults) = (0, Vec::new());
        every_command(&Cli::command(), "outbox", &mut |words, command| {
            let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for width in [100, 60] {
                let mut command = with_whole_examples(command.clone()).term_width(width);
                for help in [command.render_help().to_string(), command.render_long_help().to_string()] {
                    let long = help.lines().filter(|line| line.chars().count() > 100);
                    faults.extend(long.map(|line| format!("{words} at {width} is wider than 100 columns: {line}")));
                    for example in below.lines().filter(|line| line.starts_with("  ")) {
                        examples += 1;
                        if !help.lines().any(|line| line == example) {
                            faults.push(format!("{words} at {width} has no line: {example}"));
                        }
                    }
                }
            }
        });
        assert!(faults.is_empty(), "{faults:#?}");
        assert!(examples > 40 * 4, "only {examples} examples were looked at");
    }

    #[test]
    fn no_paragraph_below_a_help_is_broken_by_hand() {
        let mut faults = Vec::new();
        every_command(&Cli::command(), "outbox", &mut |words, command| {
            let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let is_text = |line: &str| !line.is_empty() && !line.starts_with("  ");
            for (line, next) in below.lines().zip(below.lines().skip(1)) {
                if is_text(line) && is_text(next) && !line.ends_with('.') {
                    faults.push(format!("{words}: {line}"));
                }
            }
        });
        assert!(faults.is_empty(), "{faults:#?}");
    }

    #[test]
    fn every_command_that_does_something_has_an_example() {
        every_command(&Cli::command(), "outbox", &mut |words, command| {
            let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let leads_on = command.has_subcommands() || command.is_hide_set() || command.get_name() == "version";
            let has_example = below.starts_with("Example:\n  outbox ") || below.starts_with("Examples:\n  outbox ");
            assert!(leads_on || has_example, "{words} has no example: {below}");
        });
    }
}
