//! Log lines on stderr.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, Settings, no_color};

/// Begins logging. A host says what it does; other commands speak up only when something is wrong, unless a level was set.
pub(crate) fn start(settings: &Settings, host: bool) {
    let log = &settings.config.log;
    let level = if host || settings.is_set("log.level") { log.level.as_str() } else { "warn" };
    let plain = !level.contains(['=', ',']);
    // A bare level is meant for the host: at `debug` the compiler alone would say thousands of lines. The driver warns of each
    // connection that a restart cuts, and of each call that waits for another; the host says once what failed and what it does.
    let directives = if plain && level != "off" {
        format!("{level},sqlx=error,wasmtime=warn,cranelift_codegen=warn")
    } else {
        level.to_owned()
    };
    let filter = EnvFilter::try_new(directives).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Set once; a second time there is nothing to do.
    let _ = match log.format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_target(false).with_ansi(std::io::stderr().is_terminal() && !no_color()).try_init(),
    };
}
