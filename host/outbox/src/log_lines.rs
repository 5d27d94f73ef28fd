//! What is logged on one thread, for tests.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{self, DefaultGuard};
use tracing::{Event, Metadata, Subscriber};

/// The log lines of this thread, as long as this value lives.
pub(crate) struct LogLines {
    lines: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

struct Collector(Arc<Mutex<Vec<String>>>);

impl LogLines {
    /// Begins to collect.
    pub(crate) fn of_this_thread() -> Self {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        Self { _guard: subscriber::set_default(Collector(lines.clone())), lines }
    }

    /// Those that contain a text, each as `LEVEL message name=value …`.
    pub(crate) fn containing(&self, text: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line { message: String::new(), fields: String::new() };
        event.record(&mut line);
        let line = format!("{} {}{}", event.metadata().level(), line.message, line.fields);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // A String takes whatever is written.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
