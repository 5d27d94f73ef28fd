//! Sinks, as an operator meets them.

use std::fs::{self, File};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::http::{address, ask};
use crate::program::{Host, LOOK_AGAIN, PATIENCE, Place, end, signal};

const NOWHERE: &str = "[sinks.orders]
kind = \"nats\"
url = \"nats://127.0.0.1:1\"
user = \"app\"
password = \"s3cret\"
timeout = \"2s\"
[routes.\"Order/*\"]
sink = \"orders\"
";

fn place(configuration: &str) -> Place {
    let place = Place::migrated();
    fs::write(place.path().join("outbox.toml"), configuration).expect("written");
    place
}

#[test]
fn an_event_is_printed_by_the_relay_that_the_readme_shows() {
    let place = place("[sinks.console]\nkind = \"stdout\"\n[routes.\"Order/*\"]\nsink = \"console\"\n");
    let id = place.ok(&[
        "event",
        "emit",
        "--aggregate-type",
        "Order",
        "--type",
        "OrderPlaced",
        "--aggregate-id",
        "42",
        "--payload",
        "{\"total\": 99.5}",
    ]);
    let file = place.path().join("printed");
    let mut command = place.command(&["run"]);
    command.stdout(File::create(&file).expect("can be made")).stderr(Stdio::null());
    let mut host = command.spawn().expect("the program can be started");
    let started = Instant::now();
    let printed = || fs::read_to_string(&file).expect("can be read");
    while !printed().ends_with('\n') && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    place.wait_for("done", 1);
    signal(&host, "TERM");
    assert_eq!(end(&mut host, "the host ends").code(), Some(0));
    let event: serde_json::Value = serde_json::from_str(printed().trim_end()).expect("one line of JSON");
    assert_eq!((event["id"].as_str(), event["type"].as_str()), (Some(id.trim()), Some("OrderPlaced")));
    assert_eq!((event["subject"].as_str(), event["data"]["total"].as_f64()), (Some("42"), Some(99.5)));
}

#[test]
fn a_host_without_a_plugins_directory_that_relays_to_sinks_has_no_plugins_to_list() {
    let place = place(NOWHERE);
    let ended = place.run(&["plugin", "list"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("no plugins directory: this host only relays to sinks"), "{}", ended.stderr);
}

#[test]
fn a_sink_that_cannot_be_reached_is_told_without_its_password() {
    let place = place(NOWHERE);
    let ended = place.run(&["sinks", "test", "orders"]);
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    assert!(ended.stderr.contains("orders (nats, nats://127.0.0.1:1) did not confirm the message"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("s3cret") && !ended.stderr.contains("app"), "{}", ended.stderr);
}

#[test]
fn a_host_whose_sinks_cannot_be_made_does_not_start_and_says_why() {
    let place = place(
        "[sinks.orders]\nkind = \"amqp\"\nurl = \"amqps://127.0.0.1:1\"\nca_file = \"authority.pem\"\n\
         [routes.\"Order/*\"]\nsink = \"orders\"\n",
    );
    // A file of PEM, but what it holds is no certificate.
    let authority = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(place.path().join("authority.pem"), authority).expect("written");

    let ended = place.run(&["run"]);

    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    assert!(ended.stderr.contains("the sinks cannot be made"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("sinks.orders: a certificate in") && !ended.stderr.contains("there are no sinks"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_test_of_a_sink_logs_like_a_host_only_if_asked() {
    let place = place(&format!("[log]\nlevel = \"debug\"\n{NOWHERE}"));

    let quiet = place.run(&["sinks", "test", "orders"]).stderr;
    let asked = place.run(&["sinks", "test", "orders", "--log", "warn"]).stderr;

    assert!(quiet.starts_with("error: orders (nats, nats://127.0.0.1:1) did not confirm the message\n"), "{quiet}");
    assert!(asked.contains(" WARN ") && asked.contains("the sink is down"), "{asked}");
}

#[test]
fn unset_secrets_of_sinks_and_plugins_stop_only_the_commands_that_need_them() {
    let place = place(
        "[sinks.orders]\nkind = \"nats\"\nurl = \"nats://127.0.0.1:1\"\nuser = \"app\"\npassword = \"${env:NO_SUCH_PASSWORD}\"\n\
         [routes.\"Order/*\"]\nsink = \"orders\"\n[plugins.mailer.secrets]\ntoken = \"${file:no-such-file}\"\n",
    );
    place.order("one", "42");

    for command in [
        &["stats"][..],
        &["event", "list"],
        &["event", "why", "one"],
        &["route", "list"],
        &["node", "list"],
        &["sinks", "list"],
        &["migrate", "up"],
        &["config", "show"],
    ] {
        let ended = place.run(command);
        assert_eq!(ended.code, Some(0), "{command:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("NO_SUCH_PASSWORD"), "{command:?}: {}", ended.stderr);
    }
    let sink = &place.json(&["sinks", "list", "--output", "json"])[0];
    assert_eq!((&sink["name"], &sink["routes"][0]), (&"orders".into(), &"Order/*".into()), "{sink}");
    for command in [&["run"][..], &["dev"], &["sinks", "test", "orders"], &["config", "check"], &["doctor"]] {
        let ended = place.run(command);
        assert_eq!(ended.code, Some(4), "{command:?}: {}", ended.stderr);
        for part in [
            "outbox.toml:5: sinks.orders.password: ${env:NO_SUCH_PASSWORD}: the environment variable NO_SUCH_PASSWORD is not set; set it",
            "outbox.toml:9: plugins.mailer.secrets.token: ${file:no-such-file}: ",
        ] {
            assert!(ended.stderr.contains(part), "{command:?}: {part}\n---\n{}", ended.stderr);
        }
    }
}

#[test]
fn what_is_configured_is_listed_and_shown_without_secrets() {
    let place = place(NOWHERE);
    let list = place.ok(&["sinks", "list"]);
    assert!(list.contains("orders") && list.contains("nats://127.0.0.1:1") && list.contains("Order/*"), "{list}");
    let shown = place.ok(&["config", "show"]);
    assert!(shown.contains("[sinks.orders]") && shown.contains("password = \"***\"") && !shown.contains("s3cret"), "{shown}");
    let json = place.json(&["sinks", "list", "--output", "json"]);
    assert_eq!(json[0]["routes"][0], "Order/*");
}

#[test]
fn a_sink_that_is_not_there_and_a_fault_are_told() {
    let place = place(&NOWHERE.replace("sink = \"orders\"", "sink = \"order\""));
    let ended = place.run(&["config", "check"]);
    assert_eq!(ended.code, Some(4));
    assert!(
        ended.stderr.contains("outbox.toml:8: routes.\"Order/*\".sink is `order`; the sinks are: orders"),
        "{}",
        ended.stderr
    );
    let misspelt = self::place(NOWHERE).run(&["sinks", "test", "ordres"]);
    assert!(misspelt.stderr.contains("did you mean `orders`?"), "{}", misspelt.stderr);
    let unknown = Place::migrated().run(&["sinks", "test", "orders"]);
    assert_eq!(unknown.code, Some(3), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("defined in outbox.toml: add a section [sinks.orders]"), "{}", unknown.stderr);
}

/// Lists the only sink of a host until it says that it is down.
fn down(place: &Place, arguments: &[&str]) -> serde_json::Value {
    let started = Instant::now();
    loop {
        let list = place.json(&[&["sinks", "list", "--output", "json"][..], arguments].concat());
        let sink = list.get(0).cloned().unwrap_or_default();
        if sink["hosts"][0]["state"] == "down" && sink["waiting"] == 2 {
            return sink;
        }
        assert!(started.elapsed() < PATIENCE, "expected within {PATIENCE:?}: a sink that is down, not {sink}");
        std::thread::sleep(LOOK_AGAIN);
    }
}

#[test]
fn a_sink_that_is_down_is_shown_everywhere_with_its_outage_and_the_events_that_wait() {
    let place = place(NOWHERE);
    let before = place.run(&["sinks", "list"]);
    assert_eq!(before.code, Some(0), "{}", before.stderr);
    assert!(before.stderr.contains("no running host reports the state"), "{}", before.stderr);
    place.order("first", "1");
    place.order("second", "2");
    let mut host = Host::of(place.command(&["run", "--listen", "127.0.0.1:0"]));
    let address = address(&mut host);
    host.wait_until_it_said("it is ready", |line| line == "ready");

    let sink = down(&place, &[]);

    let outage = &sink["hosts"][0]["outage"];
    assert!(outage["since"].is_string() && outage["next_try"].is_string(), "{sink}");
    assert!(!sink.to_string().contains("s3cret"), "{sink}");
    assert_eq!(sink["hosts"][0]["last_success"], serde_json::Value::Null);
    let url = format!("http://{address}");
    let remote = down(&place, &["--url", &url]);
    assert_eq!((&remote["kind"], &remote["routes"][0]), (&"nats".into(), &"Order/*".into()), "{remote}");

    let local: &[&str] = &[];
    for arguments in [local, &["--url", url.as_str()]] {
        let routes = place.json(&[&["route", "list", "--output", "json"][..], arguments].concat());
        let relayed = routes.as_array().expect("a list").iter().find(|route| route["event_type"] == "OrderPlaced");
        let relayed = relayed.unwrap_or_else(|| panic!("{routes}"));
        assert_eq!((&relayed["sink"], &relayed["sink_down_since"]), (&"orders".into(), &outage["since"]), "{relayed}");
        let top = place.json(&[&["top", "--count", "1", "--output", "json"][..], arguments].concat());
        assert_eq!((&top["sinks"][0]["name"], &top["sinks"][0]["state"]), (&"orders".into(), &"down".into()), "{top}");
    }
    let routes = place.ok(&["route", "list"]);
    assert!(routes.contains("orders: down for "), "{routes}");
    let list = place.ok(&["sinks", "list"]);
    assert!(list.contains("orders on ") && list.contains(": down for ") && list.contains("next try "), "{list}");
    let doctor = place.run(&["doctor"]);
    assert!(
        doctor.stdout.contains("the sink orders has been down on ") && doctor.stdout.contains("2 events wait"),
        "{}",
        doctor.stdout
    );
    assert!(!doctor.stdout.contains(" waiting  "), "the outage is one finding: {}", doctor.stdout);
    for (request, part) in [
        ("GET /v1/sinks", "\"state\":\"down\""),
        ("GET /readyz", "\"sinks_down\":[{\"name\":\"orders\""),
        ("GET /metrics", "outbox_sink_available{sink=\"orders\"} 0"),
        ("GET /sinks", "</span> down"),
        ("GET /routes", "sink down"),
        ("GET /", "Sink orders has been down since "),
    ] {
        // Pages show what the host read from the table up to some seconds ago.
        let (started, mut answer) = (Instant::now(), ask(&address, request, "", ""));
        while !answer.contains(part) && started.elapsed() < PATIENCE {
            std::thread::sleep(LOOK_AGAIN);
            answer = ask(&address, request, "", "");
        }
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.contains(part) && !answer.contains("s3cret"),
            "{request}: {answer}"
        );
    }
    host.kill();
    let doctor = place.run(&["doctor"]);
    assert!(!doctor.stdout.contains("the sink orders has been "), "a killed host reports no sink: {}", doctor.stdout);
}

#[test]
fn the_sinks_are_listed_without_a_database() {
    let place = Place::empty();
    fs::write(place.path().join("outbox.toml"), NOWHERE).expect("written");
    let ended = place.run(&["sinks", "list"]);
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    assert!(ended.stdout.contains("nats://127.0.0.1:1") && ended.stderr.contains("their state is unknown"), "{}", ended.stderr);
}
