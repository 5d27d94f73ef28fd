//! The alert rules and the dashboard that are shipped, against what a host shows.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outbox::metrics::MetricsConfig;
use outbox::sink::{Message, Sink, SinkError, Sinks};
use outbox::telemetry::Telemetry;
use outbox::{Envelope, RelayConfig};
use support::{Collector, Guest, Harness, Recorder, Scrape, Sqlite, eventually, promtool};

use crate::common::{HOUR, commit, done, order, outbox, row};

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

/// A broker that is down.
struct Down;

#[async_trait]
impl Sink for Down {
    async fn send(&self, messages: &[Message]) -> Vec<Result<(), SinkError>> {
        let down = || SinkError::Down {
            reason: "no route to host".to_owned(),
            retry_after: Duration::from_millis(100),
            tried_ago: Duration::ZERO,
        };
        messages.iter().map(|_| Err(down())).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_is_down_and_a_dropped_route_raise_alerts_and_a_delay_raises_none() {
    let db = Sqlite::fresh().await;
    let directory = tempfile::tempdir().expect("a directory");
    let (placed, paid) = (("Order", "OrderPlaced"), ("Order", "OrderPaid"));
    let put = |version: &str, routes: &[(&str, &str)]| {
        let component = Guest::new("(call $done)").named("shop").version(version).routes(routes).build();
        fs::write(directory.path().join("shop.wasm"), component).expect("writes");
    };
    put("1.0.0", &[placed, paid]);
    let often = MetricsConfig { interval: Duration::from_secs(1), ..MetricsConfig::default() };
    let builder = outbox(&db).metrics(often).plugins(directory.path()).sinks(Sinks::default().with("invoices", Arc::new(Down)));
    let outbox = builder.relay(("Invoice", "*"), RelayConfig::to("invoices")).start().await.expect("starts");
    let plugins = outbox.plugins().expect("a directory was given");
    plugins.rescan().await;
    put("1.1.0", &[placed]);
    plugins.rescan().await;

    let delayed = Envelope::new("OrderPlaced").aggregate("Order", "1").deliver_after(HOUR * 2);
    let ids = commit(
        &outbox,
        vec![
            Envelope::new("Sent").aggregate("Invoice", "1").json(&1).expect("good"),
            Envelope::new("OrderPaid").aggregate("Order", "2").json(&1).expect("good"),
            delayed.json(&1).expect("good"),
        ],
    )
    .await;
    eventually("the first waits for its sink", async || row(&db, ids[0]).await.wait_since.is_some()).await;
    eventually("the second is parked", async || row(&db, ids[1]).await.parked.is_some()).await;
    db.let_pass(HOUR).await;

    let shown = |name: &str| Scrape::of(&outbox.prometheus()).value(name);
    let age = |cause: &str| shown(&format!("outbox_oldest_pending_seconds{{cause=\"{cause}\"}}"));
    let parked = "outbox_records{status=\"parked\"}";
    eventually("the outages are shown", async || age("given_back") >= Some(3_600.0) && shown(parked) == Some(1.0)).await;
    assert_eq!(age("waits_for_host"), Some(0.0), "a delay that was asked for has no age");
    assert_eq!(age("no_listener"), Some(0.0), "a parked event has no age");
    outbox.shutdown().await;

    let firing = "count by (alertname, cause) (ALERTS{alertstate=\"firing\",alertname!=\"OutboxNoHost\"})";
    let test = format!(
        "rule_files: ['{}']
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'outbox_oldest_pending_seconds{{cause=\"given_back\"}}'
        values: '3600+60x90'
      - series: 'outbox_oldest_pending_seconds{{cause=\"waits_for_host\"}}'
        values: '0+0x90'
      - series: 'outbox_oldest_pending_seconds{{cause=\"no_listener\"}}'
        values: '0+0x90'
      - series: 'outbox_records{{status=\"parked\"}}'
        values: '1+0x90'
    promql_expr_test:
      - expr: '{firing}'
        eval_time: 55m
        exp_samples:
          - labels: '{{alertname=\"OutboxDeliveriesLate\",cause=\"given_back\"}}'
            value: 1
      - expr: '{firing}'
        eval_time: 70m
        exp_samples:
          - labels: '{{alertname=\"OutboxDeliveriesLate\",cause=\"given_back\"}}'
            value: 1
          - labels: '{{alertname=\"OutboxEventsParked\"}}'
            value: 1
",
        file("alerts.yml").display(),
    );
    let written = tempfile::NamedTempFile::new().expect("a file can be made");
    fs::write(&written, test).expect("written");
    promtool(&["test", "rules", written.path().to_str().expect("a path in UTF-8")], "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugin_that_did_not_load_at_the_start_raises_an_alert_until_its_file_serves() {
    let db = Sqlite::fresh().await;
    let directory = tempfile::tempdir().expect("a directory");
    let file_of_plugin = directory.path().join("shop.wasm");
    fs::write(&file_of_plugin, "no component").expect("writes");
    let outbox = outbox(&db).metrics(MetricsConfig::default()).plugins(directory.path()).start().await.expect("starts");
    let loaded = || Scrape::of(&outbox.prometheus()).value("outbox_plugin_loaded{plugin=\"shop\"}");

    assert_eq!(loaded(), Some(0.0), "known at the first scrape");
    let component = Guest::new("(call $done)").named("shop").version("1.0.0").routes(&[("Order", "OrderPlaced")]).build();
    fs::write(&file_of_plugin, component).expect("writes");
    outbox.plugins().expect("a directory was given").rescan().await;
    assert_eq!(loaded(), Some(1.0));
    outbox.shutdown().await;

    let firing = "count by (plugin) (ALERTS{alertstate=\"firing\",alertname=\"OutboxPluginNotLoaded\"})";
    let test = format!(
        "rule_files: ['{}']
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'outbox_plugin_loaded{{instance=\"web-1\",plugin=\"shop\"}}'
        values: '0+0x40 1+0x20'
      - series: 'outbox_plugin_loaded{{instance=\"web-2\",plugin=\"shop\"}}'
        values: '1+0x60'
    promql_expr_test:
      - expr: '{firing}'
        eval_time: 30m
        exp_samples:
          - labels: '{{plugin=\"shop\"}}'
            value: 1
      - expr: '{firing}'
        eval_time: 50m
",
        file("alerts.yml").display(),
    );
    let written = tempfile::NamedTempFile::new().expect("a file can be made");
    fs::write(&written, test).expect("written");
    promtool(&["test", "rules", written.path().to_str().expect("a path in UTF-8")], "");
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
