//! Telemetry of a host, which the variables of OpenTelemetry switch on.

use support::{Collector, Manner};

use crate::program::{Host, Place};

const KEY: &str = "s3cret-key";

fn host(place: &Place, variables: &[(&str, &str)]) -> Host {
    place.plugin("order-mailer");
    let mut command = place.command(&["run", "--plugins", "plugins"]);
    command.env("OUTBOX_POLLER__INTERVAL", "50ms").envs(variables.iter().copied());
    let mut host = Host::of(command);
    host.wait_for_line("it says that it is ready", |line| line == "ready");
    host
}

/// Writes an order that the sample plugin takes.
fn order(place: &Place, id: &str) {
    let of = ["--type", "OrderPlaced", "--aggregate-type", "Order", "--id", id];
    let payload = ["--payload", r#"{"order_id":1,"total":9.5}"#];
    place.ok(&[&["event", "emit"], &of[..], &payload[..]].concat());
}

#[test]
fn a_host_exports_its_last_spans_and_numbers_when_it_stops_and_tells_nobody_its_key() {
    let (place, collector) = (Place::migrated(), Collector::start());
    let authorization = format!("authorization=Bearer%20{KEY}");
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.origin()),
        ("OTEL_EXPORTER_OTLP_HEADERS", authorization),
        ("OTEL_SERVICE_NAME", "mailing".to_owned()),
        // Neither would be over by itself.
        ("OTEL_BSP_SCHEDULE_DELAY", "3600000".to_owned()),
        ("OTEL_METRIC_EXPORT_INTERVAL", "3600000".to_owned()),
    ];
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut host = host(&place, &variables);

    order(&place, "traced");
    host.wait_for_mails(1);
    place.wait_for("done", 1);
    assert_eq!(collector.requests(), 0, "it waits for more");
    host.signal("TERM");
    let (status, said) = host.end();

    assert_eq!(status.code(), Some(0), "{said:#?}");
    let processes = collector.named("process");
    assert_eq!(processes.len(), 1, "{processes:#?}");
    assert_eq!(processes[0].attribute("messaging.message.id").as_deref(), Some("traced"));
    assert_eq!(processes[0].attribute("outbox.listener").as_deref(), Some("order-mailer"));
    assert_eq!(processes[0].of_resource("service.name").as_deref(), Some("mailing"));
    assert_eq!(collector.sum("outbox.dispatch", Some(("outcome", "success"))), Some(1));
    let key = format!("authorization: bearer {KEY}");
    assert!(collector.heads().iter().all(|head| head.contains(&key)), "{:#?}", collector.heads());
    assert!(!said.iter().any(|line| line.contains(KEY)), "{said:#?}");
}

#[test]
fn a_collector_that_takes_nothing_is_said_once_and_delivers_all_the_same() {
    let (place, collector) = (Place::migrated(), Collector::start());
    collector.set(Manner::Refuses(401));
    let origin = collector.origin();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", origin.as_str()),
        ("OTEL_METRICS_EXPORTER", "none"),
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
    ];
    let mut host = host(&place, &variables);

    for number in 1..=3 {
        let before = collector.requests();
        order(&place, &format!("o-{number}"));
        host.wait_for_mails(1);
        wait_for_another_request(&collector, before);
    }
    place.wait_for("done", 3);
    collector.set(Manner::Takes);
    order(&place, "o-4");
    host.wait_for_line("it says that the spans are taken", |line| line.contains("takes spans again"));
    host.signal("TERM");
    let (status, said) = host.end();

    assert_eq!(status.code(), Some(0), "{said:#?}");
    let lines: Vec<&String> = said.iter().filter(|line| line.contains("does not take spans")).collect();
    let [line] = lines[..] else { panic!("not one line: {said:#?}") };
    assert!(line.contains(" WARN ") && line.contains("401") && line.contains("/v1/traces"), "{line}");
}

/// Waits until another request has come, whatever became of it.
fn wait_for_another_request(collector: &Collector, before: usize) {
    let began = std::time::Instant::now();
    while collector.requests() == before {
        assert!(began.elapsed() < support::PATIENCE, "no request has come");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn variables_that_are_wrong_are_refused_all_together_before_anything_starts() {
    let place = Place::migrated();
    for arguments in [&["run", "--plugins", "plugins"][..], &["config", "check"]] {
        let mut command = place.command(arguments);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317");
        command.env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc").env("OTEL_EXPORTER_OTLP_HEADERS", KEY);
        std::fs::create_dir_all(place.path().join("plugins")).expect("made");
        let output = command.output().expect("starts");

        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{said}");
        for part in [
            "OTEL_EXPORTER_OTLP_PROTOCOL is `grpc`",
            "http/protobuf",
            "OTEL_EXPORTER_OTLP_HEADERS: number 1",
            "OTEL_SDK_DISABLED",
        ] {
            assert!(said.contains(part), "no `{part}`: {said}");
        }
        assert!(!said.contains(KEY), "{said}");
    }
}
