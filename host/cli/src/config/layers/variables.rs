//! Which variables of the environment are settings, which are mistyped, and which belong to somebody else.

use std::fmt;

use outbox::Mode;
use outbox::wording::nearest;

use super::{Key, flat, meant};

/// What a variable that begins with `OUTBOX_` is.
#[derive(Debug, PartialEq)]
pub(super) enum Variable {
    /// The value of this key; whether the key exists is not looked at.
    Setting(Key),
    /// Almost a setting, and nobody else's by chance: what to write instead.
    Mistyped(String),
    /// No setting; it may be somebody else's.
    Ignored(Ignored),
    /// Nothing to us: another part of the program or another program sets it.
    Foreign,
}

/// A variable that begins with `OUTBOX_`, and that nothing here reads. Shown as one sentence.
#[derive(Debug, PartialEq)]
pub(crate) struct Ignored {
    pub(crate) variable: String,
    /// What it is.
    pub(crate) what: String,
    /// What to do.
    pub(crate) fix: String,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.fix)
    }
}

/// Variables of the program that are written with one underscore.
const SHORT: [&str; 5] = ["CONFIG", "DATABASE_URL", "LOG", "MODE", "TOKEN"];
/// What manifests refer to, and what our tests and tools have.
const OTHERS: [&str; 3] = ["PLUGIN_", "TEST_", "CI_"];
/// No name this long, that of `DATABASE_URL`, comes near one of ours by chance.
const LONG: usize = "DATABASE_URL".len();
/// For each section the setting that is most likely to be set.
const EXAMPLES: [&str; 11] = [
    "breaker.threshold",
    "database.url",
    "dispatcher.workers",
    "http.listen",
    "log.level",
    "metrics.interval",
    "order.on_dead",
    "plugins.dir",
    "poller.interval",
    "purge.retention",
    "retry.policy",
];

/// What a variable is by its name, which begins with `OUTBOX_`. `known` are the keys of all settings.
pub(super) fn variable(name: &str, value: &str, known: &[String]) -> Variable {
    let rest = &name["OUTBOX_".len()..];
    let lower = rest.to_ascii_lowercase();
    match rest {
        "DATABASE_URL" => Variable::Setting(vec!["database".to_owned(), "url".to_owned()]),
        "LOG" => Variable::Setting(vec!["log".to_owned(), "level".to_owned()]),
        "MODE" => Variable::Setting(vec!["mode".to_owned()]),
        // Whoever sets it expects commands to ask that host, and not to change the database of this one.
        "URL" => Variable::Mistyped("no variable sets the address of a host; use --url, and unset this variable".to_owned()),
        _ if rest.starts_with("PLUGIN__") && known.contains(&lower.replace("plugin__", "plugins.")) => {
            Variable::Mistyped(format!("write OUTBOX_{}", rest.replace("PLUGIN__", "PLUGINS__")))
        }
        _ if SHORT.contains(&rest) || OTHERS.iter().any(|prefix| rest.starts_with(prefix)) => Variable::Foreign,
        // The name of a service may have two hyphens in a row.
        _ if is_of_kubernetes(rest, value) && !is_key(&lower, known) => Variable::Foreign,
        _ if rest.contains("__") => Variable::Setting(lower.split("__").map(str::to_owned).collect()),
        "DATABASE" => Variable::Mistyped("write OUTBOX_DATABASE_URL".to_owned()),
        _ if nearest(&lower, ["mode"]).is_some() && is_mode(value) => {
            Variable::Mistyped("did you mean OUTBOX_MODE?".to_owned())
        }
        _ => unread(name, &lower, known),
    }
}

fn is_mode(value: &str) -> bool {
    serde_json::from_value::<Mode>(value.into()).is_ok()
}

/// Whether a variable in lower case is a setting, or of a section whose keys its users choose.
fn is_key(lower: &str, known: &[String]) -> bool {
    known.contains(&lower.replace("__", "."))
        || ["plugins__", "sinks__", "routes__"].iter().any(|start| lower.starts_with(start))
}

/// A variable that no setting reads: refused where it can only be a slip, and where a host would otherwise run on something
/// else than was meant. One underscore where two belong is the usual slip.
fn unread(name: &str, rest: &str, known: &[String]) -> Variable {
    if let Some(known) = known.iter().find(|known| flat(known) == rest) {
        return Variable::Mistyped(format!("write {}", written(known)));
    }
    let ignored = |is: &str, fix: String| {
        let what = format!("the environment variable {name} is {is}, and is ignored");
        Variable::Ignored(Ignored { variable: name.to_owned(), what, fix })
    };
    if let Some(example) = EXAMPLES.iter().find(|key| key.split('.').next() == Some(rest)) {
        return ignored("a section, not a setting", format!("write for example {}", written(example)));
    }
    let names: Vec<String> = known.iter().cloned().chain(SHORT.iter().map(|short| short.to_ascii_lowercase())).collect();
    let Some(meant) = meant(rest, &names) else {
        let fix = "`outbox config show` shows all settings; give a variable of another program another name, or unset it";
        return ignored("not a setting", fix.to_owned());
    };
    let fix = format!("did you mean {}?", written(meant));
    let meant = flat(meant);
    let is_slip = nearest(rest, [meant.as_str()]).is_some() && (meant.len() >= LONG || meant == "config");
    if is_slip { Variable::Mistyped(fix) } else { ignored("not a setting", fix) }
}

