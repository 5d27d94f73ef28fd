//! `outbox plugin new`: a project that builds and passes as it is.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use outbox::Route;

use super::language::Language;
use super::template::{self, Values};
use crate::failure::{Exit, Failure};
use crate::output::{self, argument};

/// Create a plugin project with the SDK, tests, a sample event and test cases, ready to build
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  outbox plugin new greeter --lang rust\n  \
                        outbox plugin new order-mailer --lang python --route Order/OrderPlaced --dir plugins/order-mailer")]
pub(crate) struct New {
    /// The plugin's name: lowercase letters, digits and dashes
    name: String,
    /// The project's language
    #[arg(long, short, value_enum, value_name = "LANGUAGE")]
    lang: Language,
    /// The route that it answers: AGGREGATE_TYPE/EVENT_TYPE
    #[arg(long, value_name = "A/T", default_value = "Order/OrderPlaced")]
    route: String,
    /// The folder to create, which must be empty or missing; default NAME
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl New {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Self { name, lang, route, dir } = self;
        check_name(&name).map_err(|why| Failure::new(Exit::Usage, format!("`{name}` is not a valid plugin name: {why}")))?;
        let route = route_of(&route)?;
        let folder = dir.unwrap_or_else(|| PathBuf::from(&name));
        if fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some()) {
            let what = format!("{} already exists and is not empty; name another folder with --dir", folder.display());
            return Err(Failure::new(Exit::Conflict, what));
        }

        let values =
            Values { name: &name, aggregate_type: route.aggregate_type.as_str(), event_type: route.event_type.as_str() };
        let files = template::files(lang, &values);
        for (path, text) in &files {
            write(&folder.join(path), text)?;
        }
        output::print(&summary(&name, lang, &folder))
    }
}

/// Never over a file that is there, not even one that came while this ran.
fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let made = file.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
        let mut made = fs::OpenOptions::new().write(true).create_new(true).open(file)?;
        made.write_all(text.as_bytes())
    });
    made.map_err(|error| {
        let exit = if error.kind() == ErrorKind::AlreadyExists { Exit::Conflict } else { Exit::Failed };
        Failure::new(exit, format!("{} cannot be written", file.display())).because(error)
    })
}

fn summary(name: &str, language: Language, folder: &Path) -> String {
    let mut commands = vec![(format!("cd {}", folder.display()), "")];
    commands.extend(template::steps(language, name));
    commands.push((format!("cp {name}.toml /path/to/plugins/"), "copy the manifest to the plugins directory of a host"));
    commands.push((format!("outbox plugin build --out /path/to/plugins/{name}.wasm"), "then build the component into it"));
    let event = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()).join("fixtures/event.json");
    let emit = format!("outbox event emit --jsonl {}", argument(&event.to_string_lossy()));
    commands.push((emit, "write a sample event; run this where the outbox.toml of the host is"));
    format!(
        "{} is a plugin project in {}: its code is in {}, and {} explains the rest\nnext:\n{}",
        folder.display(),
        language.name(),
        folder.join(template::source(language)).display(),
        folder.join("README.md").display(),
        template::lined_up(&commands, "  ")
    )
}

/// A name becomes that of a file, a package and a module in any of the languages.
fn check_name(name: &str) -> Result<(), &'static str> {
    const MOST: usize = 64;
    if name.is_empty() || name.len() > MOST {
        return Err("it must have 1 to 64 characters");
    }
    if !name.chars().all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-') {
        return Err("it must consist of lowercase letters a to z, digits and dashes");
    }
    if !name.starts_with(|char: char| char.is_ascii_lowercase()) || name.ends_with('-') || name.contains("--") {
        return Err("it must begin with a letter, and have single dashes between words");
    }
    if TAKEN.contains(&name) {
        return Err("it is a keyword, or the name of a package; add a word, such as order-greeter");
    }
    Ok(())
}

/// Keywords, and names of packages that a project needs.
const TAKEN: [&str; 62] = [
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "build",
    "clippy",
    "const",
    "continue",
    "core",
    "crate",
    "deny",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "main",
    "match",
    "mod",
    "move",
    "mut",
    "outbox",
    "outbox-sdk",
    "override",
    "priv",
    "proc-macro",
    "pub",
    "pyproject",
    "ref",
    "return",
    "rustfmt",
    "self",
    "serde",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "unsafe",
    "use",
    "where",
    "while",
    "yield",
];

/// The route stands in source code as it is, so it may hold no quotes and no line ends.
fn route_of(text: &str) -> Result<Route, Failure> {
    let wrong = |why: &str| Failure::new(Exit::Usage, format!("--route is `{text}`: {why}"));
    let (aggregate_type, event_type) =
        text.split_once('/').ok_or_else(|| wrong("write it like Order/OrderPlaced: aggregate type, slash, event type"))?;
    if aggregate_type.contains('*') || event_type.contains('*') {
        return Err(wrong("a plugin names each event type that it answers; `*` is only for relays to sinks"));
    }
    let is_plain = |name: &str| name.chars().all(|char| char.is_ascii_alphanumeric() || "_.:-".contains(char));
    if !is_plain(aggregate_type) || !is_plain(event_type) {
        return Err(wrong(
            "only letters, digits and _ . : - can be written into a project; for another name, change it in the code afterwards",
        ));
    }
    Route::new(aggregate_type, event_type).map_err(|error| wrong(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_every_language() {
        for name in ["greeter", "order-mailer", "a1", "x-2-y"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in ["", "Greeter", "1st", "a_b", "a--b", "a-", "-a", "fn", "outbox-sdk", "../up", "a b", "ü", &"x".repeat(65)]
        {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_route_that_would_break_the_source_is_refused() {
        assert_eq!(route_of("Order/order.placed:v1").unwrap().event_type.as_str(), "order.placed:v1");
        for route in ["Order", "Order/", "/OrderPlaced", "Order/Order\"Placed", "Order/a\nb", "Order/a/b", "Order/\\"] {
            assert!(route_of(route).is_err(), "{route:?}");
        }
    }
}
