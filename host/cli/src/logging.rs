//! Which log lines are written, and how they look.

mod escaping;

use outbox::time::{Clock, SystemClock, Timestamp};
use tracing_subscriber::EnvFilter;

use crate::config::layers::Origin;
use crate::config::{LogFormat, Settings, rust_log};
use crate::stderr::{self, Lines};
use crate::terminal;
use escaping::{EscapedFields, EscapedJson};

/// Begins logging. A host says what it does; other commands log only when something is wrong, unless a flag or a variable sets a level:
/// the level of the file is that of hosts.
///
/// `RUST_LOG` goes before the level of the file, module by module. What was said to this program alone, by a flag or by
/// `OUTBOX_LOG`, goes before both: `RUST_LOG` does not count then.
pub(crate) fn start(settings: &Settings, host: bool) {
    let log = &settings.config.log;
    let origin = settings.layers.origin("log.level").unwrap_or(&Origin::Default);
    let directives = directives(&log.level, origin, host);
    let more = rust_log().filter(|_| is_below_rust_log(origin));
    let both = more.as_ref().map(|more| EnvFilter::try_new(format!("{directives},{more}")));
    let alone = || EnvFilter::try_new(&directives).unwrap_or_else(|_| EnvFilter::new("info"));
    let (filter, fault) = match both {
        Some(Ok(both)) => (both, None),
        Some(Err(error)) => (alone(), Some(error)),
        None => (alone(), None),
    };
    let writer = if host { stderr::queue() } else { Lines::Direct };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    // Set once; a second time there is nothing to do.
    let _ = match log.format {
        LogFormat::Json => builder.json().flatten_event(true).map_event_format(EscapedJson).try_init(),
        LogFormat::Text => {
            builder.fmt_fields(EscapedFields).with_target(false).with_ansi(terminal::stderr_has_colours()).try_init()
        }
    };
    if let Some(error) = fault {
        // It is written for many programs: one that does not understand it is no reason to stand still.
        tracing::warn!("the variable RUST_LOG is ignored, because it is not a list of levels by module: {error}");
    }
}

/// Says what scripts wait for, whatever the level: a line of its own for people, a record like the others for machines.
pub(crate) fn announce(message: &str, format: LogFormat) {
    match format {
        LogFormat::Text => stderr::say(message),
        LogFormat::Json => stderr::say(&record(SystemClock.now(), message)),
    }
}

fn record(at: Timestamp, message: &str) -> String {
    let message = serde_json::Value::from(message);
    format!(r#"{{"timestamp":"{at}","level":"INFO","message":{message},"target":"outbox"}}"#)
}

/// Whether `RUST_LOG` goes before a level that was set there.
fn is_below_rust_log(origin: &Origin) -> bool {
    matches!(origin, Origin::Default | Origin::File(..))
}

/// What is logged by the configuration alone.
fn directives(level: &str, origin: &Origin, host: bool) -> String {
    let is_asked_for = host || !is_below_rust_log(origin);
    let level = if is_asked_for { level } else { "warn" };
    let plain = !level.contains(['=', ',']);
    // A bare level is meant for the host: at `debug` the compiler alone would say thousands of lines. The driver warns of each
    // connection that a restart cuts, and of each call that waits for another, and Kafka's client of each try to connect; the host says
    // once what failed and what it does.
    if plain && level != "off" {
        // Other commands than a host print why a plugin does not load, or a sink does not take a message.
        let printed = match (host, is_asked_for) {
            (true, _) => "",
            (false, true) => ",outbox::plugin_loads=off",
            (false, false) => ",outbox::plugin_loads=off,outbox::sink=off",
        };
        format!(
            "{level},sqlx=error,wasmtime=warn,wasmtime_wasi_http=error,cranelift_codegen=warn,krafka=off,async_nats=off{printed}"
        )
    } else {
        level.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scripts_wait_for_is_a_record_like_the_others() {
        let at = "2026-11-26T18:00:00Z".parse().unwrap();
        assert_eq!(
            record(at, "ready"),
            r#"{"timestamp":"2026-11-26T18:00:00.000000Z","level":"INFO","message":"ready","target":"outbox"}"#
        );
    }
}
