//! Lines of the crate `log` on their way to the host.

use log::{LevelFilter, Log, Metadata, Record};

use crate::log::Level;

struct Bridge;

/// Makes the bridge the logger of this instance, unless the plugin has one of its own, down to the level that the host keeps now.
pub(crate) fn install() {
    // An error says that there is a logger already: this one, since the last call, or the plugin's own.
    let _ = log::set_logger(&Bridge);
    log::set_max_level(most());
}

impl Log for Bridge {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            crate::log::write(level(record.level()), *record.args(), &[("target", &record.target())]);
        }
    }

    fn flush(&self) {}
}

fn level(level: log::Level) -> Level {
    match level {
        log::Level::Trace => Level::Trace,
        log::Level::Debug => Level::Debug,
        log::Level::Info => Level::Info,
        log::Level::Warn => Level::Warn,
        log::Level::Error => Level::Error,
    }
}

#[cfg(target_family = "wasm")]
fn most() -> LevelFilter {
    use crate::bindings::outbox::listener::log;

    match log::max_level() {
        None => LevelFilter::Off,
        Some(log::Level::Trace) => LevelFilter::Trace,
        Some(log::Level::Debug) => LevelFilter::Debug,
        Some(log::Level::Info) => LevelFilter::Info,
        Some(log::Level::Warn) => LevelFilter::Warn,
        Some(log::Level::Error) => LevelFilter::Error,
    }
}

#[cfg(not(target_family = "wasm"))]
fn most() -> LevelFilter {
    LevelFilter::Trace
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_of_the_crate_log_goes_to_the_host() {
        super::install();

        log::warn!("odd: {}", 7);

        assert_eq!(crate::testing::log(), ["WARN odd: 7 target=outbox_sdk::log_bridge::tests"]);
    }
}
