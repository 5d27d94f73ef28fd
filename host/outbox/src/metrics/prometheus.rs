//! The text format of Prometheus, version 0.0.4.

use std::fmt::{self, Write};

use super::Histogram;
use super::page::{Kind, Labels, Page, Value};

/// What `GET /metrics` says of its text in `Content-Type`.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A text in the making.
pub(crate) struct Text<'a> {
    prefix: &'a str,
    /// Of the metric whose samples follow.
    name: String,
    text: String,
}

impl<'a> Text<'a> {
    /// Every name begins with `prefix` and an underscore.
    pub(crate) fn new(prefix: &'a str) -> Self {
        Self { prefix, name: String::new(), text: String::with_capacity(16 << 10) }
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }

    /// `labels` as [`written`], `le` as a number.
    fn line(&mut self, suffix: &str, labels: &str, le: Option<&str>, value: impl fmt::Display) {
        let Self { name, text, .. } = self;
        let comma = if labels.is_empty() { "" } else { "," };
        // A String takes whatever is written.
        let _ = match le {
            Some(le) => writeln!(text, "{name}{suffix}{{{labels}{comma}le=\"{le}\"}} {value}"),
            None if labels.is_empty() => writeln!(text, "{name}{suffix} {value}"),
            None => writeln!(text, "{name}{suffix}{{{labels}}} {value}"),
        };
    }
}

/// Labels as they stand between the braces.
fn written(labels: Labels<'_>) -> String {
    labels.iter().enumerate().fold(String::new(), |mut text, (number, (name, value))| {
        let comma = if number == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{name}=\"{}\"", Escaped { text: value, quotes: true });
        text
    })
}

impl Page for Text<'_> {
    fn begin(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.name = format!("{}_{name}", self.prefix);
        let (name, help) = (&self.name, Escaped { text: help, quotes: false });
        // A String takes whatever is written.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn add(&mut self, labels: Labels<'_>, value: Value) {
        let labels = written(labels);
        match value {
            Value::Count(count) => self.line("", &labels, None, count),
            Value::Number(number) => self.line("", &labels, None, number),
        }
    }

    /// Its buckets, in seconds, their sum and their number.
    fn add_histogram(&mut self, labels: Labels<'_>, histogram: &Histogram) {
        // Once for all of its lines: a page has thousands of them.
        let labels = written(labels);
        let mut count = 0;
        for (bound, within) in histogram.cumulative() {
            self.line("_bucket", &labels, Some(&bound.as_secs_f64().to_string()), within);
            count = within;
        }
        // Of what was just read, so that the number is never below its own buckets.
        count += histogram.longer();
        self.line("_bucket", &labels, Some("+Inf"), count);
        self.line("_sum", &labels, None, histogram.sum().as_secs_f64());
        self.line("_count", &labels, None, count);
    }
}

/// A text in which nothing ends its line or its label.
struct Escaped<'a> {
    text: &'a str,
    /// Whether it stands in quotation marks.
    quotes: bool,
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.text.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '"' if self.quotes => f.write_str("\\\"")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_metric_has_its_help_its_type_and_its_samples() {
        let mut text = Text::new("shop");

        text.family("done_total", Kind::Counter, "What is done.")
            .sample(&[], 3_u64)
            .sample(&[("queue", "hot"), ("to", "b")], 4_u64);
        text.family("age_seconds", Kind::Gauge, "How old it is.").sample(&[], 0.25);

        let expected = "# HELP shop_done_total What is done.\n# TYPE shop_done_total counter\nshop_done_total 3\n\
                        shop_done_total{queue=\"hot\",to=\"b\"} 4\n\
                        # HELP shop_age_seconds How old it is.\n# TYPE shop_age_seconds gauge\nshop_age_seconds 0.25\n";
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn no_name_breaks_out_of_its_label_or_its_line() {
        let mut text = Text::new("outbox");

        text.family("x", Kind::Gauge, "One\nline \\ \"quoted\".").sample(&[("route", "a\"} 1\nb{c=\"\\")], 1_u64);

        let expected = "# HELP outbox_x One\\nline \\\\ \"quoted\".\n# TYPE outbox_x gauge\n\
                        outbox_x{route=\"a\\\"} 1\\nb{c=\\\"\\\\\"} 1\n";
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn a_histogram_has_its_buckets_in_seconds_and_their_number() {
        let (mut text, histogram) = (Text::new("outbox"), Histogram::of_attempts());
        for millis in [1, 40_000] {
            histogram.observe(Duration::from_millis(millis));
        }

        text.family("took_seconds", Kind::Histogram, "Time.").histogram(&[("a", "b")], &histogram);

        let text = text.finish();
        for line in [
            "# TYPE outbox_took_seconds histogram",
            "outbox_took_seconds_bucket{a=\"b\",le=\"0.0005\"} 0",
            "outbox_took_seconds_bucket{a=\"b\",le=\"0.001\"} 1",
            "outbox_took_seconds_bucket{a=\"b\",le=\"30\"} 1",
            "outbox_took_seconds_bucket{a=\"b\",le=\"+Inf\"} 2",
            "outbox_took_seconds_sum{a=\"b\"} 40.001",
            "outbox_took_seconds_count{a=\"b\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "no `{line}` in\n{text}");
        }
    }
}
