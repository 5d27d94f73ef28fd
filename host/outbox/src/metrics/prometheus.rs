//! A snapshot in the text format of Prometheus, version 0.0.4.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text};
use prometheus_client::registry::Registry;

use super::snapshot::{MetricType, Series, Snapshot, Value};

/// The `Content-Type` of `GET /metrics`.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The text for `GET /metrics`. Every name begins with `prefix` and an underscore.
pub(super) fn text(prefix: &str, snapshot: Snapshot) -> String {
    let mut registry = Registry::with_prefix(prefix);
    registry.register_collector(Box::new(snapshot));
    let mut text = String::with_capacity(16 << 10);
    prometheus_text::encode(&mut text, &registry).expect("a String takes every write");
    text
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.families {
            // The encoder adds `_total` to the name of a counter.
            let name = family.name.strip_suffix("_total").unwrap_or(family.name);
            let mut metric = encoder.encode_descriptor(name, family.help, None, family.kind)?;
            for Series { labels, value } in &family.series {
                let mut series = metric.encode_family(labels)?;
                match (value, family.kind) {
                    (Value::Count(count), MetricType::Counter) => {
                        series.encode_counter::<NoLabelSet, _, f64>(count, None)?;
                    }
                    (Value::Number(number), MetricType::Counter) => {
                        series.encode_counter::<NoLabelSet, _, f64>(number, None)?;
                    }
                    (Value::Count(count), _) => series.encode_gauge(count)?,
                    (Value::Number(number), _) => series.encode_gauge(number)?,
                    (Value::Histogram(buckets), _) => {
                        series.encode_histogram::<NoLabelSet>(buckets.sum, buckets.count(), &buckets.counts, None)?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Histogram;
    use super::*;

    #[test]
    fn a_metric_has_its_help_its_type_and_its_series() {
        let mut snapshot = Snapshot::default();
        snapshot
            .family("done_total", MetricType::Counter, "What is done.")
            .series(&[], 3_u64)
            .series(&[("queue", "hot"), ("to", "a\"} 1\nb{c=\"\\")], 4_u64);
        snapshot.family("age_seconds", MetricType::Gauge, "How old it is.").series(&[], 0.25);

        let expected = "# HELP shop_done_total What is done.\n# TYPE shop_done_total counter\nshop_done_total 3\n\
                        shop_done_total{queue=\"hot\",to=\"a\\\"} 1\\nb{c=\\\"\\\\\"} 4\n\
                        # HELP shop_age_seconds How old it is.\n# TYPE shop_age_seconds gauge\nshop_age_seconds 0.25\n";
        assert_eq!(text("shop", snapshot), expected);
        assert_eq!(CONTENT_TYPE, prometheus_text::CONTENT_TYPE);
    }

    #[test]
    fn a_histogram_has_its_buckets_in_seconds_and_their_number() {
        let (mut snapshot, histogram) = (Snapshot::default(), Histogram::of_attempts());
        for millis in [1, 40_000] {
            histogram.observe(Duration::from_millis(millis));
        }

        snapshot.family("took_seconds", MetricType::Histogram, "Time.").series(&[("a", "b")], &histogram);

        let text = text("outbox", snapshot);
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
