//! The numbers of `GET /metrics` as OTLP has them: the same source, so that nothing is counted twice.
//!
//! A name loses what only Prometheus puts into it: `outbox_dispatch_duration_seconds` is `outbox.dispatch_duration` in `s`. A
//! collector that writes for Prometheus adds these again, so that the shipped alerts and dashboard fit both ways.

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1 as otlp;
use otlp::{AggregationTemporality, HistogramDataPoint, Metric, NumberDataPoint, metric, number_data_point};

use crate::metrics::{Family, MetricType, Series, Snapshot, Value};

/// The metrics that have numbers. Every name begins with `prefix` and a dot. Counting began at `start`, and the numbers were read
/// at `now`: nanoseconds of Unix time.
pub(super) fn metrics(prefix: &str, snapshot: Snapshot, start: u64, now: u64) -> Vec<Metric> {
    let families = snapshot.families.into_iter().filter(|family| !family.series.is_empty());
    families.map(|family| metric(prefix, family, start, now)).collect()
}

fn metric(prefix: &str, family: Family, start: u64, now: u64) -> Metric {
    let name = family.name.strip_suffix("_total").unwrap_or(family.name);
    let units = [("_seconds", "s"), ("_bytes", "By")];
    let unit = units.iter().find_map(|(ending, unit)| Some((name.strip_suffix(ending)?, *unit)));
    let (name, unit) = unit.unwrap_or((name, ""));
    let temporality = AggregationTemporality::Cumulative as i32;
    let series = family.series.into_iter();
    let data = match family.kind {
        MetricType::Counter => metric::Data::Sum(otlp::Sum {
            aggregation_temporality: temporality,
            is_monotonic: true,
            data_points: series.filter_map(|series| number(series, start, now)).collect(),
        }),
        MetricType::Histogram => metric::Data::Histogram(otlp::Histogram {
            aggregation_temporality: temporality,
            data_points: series.filter_map(|series| histogram(series, start, now)).collect(),
        }),
        _ => metric::Data::Gauge(otlp::Gauge { data_points: series.filter_map(|series| number(series, 0, now)).collect() }),
    };
    Metric {
        name: format!("{prefix}.{name}"),
        description: family.help.to_owned(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn number(series: Series, start: u64, now: u64) -> Option<NumberDataPoint> {
    let value = match series.value {
        Value::Count(count) => number_data_point::Value::AsInt(i64::try_from(count).unwrap_or(i64::MAX)),
        Value::Number(number) => number_data_point::Value::AsDouble(number),
        Value::Histogram(_) => return None,
    };
    Some(NumberDataPoint {
        attributes: attributes(series.labels),
        start_time_unix_nano: start,
        time_unix_nano: now,
        value: Some(value),
        ..NumberDataPoint::default()
    })
}

fn histogram(series: Series, start: u64, now: u64) -> Option<HistogramDataPoint> {
    let Value::Histogram(buckets) = series.value else { return None };
    Some(HistogramDataPoint {
        attributes: attributes(series.labels),
        start_time_unix_nano: start,
        time_unix_nano: now,
        count: buckets.count(),
        sum: Some(buckets.sum),
        bucket_counts: buckets.counts.iter().map(|(_, count)| *count).collect(),
        // OTLP leaves the infinite bound out.
        explicit_bounds: buckets.counts.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).collect(),
        ..HistogramDataPoint::default()
    })
}

fn attributes(labels: Vec<(&'static str, String)>) -> Vec<KeyValue> {
    let attribute = |(name, value): (&str, String)| KeyValue {
        key: name.to_owned(),
        value: Some(AnyValue { value: Some(any_value::Value::StringValue(value)) }),
        ..KeyValue::default()
    };
    labels.into_iter().map(attribute).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_unit_beside_it_and_no_ending_of_prometheus() {
        let mut snapshot = Snapshot::default();
        snapshot.family("dispatch_total", MetricType::Counter, "Attempts.").series(&[("outcome", "success")], 3_u64);
        snapshot.family("plugin_call_seconds_total", MetricType::Counter, "Time.").series(&[], 0.5);
        snapshot.family("plugin_memory_peak_bytes", MetricType::Gauge, "Memory.").series(&[], 7_u64);
        snapshot.family("records", MetricType::Gauge, "Absent.");

        let metrics = metrics("shop", snapshot, 1, 2);

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
