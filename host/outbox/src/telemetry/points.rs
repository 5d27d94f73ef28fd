//! The numbers of `GET /metrics` as OTLP has them: the same source, so that nothing is counted twice.
//!
//! A name loses what only Prometheus puts into it: `outbox_dispatch_duration_seconds` is `outbox.dispatch_duration` in `s`. A
//! collector that writes for Prometheus adds these again, so that the shipped alerts and dashboard fit both ways.

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1 as otlp;
use otlp::{AggregationTemporality, HistogramDataPoint, Metric, NumberDataPoint, metric, number_data_point};

use crate::metrics::{Histogram, Kind, Labels, Page, Value};

/// Metrics in the making.
pub(crate) struct Points<'a> {
    prefix: &'a str,
    /// When counting began, in nanoseconds of Unix time.
    start: u64,
    /// When the numbers were read, likewise.
    now: u64,
    metrics: Vec<Metric>,
}

impl<'a> Points<'a> {
    /// Every name begins with `prefix` and a dot.
    pub(super) fn new(prefix: &'a str, start: u64, now: u64) -> Self {
        Self { prefix, start, now, metrics: Vec::with_capacity(40) }
    }

    /// The metrics that have numbers.
    pub(super) fn finish(mut self) -> Vec<Metric> {
        self.metrics.retain(|metric| match &metric.data {
            Some(metric::Data::Sum(sum)) => !sum.data_points.is_empty(),
            Some(metric::Data::Gauge(gauge)) => !gauge.data_points.is_empty(),
            Some(metric::Data::Histogram(histogram)) => !histogram.data_points.is_empty(),
            _ => false,
        });
        self.metrics
    }

    fn last(&mut self) -> &mut metric::Data {
        let data = self.metrics.last_mut().and_then(|metric| metric.data.as_mut());
        data.expect("a metric is begun before it is given numbers")
    }
}

impl Page for Points<'_> {
    fn begin(&mut self, name: &str, kind: Kind, help: &str) {
        let name = name.strip_suffix("_total").unwrap_or(name);
        let units = [("_seconds", "s"), ("_bytes", "By")];
        let unit = units.iter().find_map(|(ending, unit)| Some((name.strip_suffix(ending)?, *unit)));
        let (name, unit) = unit.unwrap_or((name, ""));
        let temporality = AggregationTemporality::Cumulative as i32;
        let data = match kind {
            Kind::Counter => {
                let sum = otlp::Sum { aggregation_temporality: temporality, is_monotonic: true, data_points: Vec::new() };
                metric::Data::Sum(sum)
            }
            Kind::Gauge => metric::Data::Gauge(otlp::Gauge::default()),
            Kind::Histogram => {
                metric::Data::Histogram(otlp::Histogram { aggregation_temporality: temporality, data_points: Vec::new() })
            }
        };
        self.metrics.push(Metric {
            name: format!("{}.{name}", self.prefix),
            description: help.to_owned(),
            unit: unit.to_owned(),
            data: Some(data),
            ..Metric::default()
        });
    }

    fn add(&mut self, labels: Labels<'_>, value: Value) {
        let value = match value {
            Value::Count(count) => number_data_point::Value::AsInt(i64::try_from(count).unwrap_or(i64::MAX)),
            Value::Number(number) => number_data_point::Value::AsDouble(number),
        };
        let point = NumberDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: self.start,
            time_unix_nano: self.now,
            value: Some(value),
            ..NumberDataPoint::default()
        };
        match self.last() {
            metric::Data::Sum(sum) => sum.data_points.push(point),
            metric::Data::Gauge(gauge) => gauge.data_points.push(NumberDataPoint { start_time_unix_nano: 0, ..point }),
            _ => {}
        }
    }

    fn add_histogram(&mut self, labels: Labels<'_>, histogram: &Histogram) {
        let (mut bounds, mut buckets, mut before) = (Vec::new(), Vec::new(), 0);
        for (bound, within) in histogram.cumulative() {
            bounds.push(bound.as_secs_f64());
            buckets.push(within - before);
            before = within;
        }
        buckets.push(histogram.longer());
        let point = HistogramDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: self.start,
            time_unix_nano: self.now,
            // Of what was just read, as OTLP demands: the buckets add up to it.
            count: buckets.iter().sum(),
            sum: Some(histogram.sum().as_secs_f64()),
            bucket_counts: buckets,
            explicit_bounds: bounds,
            ..HistogramDataPoint::default()
        };
        if let metric::Data::Histogram(histogram) = self.last() {
            histogram.data_points.push(point);
        }
    }
}

fn attributes(labels: Labels<'_>) -> Vec<KeyValue> {
    let attribute = |(name, value): &(&str, &str)| KeyValue {
        key: (*name).to_owned(),
        value: Some(AnyValue { value: Some(any_value::Value::StringValue((*value).to_owned())) }),
        ..KeyValue::default()
    };
    labels.iter().map(attribute).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_unit_beside_it_and_no_ending_of_prometheus() {
        let mut points = Points::new("shop", 1, 2);
        points.family("dispatch_total", Kind::Counter, "Attempts.").sample(&[("outcome", "success")], 3_u64);
        points.family("plugin_call_seconds_total", Kind::Counter, "Time.").sample(&[], 0.5);
        points.family("plugin_memory_peak_bytes", Kind::Gauge, "Memory.").sample(&[], 7_u64);
        points.family("records", Kind::Gauge, "Absent.");

        let metrics = points.finish();

        let told: Vec<(&str, &str)> = metrics.iter().map(|metric| (metric.name.as_str(), metric.unit.as_str())).collect();
        assert_eq!(told, [("shop.dispatch", ""), ("shop.plugin_call", "s"), ("shop.plugin_memory_peak", "By")]);
        let Some(metric::Data::Sum(sum)) = &metrics[0].data else { panic!("{:?}", metrics[0]) };
        assert!(sum.is_monotonic && sum.aggregation_temporality == AggregationTemporality::Cumulative as i32);
        let point = &sum.data_points[0];
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (1, 2));
        assert_eq!(point.value, Some(number_data_point::Value::AsInt(3)));
        assert_eq!(point.attributes[0].key, "outcome");
    }
}