/// A key as a variable.
fn written(key: &str) -> String {
    match key {
        "database.url" => "OUTBOX_DATABASE_URL".to_owned(),
        "log.level" => "OUTBOX_LOG".to_owned(),
        key => format!("OUTBOX_{}", key.to_ascii_uppercase().replace('.', "__")),
    }
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
    fn a_variable_that_can_only_be_a_slip_is_refused_with_the_one_that_was_meant() {
        for (name, meant) in [
            ("OUTBOX_DATABSE_URL", "did you mean OUTBOX_DATABASE_URL?"),
            ("OUTBOX_DATABASE_URI", "did you mean OUTBOX_DATABASE_URL?"),
            ("OUTBOX_CONFIGS", "did you mean OUTBOX_CONFIG?"),
            ("OUTBOX_DISPATCHER_WORKERS", "write OUTBOX_DISPATCHER__WORKERS"),
            ("OUTBOX_HTTP_LISTEN", "write OUTBOX_HTTP__LISTEN"),
            ("OUTBOX_LOG_LEVEL", "write OUTBOX_LOG"),
            ("OUTBOX_DISPATCHER_WORKER", "did you mean OUTBOX_DISPATCHER__WORKERS?"),
            ("OUTBOX_DATABASE_PORT", "write OUTBOX_DATABASE__PORT"),
            ("OUTBOX_PLUGIN__DIR", "write OUTBOX_PLUGINS__DIR"),
            ("OUTBOX_DATABASE", "write OUTBOX_DATABASE_URL"),
            ("OUTBOX_URL", "no variable sets the address of a host; use --url, and unset this variable"),
        ] {
            assert_eq!(of(name, "5432"), Variable::Mistyped(meant.to_owned()), "{name}");
        }
    }

    #[test]
    fn a_variable_that_may_be_somebody_elses_is_ignored_and_told_with_the_one_that_may_be_meant() {
        for (name, is, fix) in [
            ("OUTBOX_NODE", "not a setting", "did you mean OUTBOX_MODE?"),
            ("OUTBOX_CODE", "not a setting", "did you mean OUTBOX_MODE?"),
            ("OUTBOX_MODEL", "not a setting", "did you mean OUTBOX_MODE?"),
            ("OUTBOX_LAG", "not a setting", "did you mean OUTBOX_LOG?"),
            ("OUTBOX_TOKENS", "not a setting", "did you mean OUTBOX_TOKEN?"),
            ("OUTBOX_HTTP_TOKEN", "not a setting", "did you mean OUTBOX_HTTP__TOKENS?"),
            ("OUTBOX_WORKERS", "not a setting", "did you mean OUTBOX_DISPATCHER__WORKERS?"),
            ("OUTBOX_LISTEN", "not a setting", "did you mean OUTBOX_HTTP__LISTEN?"),
            ("OUTBOX_PLUGINS", "a section, not a setting", "write for example OUTBOX_PLUGINS__DIR"),
            ("OUTBOX_METRICS", "a section, not a setting", "write for example OUTBOX_METRICS__INTERVAL"),
            (
                "OUTBOX_FOO",
                "not a setting",
                "`outbox config show` shows all settings; give a variable of another program another name, or unset it",
            ),
        ] {
            let Variable::Ignored(ignored) = of(name, "worker-3") else { panic!("{name} is not ignored") };
            assert_eq!(ignored.to_string(), format!("the environment variable {name} is {is}, and is ignored; {fix}"));
        }
    }

    #[test]
    fn a_slip_of_the_mode_with_a_mode_for_its_value_is_refused() {
        assert_eq!(of("OUTBOX_MOD", "ordered"), Variable::Mistyped("did you mean OUTBOX_MODE?".to_owned()));
        assert!(matches!(of("OUTBOX_NODE", "ordered-1"), Variable::Ignored(_)));
    }

    #[test]
    fn a_setting_whose_users_choose_its_name_is_not_taken_for_one_of_kubernetes() {
        for name in ["OUTBOX_PLUGINS__MAILER__CONFIG__MAIL_SERVICE_HOST", "OUTBOX_SINKS__A__X_SERVICE_PORT"] {
            assert!(matches!(of(name, "10.0.0.8"), Variable::Setting(_)), "{name}");
        }
    }

    #[test]
    fn every_section_has_an_example_and_every_example_is_a_setting() {
        let layers = Layers::new(&Config::default());
        for known in layers.known() {
            let Some((section, _)) = known.split_once('.') else { continue };
            assert!(EXAMPLES.iter().any(|example| example.split('.').next() == Some(section)), "{section}");
        }
        for example in EXAMPLES {
            assert!(layers.known().iter().any(|known| known == example), "{example}");
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
            ("OUTBOX_HTTP__METRICS_SERVICE_HOST", "10.0.0.7"),
        ] {
            assert_eq!(of(name, value), Variable::Foreign, "{name}");
        }
    }
}
