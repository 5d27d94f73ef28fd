//! A collector of a test's own: it takes OTLP by HTTP with protobuf, and keeps what it was sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use outbox::telemetry::{CollectorConfig, TelemetryConfig};
use prost::Message;

/// What a collector does with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Takes them.
    Takes,
    /// Answers with this status, and keeps nothing.
    Refuses(u16),
    /// Reads them and never answers.
    IsSilent,
}

/// A collector on loopback.
#[derive(Clone, Debug)]
pub struct Collector {
    address: SocketAddr,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug)]
struct Kept {
    manner: Manner,
    /// How many requests came, whatever became of them.
    requests: usize,
    /// Their heads, in small letters.
    heads: Vec<String>,
    spans: Vec<Received>,
    metrics: Vec<Metric>,
}

/// A span, with what its resource says.
#[derive(Clone, Debug)]
pub struct Received {
    /// The span.
    pub span: Span,
    resource: Vec<KeyValue>,
}

impl Received {
    /// The text or number of an attribute; `None` when it has none of this name.
    #[must_use]
    pub fn attribute(&self, key: &str) -> Option<String> {
        value(&self.span.attributes, key)
    }

    /// As [`attribute`](Self::attribute), of what made the span.
    #[must_use]
    pub fn of_resource(&self, key: &str) -> Option<String> {
        value(&self.resource, key)
    }
}

fn value(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    Some(match found.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => text.clone(),
        any_value::Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}

impl Collector {
    /// One that takes what it is sent.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let kept = Kept { manner: Manner::Takes, requests: 0, heads: Vec::new(), spans: Vec::new(), metrics: Vec::new() };
        let collector = Self { address, kept: Arc::new(Mutex::new(kept)) };
        let serving = collector.clone();
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let collector = serving.clone();
                std::thread::spawn(move || collector.serve(&stream));
            }
        });
        collector
    }

    /// From now on.
    pub fn set(&self, manner: Manner) {
        self.lock().manner = manner;
    }

    /// Its address, as `OTEL_EXPORTER_OTLP_ENDPOINT` has it.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Spans go there, soon.
    #[must_use]
    pub fn of_traces(&self) -> TelemetryConfig {
        let traces = CollectorConfig::at(format!("{}/v1/traces", self.origin()));
        TelemetryConfig { traces: Some(traces), delay: std::time::Duration::from_millis(20), ..TelemetryConfig::default() }
    }

    /// The spans so far.
    #[must_use]
    pub fn spans(&self) -> Vec<Received> {
        self.lock().spans.clone()
    }

    /// The spans of this name so far, by when they began.
    #[must_use]
    pub fn named(&self, name: &str) -> Vec<Received> {
        let mut named: Vec<Received> = self.spans().into_iter().filter(|one| one.span.name == name).collect();
        named.sort_by_key(|one| one.span.start_time_unix_nano);
        named
    }

    /// The metrics that came last.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        self.lock().metrics.clone()
    }

    /// The number of a metric that came last, summed over the series with this attribute.
    #[must_use]
    pub fn sum(&self, name: &str, attribute: Option<(&str, &str)>) -> Option<i64> {
        let metrics = self.metrics();
        let points = match metrics.iter().find(|metric| metric.name == name)?.data.as_ref()? {
            metric::Data::Sum(sum) => &sum.data_points,
            metric::Data::Gauge(gauge) => &gauge.data_points,
            _ => return None,
        };
        let wanted =
            |attributes: &[KeyValue]| attribute.is_none_or(|(key, text)| value(attributes, key).as_deref() == Some(text));
        let number = |point: &number_data_point::Value| match point {
            number_data_point::Value::AsInt(number) => Some(*number),
            number_data_point::Value::AsDouble(_) => None,
        };
        Some(points.iter().filter(|point| wanted(&point.attributes)).filter_map(|point| number(point.value.as_ref()?)).sum())
    }

    /// How many requests came, whatever became of them.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.lock().requests
    }

    /// The heads of the requests, in small letters.
    #[must_use]
    pub fn heads(&self) -> Vec<String> {
        self.lock().heads.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One connection, which is used again and again.
    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some((head, body)) = request(&mut reader) {
            let manner = {
                let mut kept = self.lock();
                kept.requests += 1;
                kept.heads.push(head.clone());
                kept.manner
            };
            let status = match manner {
                Manner::Takes => {
                    self.keep(&head, &body);
                    200
                }
                Manner::Refuses(status) => status,
                // Until the other side hangs up.
                Manner::IsSilent => {
                    let _ = reader.read(&mut [0]);
                    return;
                }
            };
            let answer =
                format!("HTTP/1.1 {status} Whatever\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n");
            let mut writer = stream;
            if writer.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn keep(&self, head: &str, body: &[u8]) {
        assert!(head.contains("content-type: application/x-protobuf"), "{head}");
        let mut kept = self.lock();
        if head.starts_with("post /v1/traces ") {
            let request = ExportTraceServiceRequest::decode(body).expect("spans in protobuf");
            for of_resource in request.resource_spans {
                let resource = of_resource.resource.map(|resource| resource.attributes).unwrap_or_default();
                let spans = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
                kept.spans.extend(spans.map(|span| Received { span, resource: resource.clone() }));
            }
        } else {
            assert!(head.starts_with("post /v1/metrics "), "{head}");
            let request = ExportMetricsServiceRequest::decode(body).expect("metrics in protobuf");
            let scopes = request.resource_metrics.into_iter().flat_map(|of_resource| of_resource.scope_metrics);
            kept.metrics = scopes.flat_map(|scope| scope.metrics).collect();
        }
    }
}

/// The next request of a connection: its head in small letters, and its body; `None` at its end.
fn request(reader: &mut BufReader<&TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok())?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}
