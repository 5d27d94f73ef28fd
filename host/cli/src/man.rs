//! `outbox man`: the help of each command as a manual page.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::failure::{Exit, Failure};
use crate::output::{self, count};

/// Print the manual page of a command, or write the pages of all commands into a directory
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  outbox man event list | man -l -\n  outbox man --out ~/.local/share/man/man1")]
pub(crate) struct ManCommand {
    /// The command, like `event list`; default outbox itself
    #[arg(conflicts_with = "out")]
    command: Vec<String>,
    /// Write a page for each command into this directory, which is created if it does not exist
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl ManCommand {
    /// `outbox` is the whole command line.
    pub(crate) fn run(self, outbox: clap::Command) -> Result<(), Failure> {
        let mut outbox = outbox.disable_help_subcommand(true);
        outbox.build();
        let Some(dir) = self.out else {
            return output::print(&page(&find(&outbox, &self.command)?));
        };
        let failed = |error| Failure::new(Exit::Failed, format!("{} cannot be written", dir.display())).because(error);
        fs::create_dir_all(&dir).map_err(failed)?;
        let written = write_all(&outbox, &dir).map_err(failed)?;
        eprintln!("{} written to {}", count(written, "page"), dir.display());
        Ok(())
    }
}

fn find(outbox: &clap::Command, words: &[String]) -> Result<clap::Command, Failure> {
    let mut found = outbox;
    for word in words {
        let below = found.find_subcommand(word).filter(|below| !below.is_hide_set());
        found = below.ok_or_else(|| {
            let names: Vec<&str> = visible(found).map(clap::Command::get_name).collect();
            let names = if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
            Failure::new(Exit::Usage, format!("{} has no command `{word}`; {names}", found.get_name()))
        })?;
    }
    Ok(found.clone())
}

fn visible(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set())
}

fn write_all(command: &clap::Command, dir: &Path) -> std::io::Result<u64> {
    let mut written = 1;
    fs::write(dir.join(Man::new(command.clone()).get_filename()), page(command))?;
    for below in visible(command) {
        written += write_all(below, dir)?;
    }
    Ok(written)
}

/// One page. What stands below a command's help is its examples, which must not be filled into lines, and then text.
fn page(command: &clap::Command) -> String {
    let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command.clone().after_help("").version(env!("CARGO_PKG_VERSION")))
        .source(concat!("outbox ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    let to_memory = "a Vec takes everything";
    man.render_title(&mut text).expect(to_memory);
    man.render_name_section(&mut text).expect(to_memory);
    man.render_synopsis_section(&mut text).expect(to_memory);
    man.render_description_section(&mut text).expect(to_memory);
    man.render_options_section(&mut text).expect(to_memory);
    if visible(command).next().is_some() {
        man.render_subcommands_section(&mut text).expect(to_memory);
    }
    let (examples, notes) = match below.split_once("\n\n") {
        _ if !below.starts_with("Example") => ("", below.as_str()),
        Some((examples, notes)) => (examples, notes),
        None => (below.as_str(), ""),
    };
    let mut roff = Roff::new();
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        roff.control("nf", []);
        for line in examples.lines().skip(1) {
            roff.text([roman(line.trim_start())]);
        }
        roff.control("fi", []);
    }
    if !notes.is_empty() {
        roff.control("SH", ["NOTES"]);
        roff.text([roman(notes.lines().map(str::trim).collect::<Vec<_>>().join(" "))]);
    }
    roff.to_writer(&mut text).expect(to_memory);
    String::from_utf8_lossy(&text).into_owned()
}
