//! What the program reads from the environment beside settings, and from the machine: names, directories, secrets.

use std::path::PathBuf;

use outbox::node::host_name;

use super::layers;
use crate::failure::{Exit, Failure};

/// Where compiled plugins are kept unless `plugins.cache_dir` says otherwise; `None` for a user without a home. Source: the XDG
/// base directory specification.
pub(crate) fn cache_dir() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "part of the one room that reads the environment")]
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = named("XDG_CACHE_HOME").or_else(|| named("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("outbox"))
}

/// The token for a host: that of the flag, or else of `OUTBOX_TOKEN`; references replaced. `None` when there is neither.
///
/// # Errors
/// When a reference leads nowhere. No message repeats a token.
pub(crate) fn token(flag: Option<&str>) -> Result<Option<String>, Failure> {
    #[expect(clippy::disallowed_methods, reason = "part of the one room that reads the environment")]
    let variable = || std::env::var_os("OUTBOX_TOKEN").filter(|token| !token.is_empty());
    let (name, written) = match flag {
        Some(flag) => ("--token", flag.to_owned()),
        None => match variable() {
            Some(token) => ("OUTBOX_TOKEN", token.to_string_lossy().into_owned()),
            None => return Ok(None),
        },
    };
    layers::expand(&written, &reference).map(Some).map_err(|why| Failure::new(Exit::Config, format!("{name}: {why}")))
}

/// What `RUST_LOG` asks to be logged; `None` when it is not set, or empty.
pub(crate) fn rust_log() -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "part of the one room that reads the environment")]
    let value = std::env::var_os("RUST_LOG")?;
    Some(value.to_string_lossy().into_owned()).filter(|value| !value.trim().is_empty())
}

/// Who runs this command, as far as the environment tells: `name@host`.
pub(crate) fn user_name() -> String {
    #[expect(clippy::disallowed_methods, reason = "part of the one room that reads the environment")]
    let name =
        ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()));
    let name = name.unwrap_or_else(|| user_called(rustix::process::getuid().as_raw()));
    format!("{name}@{}", host_name())
}

/// The name of a user of this machine; `uid 10001` where it has none.
pub(crate) fn user_called(id: u32) -> String {
    user_of(id, &std::fs::read_to_string("/etc/passwd").unwrap_or_default())
}

/// The name of a user ID in the text of a passwd file; `uid 10001` where it has none, as in most containers.
fn user_of(id: u32, users: &str) -> String {
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("uid {id}"))
}

/// Finds what `${env:NAME}` or `${file:PATH}` stands for.
pub(crate) fn reference(source: &str, name: &str) -> Result<String, String> {
    match source {
        "env" => {
            #[expect(clippy::disallowed_methods, reason = "part of the one room that reads the environment")]
            let value = std::env::var(name);
            value.map_err(|_| {
                format!("${{env:{name}}}: the environment variable {name} is not set; set it, or correct the name")
            })
        }
        "file" => std::fs::read_to_string(name)
            // Editors end files with a line break; no secret does.
            .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
            .map_err(|error| format!("${{file:{name}}}: {error}")),
        _ => Err(format!("${{{source}:{name}}} is not a reference; write ${{env:NAME}} or ${{file:PATH}}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_a_name_is_told_by_the_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nanna:x:1000:1000::/home/anna:/bin/sh\n:x:7:7::/:\nhalf a line\n";
        assert_eq!([0, 1000, 7, 10_001].map(|id| user_of(id, users)), ["root", "anna", "uid 7", "uid 10001"]);
        assert_eq!(user_of(0, ""), "uid 0");
    }
}
