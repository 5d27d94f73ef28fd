//! The alert rules and the dashboard that are shipped, against what a host shows.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use outbox::metrics::MetricsConfig;
use outbox::telemetry::Telemetry;
use support::{Collector, Recorder, Scrape, Sqlite, eventually, promtool};

use crate::common::{commit, done, order, outbox};

const FILES: [&str; 2] = ["alerts.yml", "dashboard.json"];

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../host/monitoring").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The metrics that a text asks for: whatever begins with our prefix.
fn asked_for(text: &str) -> BTreeSet<String> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_of_name(c));
    words.filter(|word| word.starts_with("outbox_") && *word != "outbox_").map(str::to_owned).collect()
}

/// What a host shows that has delivered an event and looked at the table.
async fn shown() -> Scrape {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let telemetry = Telemetry::start(&Collector::start().of_traces()).expect("good");
    let builder = outbox(&db).metrics(MetricsConfig::default()).telemetry(&telemetry);
    let outbox = builder.listener(("Order", "OrderPlaced"), recorder.listener());
    let outbox = outbox.start().await.expect("starts");
    commit(&outbox, vec![order(1)]).await;
    done(&db, 1).await;
    eventually("the table was looked at", async || {
        Scrape::of(&outbox.prometheus()).value("outbox_sample_success") == Some(1.0)
    })
    .await;
    let scrape = Scrape::of(&outbox.prometheus());
    outbox.shutdown().await;
    telemetry.shutdown().await;
    scrape
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_that_a_rule_or_the_dashboard_asks_for_is_one_that_a_host_shows() {
    let known = shown().await.names();

    for name in FILES {
        let asked = asked_for(&text(name));
        let unknown: Vec<_> = asked.difference(&known).collect();
        assert!(unknown.is_empty(), "{name} asks for {unknown:?}; there are {known:?}");
        assert!(asked.len() >= 10, "{name} asks for {asked:?} only");
    }
}

#[test]
fn every_alert_says_what_is_wrong_and_what_to_do() {
    let rules = text("alerts.yml");

    let alerts: Vec<&str> = rules.split("      - alert: ").skip(1).collect();

    assert!(alerts.len() >= 10, "only {} alerts", alerts.len());
    for alert in alerts {
        let name = alert.lines().next().unwrap_or_default();
        for part in ["expr: ", "severity: ", "summary: ", "description: "] {
            assert_eq!(alert.matches(part).count(), 1, "{name} has no {part}");
        }
    }
    promtool(&["check", "rules", file("alerts.yml").to_str().expect("a path in UTF-8")], "");
}

/// Parked events have no due time, so the age of the oldest event leaves them out. They have an alert of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_parked_for_an_hour_raises_an_alert_though_it_does_not_count_as_pending() {
    let db = Sqlite::fresh().await;
    let often = MetricsConfig { interval: Duration::from_secs(1), ..MetricsConfig::default() };
    // A host without any listener parks events.
    let outbox = outbox(&db).metrics(often).start().await.expect("starts");
    commit(&outbox, vec![order(1)]).await;
    let shown = || Scrape::of(&outbox.prometheus());
    eventually("the parked event is counted", async || shown().value("outbox_records{status=\"parked\"}") == Some(1.0)).await;
    assert_eq!(shown().value("outbox_oldest_pending_seconds"), Some(0.0));
    outbox.shutdown().await;

    let test = format!(
        "rule_files: ['{}']
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'outbox_records{{status=\"parked\"}}'
        values: '0 1+0x90'
    alert_rule_test:
      - eval_time: 55m
        alertname: OutboxEventsParked
        exp_alerts: []
      - eval_time: 70m
        alertname: OutboxEventsParked
        exp_alerts:
          - exp_labels: {{ severity: warning }}
            exp_annotations:
              summary: '1 events have waited for an hour for a listener'
              description: '{}'
",
        file("alerts.yml").display(),
        description("OutboxEventsParked"),
    );
    let written = tempfile::NamedTempFile::new().expect("a file can be made");
    fs::write(&written, test).expect("written");
    promtool(&["test", "rules", written.path().to_str().expect("a path in UTF-8")], "");
}

/// The description of an alert, which has no quotes.
fn description(alert: &str) -> String {
    let rules = text("alerts.yml");
    let (_, rule) = rules.split_once(&format!("- alert: {alert}\n")).expect("the alert is there");
    let (_, description) = rule.split_once("description: \"").expect("it has a description");
    description.split_once('"').expect("it ends").0.to_owned()
}

#[test]
fn the_dashboard_can_be_read_and_each_of_its_panels_asks_for_something() {
    let dashboard: serde_json::Value = serde_json::from_str(&text("dashboard.json")).expect("it is JSON");

    let panels = dashboard["panels"].as_array().expect("it has panels");

    assert!(panels.len() >= 10, "only {} panels", panels.len());
    let mut ids = BTreeSet::new();
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().unwrap_or_default();
        assert!(!title.is_empty() && !panel["description"].as_str().unwrap_or_default().is_empty(), "{panel}");
        assert!(ids.insert(panel["id"].as_u64()), "{title}: two panels have its number");
        let targets = panel["targets"].as_array().unwrap_or_else(|| panic!("{title} asks for nothing"));
        for target in targets {
            let expr = target["expr"].as_str().unwrap_or_default();
            assert!(expr.contains("outbox_"), "{title}: {target}");
            let as_asked = expr.replace("$__rate_interval", "5m").replace("$job", "outbox");
            rules.push_str(&format!("      - record: expression_{}\n        expr: '{as_asked}'\n", rules.len()));
        }
    }
    // What Prometheus would answer with an error is none.
    let file = tempfile::NamedTempFile::new().expect("a file can be made");
    fs::write(&file, &rules).expect("written");
    promtool(&["check", "rules", file.path().to_str().expect("a path in UTF-8")], "");
}
