//! The standard variables of OpenTelemetry, `OTEL_…`: they alone switch its export on.
//!
//! Source: OpenTelemetry's specification, environment variables, and OTLP exporter. An empty variable counts as one that is not
//! set. What this host cannot do is refused, where it would change what is sent; `OTEL_EXPORTER_OTLP_COMPRESSION` and
//! `OTEL_PROPAGATORS` change nothing that a receiver could miss, and are left out.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use outbox::sink::Secret;
use outbox::telemetry::{CollectorConfig, Sampling, TelemetryConfig};
use percent_encoding::percent_decode_str;

use crate::failure::{Exit, Failure};

/// Where a collector on this machine listens.
const LOCAL: &str = "http://localhost:4318";

/// What this process exports by its environment; `None` for nothing.
pub(crate) fn telemetry() -> Result<Option<TelemetryConfig>, Failure> {
    of_environment().map_err(|faults| {
        Failure::new(Exit::Config, "the variables of OpenTelemetry are not valid; OTEL_SDK_DISABLED=true leaves it off")
            .details(faults)
    })
}

/// Everything that is wrong with them.
pub(crate) fn faults() -> Vec<String> {
    let off = |fault| format!("{fault}; OTEL_SDK_DISABLED=true leaves telemetry off");
    of_environment().err().into_iter().flatten().map(off).collect()
}

fn of_environment() -> Result<Option<TelemetryConfig>, Vec<String>> {
    #[expect(clippy::disallowed_methods, reason = "part of the one room that reads the environment")]
    let read = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    of_variables(&read)
}

/// Reads variables, and finds every fault at once.
struct Variables<'a> {
    read: &'a dyn Fn(&str) -> Option<String>,
    faults: Vec<String>,
}

/// One kind of telemetry.
struct Signal {
    /// As it stands in the names of its variables.
    name: &'static str,
    /// Below a collector's address.
    path: &'static str,
}

const TRACES: Signal = Signal { name: "TRACES", path: "v1/traces" };
const METRICS: Signal = Signal { name: "METRICS", path: "v1/metrics" };

