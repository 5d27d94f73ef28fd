//! Which variables of the environment are settings, which are mistyped, and which belong to somebody else.

use outbox::wording::nearest;

use super::Key;

/// What a variable that begins with `OUTBOX_` is.
#[derive(Debug, PartialEq)]
pub(super) enum Variable {
    /// The value of this key; whether the key exists is not looked at.
    Setting(Key),
    /// Almost a setting: what to write instead.
    Mistyped(String),
    /// Like no setting.
    Unknown,
    /// Nothing to us: another part of the program or another program sets it.
    Foreign,
}

/// Variables of the program that are written with one underscore.
const SHORT: [&str; 6] = ["CONFIG", "DATABASE_URL", "LOG", "MODE", "TOKEN", "URL"];
/// What manifests refer to, and what our tests and tools have.
const OTHERS: [&str; 3] = ["PLUGIN_", "TEST_", "CI_"];

/// What a variable is by its name, which begins with `OUTBOX_`. `known` are the keys of all settings.
pub(super) fn variable(name: &str, value: &str, known: &[String]) -> Variable {
    let rest = &name["OUTBOX_".len()..];
    let lower = rest.to_ascii_lowercase();
    match rest {
        "DATABASE_URL" => Variable::Setting(vec!["database".to_owned(), "url".to_owned()]),
        "LOG" => Variable::Setting(vec!["log".to_owned(), "level".to_owned()]),
        "MODE" => Variable::Setting(vec!["mode".to_owned()]),
        _ if SHORT.contains(&rest) || OTHERS.iter().any(|prefix| rest.starts_with(prefix)) => Variable::Foreign,
        _ if rest.contains("__") => Variable::Setting(lower.split("__").map(str::to_owned).collect()),
        _ if is_of_kubernetes(rest, value) => Variable::Foreign,
        _ => almost(&lower, known).map_or(Variable::Unknown, Variable::Mistyped),
    }
}

/// The variable that was probably meant. One underscore where two belong is the usual slip.
fn almost(rest: &str, known: &[String]) -> Option<String> {
    if let Some(known) = known.iter().find(|known| known.replace('.', "_") == rest) {
        return Some(format!("write {}", written(known)));
    }
    let section = format!("{rest}.");
    if known.iter().any(|known| known.starts_with(&section)) {
        return Some(format!("it names a section; write one of its settings, such as {}", first_of(&section, known)));
    }
    let flat: Vec<(String, String)> = known
        .iter()
        .map(|known| (known.replace('.', "_"), written(known)))
        .chain(SHORT.iter().map(|short| (short.to_ascii_lowercase(), format!("OUTBOX_{short}"))))
        .collect();
    // Stricter than for a key of a file: a short name of somebody else's is soon two letters away from one of ours.
    let near = nearest(rest, flat.iter().map(|(flat, _)| flat.as_str()))?;
    let is_close = strsim::levenshtein(rest, near) <= 1.max(rest.len() / 5);
    // Among equals the short one, which comes last.
    let meant = flat.iter().rev().find(|(flat, _)| flat == near).filter(|_| is_close)?;
    Some(format!("did you mean {}?", meant.1))
}

fn first_of(section: &str, known: &[String]) -> String {
    let url = format!("{section}url");
    let first = known.iter().find(|known| **known == url).or_else(|| known.iter().find(|known| known.starts_with(section)));
    match first.map(String::as_str) {
        Some("database.url") => "OUTBOX_DATABASE_URL".to_owned(),
        first => first.map(written).unwrap_or_default(),
    }
}

/// A key as a variable.
fn written(key: &str) -> String {
    format!("OUTBOX_{}", key.to_ascii_uppercase().replace('.', "__"))
}

/// Whether Kubernetes sets this variable for a service called `outbox`, or `outbox-…`: in every container of the namespace.
fn is_of_kubernetes(rest: &str, value: &str) -> bool {
    let of_service = |name: &str| rest == name || rest.ends_with(&format!("_{name}"));
    let has_protocol = ["_TCP", "_UDP", "_SCTP"].iter().any(|protocol| rest.contains(protocol));
    of_service("SERVICE_HOST")
        || of_service("SERVICE_PORT")
        || rest.starts_with("SERVICE_PORT_")
        || rest.contains("_SERVICE_PORT_")
        || rest == "PORT"
        || rest.ends_with("_PORT") && value.contains("://")
        || has_protocol && (rest.starts_with("PORT_") || rest.contains("_PORT_"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config::layers::Layers;

    fn of(name: &str, value: &str) -> Variable {
        variable(name, value, Layers::new(&Config::default()).known())
    }

    #[test]
    fn a_mistyped_variable_is_told_with_the_one_that_was_meant() {
        for (name, meant) in [
            ("OUTBOX_DATABSE_URL", "did you mean OUTBOX_DATABASE_URL?"),
            ("OUTBOX_DATABASE_URI", "did you mean OUTBOX_DATABASE_URL?"),
            ("OUTBOX_CONFIGS", "did you mean OUTBOX_CONFIG?"),
            ("OUTBOX_LOGS", "did you mean OUTBOX_LOG?"),
            ("OUTBOX_TOKENS", "did you mean OUTBOX_TOKEN?"),
            ("OUTBOX_DISPATCHER_WORKERS", "write OUTBOX_DISPATCHER__WORKERS"),
            ("OUTBOX_DISPATCHER_WORKER", "did you mean OUTBOX_DISPATCHER__WORKERS?"),
            ("OUTBOX_DATABASE_PORT", "write OUTBOX_DATABASE__PORT"),
            ("OUTBOX_DATABASE", "it names a section; write one of its settings, such as OUTBOX_DATABASE_URL"),
        ] {
            assert_eq!(of(name, "5432"), Variable::Mistyped(meant.to_owned()), "{name}");
        }
    }

    #[test]
    fn variables_of_others_are_nothing_to_us() {
        for (name, value) in [
            ("OUTBOX_PORT", "tcp://10.0.0.7:80"),
            ("OUTBOX_PORT_8080_TCP", "tcp://10.0.0.7:8080"),
            ("OUTBOX_PORT_8080_TCP_ADDR", "10.0.0.7"),
            ("OUTBOX_SERVICE_HOST", "10.0.0.7"),
            ("OUTBOX_SERVICE_PORT_HTTP", "8080"),
            ("OUTBOX_DATABASE_PORT", "tcp://10.0.0.7:5432"),
            ("OUTBOX_DATABASE_SERVICE_HOST", "10.0.0.7"),
            ("OUTBOX_DATABASE_SERVICE_PORT_SQL", "5432"),
            ("OUTBOX_DATABASE_PORT_5432_TCP_PROTO", "tcp"),
            ("OUTBOX_PLUGIN_MAILER__TOKEN", "x"),
            ("OUTBOX_PLUGIN_DISPATCHER_WORKERS", "8"),
            ("OUTBOX_TEST_PLUGINS", "x"),
            ("OUTBOX_CI_NO_DENY", "1"),
            ("OUTBOX_TOKEN", "x"),
            ("OUTBOX_CONFIG", "x"),
            ("OUTBOX_URL", "x"),
        ] {
            assert_eq!(of(name, value), Variable::Foreign, "{name}");
        }
        for name in ["OUTBOX_FOO", "OUTBOX_ENABLED", "OUTBOX_DB_URL", "OUTBOX_WEBHOOK_TOKEN"] {
            assert_eq!(of(name, "x"), Variable::Unknown, "{name}");
        }
    }
}
