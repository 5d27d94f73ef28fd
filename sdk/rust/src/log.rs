//! Lines for the host's log: [`trace!`](crate::trace!), [`debug!`](crate::debug!), [`info!`](crate::info!),
//! [`warn!`](crate::warn!) and [`error!`](crate::error!).
//!
//! Each takes what `format!` takes; fields come first, separated by a semicolon:
//!
//! ```
//! # use outbox_sdk::prelude::*;
//! # let (order_id, total) = (7, 9.5);
//! info!("order {order_id} placed");
//! info!(order_id = order_id, total = total; "order placed");
//! warn!(order_id = order_id; "total {:.2} looks high", total);
//! ```
//!
//! With the feature `log`, lines of the crate `log`, which many libraries write, take the same way.
//!
//! The host adds the plugin, its digest and the event's id to every line, and cuts long lines. In a native build, such as
//! a unit test, lines go to standard error, and [`testing::log`](crate::testing::log) has them.

use std::fmt::{Arguments, Display};

/// The level of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Every step.
    Trace,
    /// Details for finding a fault.
    Debug,
    /// What happened.
    Info,
    /// Unexpected, but the work goes on.
    Warn,
    /// Something failed.
    Error,
}

/// Whether the host keeps lines of this level, to avoid the cost of a line that is dropped. Always true in a native build.
#[must_use]
pub fn is_kept(level: Level) -> bool {
    #[cfg(target_family = "wasm")]
    return crate::bindings::outbox::listener::log::max_level().is_some_and(|most| level as u8 >= most as u8);
    #[cfg(not(target_family = "wasm"))]
    {
        let _ = level;
        true
    }
}

/// Writes one line. Values of any [`Display`] type make fields.
#[cfg(target_family = "wasm")]
pub fn write(level: Level, message: Arguments<'_>, fields: &[(&str, &dyn Display)]) {
    use crate::bindings::outbox::listener::log;

    let level = match level {
        Level::Trace => log::Level::Trace,
        Level::Debug => log::Level::Debug,
        Level::Info => log::Level::Info,
        Level::Warn => log::Level::Warn,
        Level::Error => log::Level::Error,
    };
    let fields: Vec<(String, String)> = fields.iter().map(|(key, value)| ((*key).to_owned(), value.to_string())).collect();
    match message.as_str() {
        Some(message) => log::write(level, message, &fields),
        None => log::write(level, &message.to_string(), &fields),
    }
}

/// Writes one line. Values of any [`Display`] type make fields.
#[cfg(not(target_family = "wasm"))]
#[expect(clippy::print_stderr, reason = "a native build is a test, and a test's log is its standard error")]
pub fn write(level: Level, message: Arguments<'_>, fields: &[(&str, &dyn Display)]) {
    let fields: String = fields.iter().map(|(key, value)| format!(" {key}={value}")).collect();
    let line = format!("{} {message}{fields}", format!("{level:?}").to_uppercase());
    eprintln!("{line}");
    crate::testing::with_host(|host| host.log.push(line));
}

/// Writes a line at a level that is a value. Fields stand in front, as for [`info!`](crate::info!).
#[macro_export]
macro_rules! log {
    ($level:expr, $($key:ident = $value:expr),+ ; $($message:tt)+) => {
        $crate::log::write($level, ::core::format_args!($($message)+), &[$((::core::stringify!($key), &$value)),+])
    };
    ($level:expr, $($message:tt)+) => {
        $crate::log::write($level, ::core::format_args!($($message)+), &[])
    };
}

/// Writes a line about every step. See [`log`](mod@crate::log).
#[macro_export]
macro_rules! trace {
    ($($line:tt)+) => { $crate::log!($crate::log::Level::Trace, $($line)+) };
}

/// Writes a line with details for finding a fault. See [`log`](mod@crate::log).
#[macro_export]
macro_rules! debug {
    ($($line:tt)+) => { $crate::log!($crate::log::Level::Debug, $($line)+) };
}

/// Writes a line about what happened. See [`log`](mod@crate::log).
#[macro_export]
macro_rules! info {
    ($($line:tt)+) => { $crate::log!($crate::log::Level::Info, $($line)+) };
}

/// Writes a line about something unexpected. See [`log`](mod@crate::log).
#[macro_export]
macro_rules! warn {
    ($($line:tt)+) => { $crate::log!($crate::log::Level::Warn, $($line)+) };
}

/// Writes a line about something that failed. See [`log`](mod@crate::log).
#[macro_export]
macro_rules! error {
    ($($line:tt)+) => { $crate::log!($crate::log::Level::Error, $($line)+) };
}