fn of_variables(read: &dyn Fn(&str) -> Option<String>) -> Result<Option<TelemetryConfig>, Vec<String>> {
    let mut variables = Variables { read, faults: Vec::new() };
    if variables.get("OTEL_SDK_DISABLED").is_some_and(|disabled| disabled.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    let (traces, metrics) = (variables.collector(&TRACES), variables.collector(&METRICS));
    if traces.is_none() && metrics.is_none() && variables.faults.is_empty() {
        return Ok(None);
    }
    let usual = TelemetryConfig::default();
    let mut resource = variables.pairs("OTEL_RESOURCE_ATTRIBUTES");
    let of_resource = resource.iter().position(|(key, _)| key == "service.name").map(|found| resource.remove(found).1);
    let queue_size = variables.number("OTEL_BSP_MAX_QUEUE_SIZE", usual.queue_size);
    let config = TelemetryConfig {
        service_name: variables.get("OTEL_SERVICE_NAME").or(of_resource).unwrap_or(usual.service_name),
        resource,
        traces,
        metrics,
        sampling: variables.sampling(),
        queue_size,
        batch_size: variables.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", usual.batch_size.min(queue_size)),
        delay: variables.millis("OTEL_BSP_SCHEDULE_DELAY").unwrap_or(usual.delay),
        metric_interval: variables.millis("OTEL_METRIC_EXPORT_INTERVAL").unwrap_or(usual.metric_interval),
    };
    let mut faults = variables.faults;
    if faults.is_empty() {
        faults = config.faults();
    }
    if faults.is_empty() { Ok(Some(config)) } else { Err(faults) }
}

impl Variables<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.read)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The variable of a signal, `OTEL_EXPORTER_OTLP_TRACES_TIMEOUT`, or else that of all; with its name.
    fn of_signal(&self, signal: &Signal, what: &str) -> Option<(String, String)> {
        let names = [format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.name), format!("OTEL_EXPORTER_OTLP_{what}")];
        names.into_iter().find_map(|name| Some((self.get(&name)?, name)))
    }

    /// Where a signal goes; `None` for nowhere.
    fn collector(&mut self, signal: &Signal) -> Option<CollectorConfig> {
        let exporter_name = format!("OTEL_{}_EXPORTER", signal.name);
        let exporter = self.get(&exporter_name);
        match exporter.as_deref() {
            None | Some("otlp") => {}
            Some("none") => return None,
            Some(other) => {
                self.faults.push(format!("{exporter_name} is `{other}`; this host has otlp and none"));
                return None;
            }
        }
        let own = self.get(&format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.name));
        let of_all = self.get("OTEL_EXPORTER_OTLP_ENDPOINT").or_else(|| exporter.map(|_| LOCAL.to_owned()));
        let below = |base: String| format!("{}/{}", base.trim_end_matches('/'), signal.path);
        let url = own.or_else(|| of_all.map(below))?;
        if let Some((protocol, name)) = self.of_signal(signal, "PROTOCOL").filter(|(protocol, _)| protocol != "http/protobuf") {
            let fix = "set it to http/protobuf, with an endpoint for it: collectors have one on port 4318";
            self.faults.push(format!("{name} is `{protocol}`; this host sends http/protobuf alone: {fix}"));
        }
        for what in ["CLIENT_CERTIFICATE", "CLIENT_KEY"] {
            if let Some((_, name)) = self.of_signal(signal, what) {
                self.faults.push(format!(
                    "{name} is set, but this host has no client certificates; authenticate with headers instead"
                ));
            }
        }
        let headers = self.of_signal(signal, "HEADERS").map(|(_, name)| self.pairs(&name)).unwrap_or_default();
        let timeout = self.of_signal(signal, "TIMEOUT").and_then(|(_, name)| self.millis(&name));
        let ca_file = self.of_signal(signal, "CERTIFICATE").map(|(file, _)| PathBuf::from(file));
        let usual = CollectorConfig::at(url);
        Some(CollectorConfig {
            headers: headers.into_iter().map(|(name, value)| (name, Secret::new(value))).collect(),
            timeout: timeout.unwrap_or(usual.timeout),
            ca_file,
            ..usual
        })
    }

    /// `key=value,key=value`, with what is written `%XX` decoded. No value is told: headers hold keys.
    fn pairs(&mut self, name: &str) -> Vec<(String, String)> {
        let text = self.get(name).unwrap_or_default();
        let mut pairs = Vec::new();
        for (number, pair) in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()).enumerate() {
            let pair = pair.split_once('=').map(|(key, value)| (key.trim(), percent_decode_str(value.trim()).decode_utf8()));
            match pair {
                Some((key, Ok(value))) if !key.is_empty() => pairs.push((key.to_owned(), value.into_owned())),
                _ => self.faults.push(format!("{name}: number {} is not key=value", number + 1)),
            }
        }
        pairs
    }

    fn number<T: FromStr>(&mut self, name: &str, usual: T) -> T {
        let Some(text) = self.get(name) else { return usual };
        text.parse().unwrap_or_else(|_| {
            self.faults.push(format!("{name} is `{text}`; it must be a whole number"));
            usual
        })
    }

    fn millis(&mut self, name: &str) -> Option<Duration> {
        self.get(name)?;
        Some(Duration::from_millis(self.number(name, 1)))
    }

    fn sampling(&mut self) -> Sampling {
        const NAME: &str = "OTEL_TRACES_SAMPLER";
        let Some(sampler) = self.get(NAME) else { return Sampling::default() };
        let (root, follows_parent) = match sampler.strip_prefix("parentbased_") {
            Some(root) => (root, true),
            None => (sampler.as_str(), false),
        };
        let ratio = match root {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => self.ratio(),
            _ => {
                let known = "always_on, always_off and traceidratio, each also with parentbased_ before it";
                self.faults.push(format!("{NAME} is `{sampler}`; this host has {known}"));
                1.0
            }
        };
        Sampling { ratio, follows_parent }
    }

    fn ratio(&mut self) -> f64 {
        const NAME: &str = "OTEL_TRACES_SAMPLER_ARG";
        let Some(text) = self.get(NAME) else { return 1.0 };
        text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio)).unwrap_or_else(|| {
            self.faults.push(format!("{NAME} is `{text}`; it must be from 0 to 1, such as 0.01 for one trace in a hundred"));
            1.0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");

    fn of(set: &[(&str, &str)]) -> Result<Option<TelemetryConfig>, Vec<String>> {
        of_variables(&|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    fn valid(set: &[(&str, &str)]) -> TelemetryConfig {
        of(set).expect("valid").expect("on")
    }

    #[test]
    fn nothing_is_exported_unless_a_variable_asks_for_it() {
        for set in [
            &[][..],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")],
            &[("OTEL_SERVICE_NAME", "shop"), ("OTEL_TRACES_SAMPLER", "always_on")],
            &[ENDPOINT, ("OTEL_SDK_DISABLED", "True"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
            &[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "none")],
        ] {
            assert!(of(set).expect("valid").is_none(), "{set:?}");
        }
    }

    #[test]
    fn an_endpoint_is_that_of_both_signals_and_one_of_a_signal_is_taken_as_it_is() {
        let url = |collector: Option<CollectorConfig>| collector.map(|collector| collector.url);
        let both = valid(&[ENDPOINT]);
        assert_eq!(url(both.traces).as_deref(), Some("http://collector:4318/v1/traces"));
        assert_eq!(url(both.metrics).as_deref(), Some("http://collector:4318/v1/metrics"));
        let one = valid(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces/here")]);
        assert_eq!((url(one.traces).as_deref(), url(one.metrics)), (Some("https://traces/here"), None));
        let local = valid(&[("OTEL_METRICS_EXPORTER", "otlp")]);
        assert_eq!((url(local.traces), url(local.metrics).as_deref()), (None, Some("http://localhost:4318/v1/metrics")));
    }

    #[test]
    fn every_variable_has_its_value() {
        let config = valid(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20c2VjcmV0, x-team = a=b"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x-other=1"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/etc/ca.pem"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_SERVICE_NAME", "shop"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment.name=a%2Cb"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.01"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
            ("OTEL_BSP_SCHEDULE_DELAY", "200"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
        ]);
        let traces = config.traces.expect("on");
        let headers: Vec<(&str, &str)> = traces.headers.iter().map(|(name, value)| (name.as_str(), value.reveal())).collect();
        assert_eq!(headers, [("authorization", "Basic c2VjcmV0"), ("x-team", "a=b")]);
        assert_eq!(config.metrics.expect("on").headers[0].0, "x-other");
        assert_eq!((traces.timeout, traces.ca_file), (Duration::from_millis(2_500), Some(PathBuf::from("/etc/ca.pem"))));
        assert_eq!(config.service_name, "shop");
        assert_eq!(config.resource, [("deployment.environment.name".to_owned(), "a,b".to_owned())]);
        assert_eq!(config.sampling, Sampling { ratio: 0.01, follows_parent: true });
        assert_eq!((config.metric_interval, config.delay), (Duration::from_secs(1), Duration::from_millis(200)));
        assert_eq!((config.queue_size, config.batch_size), (100, 100), "no batch is larger than the queue");
        let named = valid(&[ENDPOINT, ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other")]);
        assert_eq!(named.service_name, "other");
        let off = valid(&[ENDPOINT, ("OTEL_TRACES_SAMPLER", "always_off")]);
        assert_eq!(off.sampling, Sampling { ratio: 0.0, follows_parent: false });
    }

    #[test]
    fn all_faults_are_told_together_with_the_variable_and_what_to_do_and_without_a_secret() {
        let faults = of(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_METRICS_EXPORTER", "prometheus"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "s3cret"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/etc/key.pem"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1s"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "2"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "-1"),
        ])
        .expect_err("refused");

        let told = faults.join("\n");
        for part in [
            "OTEL_EXPORTER_OTLP_PROTOCOL is `grpc`; this host sends http/protobuf alone: set it to http/protobuf",
            "OTEL_METRICS_EXPORTER is `prometheus`; this host has otlp and none",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS: number 1 is not key=value",
            "OTEL_EXPORTER_OTLP_CLIENT_KEY is set",
            "OTEL_EXPORTER_OTLP_TIMEOUT is `1s`; it must be a whole number",
            "OTEL_TRACES_SAMPLER_ARG is `2`",
            "OTEL_BSP_MAX_QUEUE_SIZE is `-1`",
        ] {
            assert!(told.contains(part), "no `{part}` in\n{told}");
        }
        assert_eq!((faults.len(), told.contains("s3cret")), (7, false), "{told}");
        let faults = of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")]).expect_err("no scheme");
        assert!(faults[0].contains("endpoint of traces") && faults[0].contains("write http://"), "{faults:?}");
    }
}
