//! Where telemetry is sent, and how much of it.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use url::Url;

use crate::sink::Secret;

/// Where telemetry is sent, and how much of it. The defaults are those of OpenTelemetry's specification, but without
/// collectors: nothing is sent.
#[derive(Clone, Debug)]
pub struct TelemetryConfig {
    /// The resource's `service.name`. Default `outbox`.
    pub service_name: String,
    /// More attributes of the resource, such as `deployment.environment.name`. Default none.
    pub resource: Vec<(String, String)>,
    /// The collector for spans; `None` for none.
    pub traces: Option<CollectorConfig>,
    /// The collector for metrics; `None` for none.
    pub metrics: Option<CollectorConfig>,
    /// Which traces are kept. Default all, except those whose parent was not kept.
    pub sampling: Sampling,
    /// The most spans that wait to be sent; those beyond are dropped, and counted. Default 2,048; at least 1.
    pub queue_size: usize,
    /// The most spans in one request. Default 512; at least 1, at most `queue_size`.
    pub batch_size: usize,
    /// How long a span waits for others before a request is sent. Default 5 s; above zero.
    pub delay: Duration,
    /// The rest between two exports of the metrics. Default 60 s; above zero.
    pub metric_interval: Duration,
}

/// One collector, over OTLP by HTTP with protobuf.
#[derive(Clone, Debug)]
pub struct CollectorConfig {
    /// The whole address, such as `http://localhost:4318/v1/traces`, or `https://`. Without a user.
    pub url: String,
    /// Headers of every request, such as an authorization. Never shown.
    pub headers: Vec<(String, Secret)>,
    /// How long an export may take, with all its tries. Default 10 s; above zero.
    pub timeout: Duration,
    /// Certificates in PEM to trust instead of the system's; `None` for the system's.
    pub ca_file: Option<PathBuf>,
}

/// Which traces are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The share of the traces that begin here: 0 for none, 1 for all.
    pub ratio: f64,
    /// Whether a trace that began elsewhere is kept when it was kept there, and only then.
    pub follows_parent: bool,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            service_name: "outbox".to_owned(),
            resource: Vec::new(),
            traces: None,
            metrics: None,
            sampling: Sampling::default(),
            queue_size: 2_048,
            batch_size: 512,
            delay: Duration::from_secs(5),
            metric_interval: Duration::from_secs(60),
        }
    }
}

impl Default for Sampling {
    fn default() -> Self {
        Self { ratio: 1.0, follows_parent: true }
    }
}

impl CollectorConfig {
    /// A collector at this address, with the defaults.
    #[must_use]
    pub fn at(url: impl Into<String>) -> Self {
        Self { url: url.into(), headers: Vec::new(), timeout: Duration::from_secs(10), ca_file: None }
    }

    fn faults(&self, what: &str) -> Vec<String> {
        let mut faults = Vec::new();
        let url = self.url.parse::<Url>();
        match &url {
            // Not repeated: it may hold a password.
            Err(error) => {
                faults.push(format!("the endpoint of {what} is not a valid address ({error}); write http://host:4318"))
            }
            Ok(url) if !matches!(url.scheme(), "http" | "https") || url.host().is_none() => {
                faults.push(format!("the endpoint of {what} begins with {}:; write http:// or https://", url.scheme()));
            }
            Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                faults.push(format!("the endpoint of {what} holds a user; put an authorization into its headers instead"));
            }
            Ok(_) => {}
        }
        for (name, value) in &self.headers {
            if name.parse::<HeaderName>().is_err() {
                faults.push(format!("the headers of {what}: {name:?} is not a valid header name"));
            } else if HeaderValue::from_str(value.reveal()).is_err() {
                faults.push(format!("the headers of {what}: the value of {name} cannot stand in a header"));
            }
        }
        if self.timeout.is_zero() {
            faults.push(format!("the timeout of {what} is 0; it must be above zero"));
        }
        faults
    }
}

impl TelemetryConfig {
    /// Everything that is wrong with these values, one text each.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let of = |collector: &Option<CollectorConfig>, what| {
            collector.as_ref().map(|collector| collector.faults(what)).unwrap_or_default()
        };
        let mut faults = of(&self.traces, "traces");
        faults.extend(of(&self.metrics, "metrics"));
        if !(0.0..=1.0).contains(&self.sampling.ratio) {
            faults.push(format!("the share of the traces that are kept is {}; it must be from 0 to 1", self.sampling.ratio));
        }
        if self.queue_size == 0 {
            faults.push("the queue of spans has room for 0; it must be at least 1".to_owned());
        }
        if self.batch_size == 0 || self.batch_size > self.queue_size.max(1) {
            faults.push(format!(
                "a request has at most {} spans; it must be at least 1, and at most what the queue holds ({})",
                self.batch_size, self.queue_size
            ));
        }
        if self.delay.is_zero() {
            faults.push("spans wait 0 s for others; it must be above zero".to_owned());
        }
        if self.metric_interval.is_zero() {
            faults.push("the metrics are sent every 0 s; it must be above zero".to_owned());
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_have_no_fault_and_send_nothing() {
        let config = TelemetryConfig::default();
        assert_eq!(config.faults(), Vec::<String>::new());
        assert!(config.traces.is_none() && config.metrics.is_none());
        let local = TelemetryConfig { traces: Some(CollectorConfig::at("http://localhost:4318/v1/traces")), ..config };
        assert_eq!(local.faults(), Vec::<String>::new());
    }

    #[test]
    fn all_faults_are_told_together_and_no_secret_with_them() {
        let at = |url: &str| Some(CollectorConfig::at(url));
        let headers = vec![("a b".to_owned(), Secret::new("s3cret")), ("x-key".to_owned(), Secret::new("s3cret\n"))];
        let config = TelemetryConfig {
            traces: Some(CollectorConfig {
                headers,
                timeout: Duration::ZERO,
                ..CollectorConfig::at("https://me:s3cret@collector/v1/traces")
            }),
            metrics: at("s3cret"),
            sampling: Sampling { ratio: f64::NAN, follows_parent: false },
            queue_size: 10,
            batch_size: 11,
            delay: Duration::ZERO,
            metric_interval: Duration::ZERO,
            ..TelemetryConfig::default()
        };

        let faults = config.faults();

        assert_eq!(faults.len(), 9, "{faults:#?}");
        assert!(!faults.iter().any(|fault| fault.contains("s3cret")), "{faults:#?}");
        let faults = TelemetryConfig { traces: at("grpc://collector:4317"), ..TelemetryConfig::default() }.faults();
        assert_eq!(faults, ["the endpoint of traces begins with grpc:; write http:// or https://"]);
    }
}
