//! The text format of Prometheus, version 0.0.4.

use std::fmt::{self, Write};

use super::Histogram;

/// What `GET /metrics` says of its text in `Content-Type`.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A text in the making.
pub(super) struct Text<'a> {
    prefix: &'a str,
    text: String,
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// One metric, whose samples follow.
pub(super) struct Family<'a> {
    text: &'a mut String,
    name: String,
}

/// Names of labels with their values.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

impl<'a> Text<'a> {
    /// Every name begins with `prefix` and an underscore.
    pub(super) fn new(prefix: &'a str) -> Self {
        Self { prefix, text: String::with_capacity(16 << 10) }
    }

    /// Begins a metric. Once for each name: all its samples stand together.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str) -> Family<'_> {
        let name = format!("{}_{name}", self.prefix);
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.text.push_str(&format!("# HELP {name} {}\n# TYPE {name} {kind}\n", Escaped { text: help, quotes: false }));
        Family { text: &mut self.text, name }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

impl Family<'_> {
    /// Adds a number.
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: impl fmt::Display) -> &mut Self {
        self.line("", labels, None, value);
        self
    }

    /// Adds a histogram: its buckets, in seconds, their sum and their number.
    pub(super) fn histogram(&mut self, labels: Labels<'_>, histogram: &Histogram) -> &mut Self {
        let mut count = 0;
        for (bound, within) in histogram.cumulative() {
            self.line("_bucket", labels, Some(&bound.as_secs_f64().to_string()), within);
            count = within;
        }
        // Of what was just read, so that the number is never below its own buckets.
        count += histogram.longer();
        self.line("_bucket", labels, Some("+Inf"), count);
        self.line("_sum", labels, None, histogram.sum().as_secs_f64());
        self.line("_count", labels, None, count);
        self
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, le: Option<&str>, value: impl fmt::Display) {
        self.text.push_str(&self.name);
        self.text.push_str(suffix);
        let mut before = '{';
        for (name, value) in labels.iter().copied().chain(le.map(|le| ("le", le))) {
            // A String takes whatever is written.
            let _ = write!(self.text, "{before}{name}=\"{}\"", Escaped { text: value, quotes: true });
            before = ',';
        }
        let _ = writeln!(self.text, "{} {value}", if before == ',' { "}" } else { "" });
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

        text.family("done_total", Kind::Counter, "What is done.").sample(&[], 3).sample(&[("queue", "hot"), ("to", "b")], 4);
        text.family("age_seconds", Kind::Gauge, "How old it is.").sample(&[], 0.25);

        let expected = "# HELP shop_done_total What is done.\n# TYPE shop_done_total counter\nshop_done_total 3\n\
                        shop_done_total{queue=\"hot\",to=\"b\"} 4\n\
                        # HELP shop_age_seconds How old it is.\n# TYPE shop_age_seconds gauge\nshop_age_seconds 0.25\n";
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn no_name_breaks_out_of_its_label_or_its_line() {
        let mut text = Text::new("outbox");

        text.family("x", Kind::Gauge, "One\nline \\ \"quoted\".").sample(&[("route", "a\"} 1\nb{c=\"\\")], 1);

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
