//! Escapes deceptive characters in log lines. Names of routes, errors of servers and text of plugins all reach the log, and none of
//! them may forge a line, drive a terminal, or reorder what follows.

use std::fmt::{self, Write};

use outbox::deceptive::{json, shown};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::{RecordFields, VisitOutput};
use tracing_subscriber::fmt::format::{DefaultVisitor, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Formats the fields of a text line as tracing's default does, with deceptive characters of their values escaped.
pub(super) struct EscapedFields;

impl<'w> FormatFields<'w> for EscapedFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut visitor = EscapingVisitor(DefaultVisitor::new(writer, true));
        fields.record(&mut visitor);
        visitor.0.finish()
    }
}

struct EscapingVisitor<'w>(DefaultVisitor<'w>);

impl Visit for EscapingVisitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        // The default puts every text but the message into quotes.
        if field.name() == "message" {
            self.record_debug(field, &format_args!("{value}"));
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.record_debug(field, &Escaped(value));
    }
}

/// A value whose text is escaped.
struct Escaped<'v>(&'v dyn fmt::Debug);

impl fmt::Debug for Escaped<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(EscapingWriter(formatter), "{:?}", self.0)
    }
}

struct EscapingWriter<'f, 'b>(&'f mut fmt::Formatter<'b>);

impl Write for EscapingWriter<'_, '_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.0.write_str(&shown(part))
    }
}

/// Escapes the deceptive characters that JSON allows in a line. The line keeps its meaning.
pub(super) struct EscapedJson<E>(pub(super) E);

impl<S, N, E> FormatEvent<S, N> for EscapedJson<E>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'w> FormatFields<'w> + 'static,
    E: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        writer.write_str(&json(&line))
    }
}
