//! Commands that ask a running host with `--url` instead of the database: the same output, the same exit codes.

mod lost;
mod strangers;

use std::io::Read;

use crate::http::address;
use crate::program::{Ended, Host, Place};

/// A time that is over; microseconds. So long ago that "9,000 d ago" is the same in both runs.
const PAST: &str = "1000000000000000";

/// A place with a host that delivers nothing, and its address.
struct Served {
    place: Place,
    url: String,
    _host: Host,
}

impl Served {
    /// With these lines in its configuration.
    fn with(config: &str) -> Self {
        let place = Place::migrated();
        // Its own purge would take what is finished here.
        let config = format!("[purge]\nenabled = false\n{config}");
        std::fs::write(place.path().join("host.toml"), config).expect("can be written");
        let run = ["run", "--config", "host.toml", "--mode", "writer_only", "--listen", "127.0.0.1:0"];
        let mut host = Host::of(place.command(&run));
        let url = format!("http://{}", address(&mut host));
        host.wait_until_it_said("it is ready", |line| line == "ready");
        Self { place, url, _host: host }
    }

    fn start() -> Self {
        Self::with("")
    }

    /// The command against the database.
    fn by_database(&self, arguments: &[&str]) -> Ended {
        self.place.run(arguments)
    }

    /// The command against the host, where no database is known.
    fn by_url(&self, arguments: &[&str]) -> Ended {
        self.with_token(arguments, None)
    }

    fn with_token(&self, arguments: &[&str], token: Option<&str>) -> Ended {
        let mut command = self.place.command(&[arguments, &["--url", &self.url]].concat());
        command.env_remove("OUTBOX_DATABASE_URL");
        if let Some(token) = token {
            command.env("OUTBOX_TOKEN", token);
        }
        Ended::of(command)
    }

    /// What a command came to, without what differs by its way: the flags of the commands that it tells of, and who did it.
    fn told(&self, ended: &Ended) -> (Option<i32>, String, String) {
        let same = |text: &str| text.replace(&format!(" --url {}", self.url), "");
        (ended.code, same(&ended.stdout), same(&ended.stderr))
    }
}

/// Orders in every state that needs no delivery, all of them old.
fn events(place: &Place) {
    for (id, aggregate) in
        [("new-1", "1"), ("dead-1", "2"), ("dead-2", "3"), ("parked-1", "4"), ("done-1", "5"), ("behind-1", "2")]
    {
        place.order(id, aggregate);
    }
    place.ok(&[
        "event",
        "emit",
        "--type",
        "Raw",
        "--id",
        "raw-1",
        "--content-type",
        "text/plain",
        "--payload",
        "a\u{1b}[31m\nb",
    ]);
    place.ok(&["event", "emit", "--type", "Json", "--id", "json-1", "--header", "source=shop", "--payload", "{\n \"a\": 1.0}"]);
    place.sql(&format!(
        "UPDATE outbox_event SET occurred_at = {PAST}, created_at = {PAST}, available_at = {PAST}, due_at = {PAST}"
    ));
    let dead = format!("status = 3, due_at = NULL, done_at = {PAST}, attempts = 3, last_error = 'timeout; after 5 s'");
    place.sql(&format!("UPDATE outbox_event SET {dead} WHERE event_id LIKE 'dead-%'"));
    place.sql("UPDATE outbox_event SET blocks = 1 WHERE event_id = 'dead-1'");
    place.sql("UPDATE outbox_event SET due_at = NULL, behind = (SELECT seq FROM outbox_event WHERE event_id = 'dead-1') WHERE event_id = 'behind-1'");
    place.sql(
        "UPDATE outbox_event SET due_at = NULL, parked = 'no listener answers Order/OrderPlaced' WHERE event_id = 'parked-1'",
    );
    // The last second of the year 9999 is later than any time that can be written.
    let finished = format!("status = 1, due_at = NULL, done_at = {PAST}, occurred_at = 253402300799000000");
    place.sql(&format!("UPDATE outbox_event SET {finished} WHERE event_id = 'done-1'"));
}

#[test]
fn looking_shows_the_same_through_a_host_as_in_its_database() {
    let served = Served::start();
    events(&served.place);
    served.place.ok(&["route", "pause", "User/*", "--reason", "they move"]);
    served.place.sql(&format!("UPDATE outbox_event_pause SET paused_at = {PAST}"));
    served.place.sql(&format!("UPDATE outbox_event_audit SET at = {PAST}"));
    let mut seen = 0;
    for line in [
        "event list",
        "event list --output json",
        "event list --status parked --output jsonl",
        "event list --status blocked",
        "event list --status delayed",
        "event list --status claimed",
        "event list --newest-first --limit 2",
        "event list --after 3 --limit 1",
        "event list --header source=shop --type Json",
        "event list --route Order/OrderPlaced --aggregate-id 4",
        "event list --header source",
        "event show new-1",
        "event show json-1",
        "event show json-1 --output json",
        "event show raw-1",
        "event show raw-1 --output jsonl",
        "event show nobody",
        "event why dead-2",
        "event why behind-1",
        "event why parked-1",
        "event why nobody",
        "dead list",
        "dead list --output json --since 2001-01-01T00:00:00Z --max-attempts 3",
        "dead list --since 2h",
        "dead show dead-1",
        "dead show new-1",
        "dead count --error timeout",
        "dead count --since 1h --output json",
        "dead replay --all --dry-run --limit 1",
        "dead replay --all",
        "dead replay dead-1 new-1 --dry-run",
        "dead discard dead-1",
        "route list",
        "route list --output json",
        "route blocked",
        "route blocked --limit 1 --output json",
        "route resume Order/OrderPlacd",
        "stats",
        "audit list --action pause",
        "audit list --action pause --output json",
        "audit list --since 2001-01-01T00:00:00Z --until 2001-01-02T00:00:00Z",
        "audit list --event dead-1",
        "purge --dead --older-than 1h --dry-run",
        "purge --dead",
        "purge --dry-run --output json",
        "replay --dry-run",
        "replay",
        "node list --output json",
        "plugin list",
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let (direct, through) = (served.by_database(&arguments), served.by_url(&arguments));
        let (direct, through) = (served.told(&direct), served.told(&through));
        match line {
            // A host has its own plugins directory, and its own words for its settings.
            "plugin list" => assert_eq!((through.0, through.1.as_str()), (Some(0), ""), "{through:?}"),
            "purge --dead" => {
                assert_eq!((through.0, direct.0), (Some(2), Some(2)), "{through:?}");
                assert!(through.2.contains("--older-than 90d"), "{through:?}");
            }
            _ => {
                assert_eq!(through, direct, "outbox {line}");
                seen += usize::from(!direct.1.is_empty());
            }
        }
    }
    assert!(seen > 25, "only {seen} of them showed anything");
}

#[test]
fn the_page_of_an_event_and_the_lines_of_top_and_tail_are_documents_through_a_host_too() {
    let served = Served::start();
    events(&served.place);

    let page = |ended: Ended| -> serde_json::Value {
        serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {}", ended.stderr))
    };
    let direct = page(served.by_database(&["event", "why", "behind-1", "--output", "json"]));
    let mut through = page(served.by_url(&["event", "why", "behind-1", "--output", "json"]));
    assert_eq!(through["reason"], "blocked_by_dead");
    let command = through["actions"][0]["command"].as_str().expect("a command").to_owned();
    assert_eq!(command, format!("outbox event why dead-1 --url {}", served.url), "it can be typed as it stands");
    for (number, action) in direct["actions"].as_array().expect("actions").iter().enumerate() {
        through["actions"][number]["command"] = action["command"].clone();
    }
    through["now"] = direct["now"].clone();
    assert_eq!(through, direct);
    let top = page(served.by_url(&["top", "--count", "1", "--output", "json"]));
    assert_eq!((top["dead"].as_u64(), top["blocked"].as_u64()), (Some(2), Some(1)), "{top}");
    let mut tail = served.place.command(&["event", "tail", "--after", "0", "--output", "jsonl", "--url", &served.url]);
    let mut tail = tail.stdout(std::process::Stdio::piped()).spawn().expect("it starts");
    let mut bytes = [0; 64];
    tail.stdout.take().expect("it is piped").read_exact(&mut bytes).expect("it follows from the first row on");
    tail.kill().and_then(|()| tail.wait().map(drop)).expect("it runs");
    assert!(bytes.starts_with(b"{\"seq\":1,"), "{}", String::from_utf8_lossy(&bytes));
}

#[test]
fn more_routes_than_a_page_holds_are_all_listed_through_a_host() {
    let served = Served::start();
    served.place.sql(&format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 450)
         INSERT INTO outbox_event_pause (aggregate_type, event_type, paused_at, paused_by)
         SELECT 'a/b%' || (i % 3), 'Type ' || i, {PAST}, 'ada' FROM n"
    ));
    for line in ["route list", "route list --output json"] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let (direct, through) = (served.by_database(&arguments), served.by_url(&arguments));
        assert_eq!(served.told(&through), served.told(&direct), "outbox {line}");
        assert_eq!(through.stdout.matches("Type 450").count(), if line.ends_with("json") { 2 } else { 1 }, "outbox {line}");
    }
}

#[test]
fn changing_does_the_same_through_a_host_as_in_its_database() {
    let (direct, through) = (Served::start(), Served::start());
    for served in [&direct, &through] {
        events(&served.place);
        let lines = "{\"event_id\":\"l-1\",\"event_type\":\"Line\",\"payload\":1}\n{\"event_id\":\"l-1\",\"event_type\":\"Line\",\"payload\":1}\n\
                     {\"event_id\":\"l-2\",\"event_type\":\"Line\",\"payload_base64\":\"/w==\"}\n";
        std::fs::write(served.place.path().join("lines.jsonl"), lines).expect("can be written");
        std::fs::write(served.place.path().join("bad.jsonl"), "{\"event_type\":\"Line\"}\n").expect("can be written");
    }
    for line in [
        "event emit --type OrderPlaced --aggregate-type Order --id e-1 --tenant t --header a=b --payload {\"a\":1.0}",
        "event emit --type OrderPlaced --id e-1 --payload {}",
        "event emit --type X --payload nonsense",
        "event emit --jsonl lines.jsonl",
        "event emit --jsonl lines.jsonl",
        "event emit --jsonl bad.jsonl",
        "route pause Order/OrderPlaced --reason moves",
        "route pause Order/OrderPlaced",
        "route pause Order/*",
        "route resume Order/OrderPlaced",
        "route resume Order/*",
        "dead replay dead-2 new-1 nobody --reason again",
        "dead skip dead-1 --output json",
        "dead skip dead-1",
        "dead discard new-1 --yes",
        "dead discard dead-1 --yes --reason gone",
        "purge --older-than 1h --yes --output json",
        "dead count",
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let (one, other) = (direct.by_database(&arguments), through.by_url(&arguments));
        // Who paused it is the user of the terminal here, and the bearer of the token there.
        if line != "route pause Order/OrderPlaced" && line != "route pause Order/*" && line != "route resume Order/OrderPlaced"
        {
            assert_eq!(through.told(&other), direct.told(&one), "outbox {line}");
        }
        assert_eq!(
            (other.code, other.stdout.replace(&format!(" --url {}", through.url), "")),
            (one.code, one.stdout),
            "outbox {line}"
        );
    }
    for served in [&direct, &through] {
        for id in ["new-1", "parked-1", "json-1"] {
            served.place.sql(&format!(
                "UPDATE outbox_event SET status = 3, due_at = NULL, parked = NULL, done_at = {PAST} WHERE event_id = '{id}'"
            ));
        }
    }
    for line in [
        "dead replay --all --type Json --yes --batch-size 1 --rate 100/s",
        "dead replay --all --yes --limit 1 --time-limit 1m",
        "replay --yes --reason back --event-limit 100",
        "dead count",
        "stats",
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let (one, other) = (direct.by_database(&arguments), through.by_url(&arguments));
        assert_eq!(through.told(&other), direct.told(&one), "outbox {line}");
        assert_eq!(one.code, Some(0), "outbox {line}: {}", one.stderr);
    }
    let row = |served: &Served, id: &str| served.place.json(&["event", "show", id, "--output", "json"]);
    for id in ["e-1", "l-1", "l-2"] {
        let (one, other) = (row(&direct, id), row(&through, id));
        for field in [
            "payload",
            "payload_base64",
            "content_type",
            "headers",
            "tenant_id",
            "aggregate_type",
            "aggregate_id",
            "event_type",
        ] {
            assert_eq!(other[field], one[field], "{id}: {field}");
        }
    }
    let audit = through.place.json(&["audit", "list", "--action", "discard", "--output", "json"]);
    assert_eq!((&audit[0]["actor"], &audit[0]["reason"]), (&"local".into(), &"gone".into()), "{audit}");
}

#[test]
fn a_host_asks_why_everything_that_failed_goes_again() {
    let served = Served::start();
    events(&served.place);
    let ended = served.by_url(&["replay", "--yes"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("--reason"), "{}", ended.stderr);
    assert_eq!(served.place.stat("dead"), 2, "nothing was done");
}

#[test]
fn what_undoes_a_pause_of_an_unknown_route_works_with_the_same_flags() {
    let served = Served::start();

    let paused = served.by_url(&["route", "pause", "Order/OrderPlacd"]);

    assert_eq!(paused.code, Some(0), "{}", paused.stderr);
    let undo = format!("run `outbox route resume Order/OrderPlacd --url {}`", served.url);
    assert!(paused.stderr.contains(&undo) && !paused.stderr.contains("forget"), "{}", paused.stderr);
    assert_eq!(served.by_url(&["route", "resume", "Order/OrderPlacd"]).code, Some(0));
}

#[test]
fn a_command_that_needs_the_database_says_so_and_does_nothing() {
    let served = Served::start();
    for line in [
        "migrate up",
        "doctor",
        "route forget Order/X",
        "event test --plugin x.wasm one",
        "bench",
        "state list",
        "dead test --plugin x.wasm",
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let ended = served.by_url(&arguments);
        assert_eq!(ended.code, Some(2), "outbox {line}: {}", ended.stderr);
        let words: Vec<&str> = arguments.iter().take_while(|word| !word.contains(['-', '/'])).copied().collect();
        assert!(ended.stderr.contains(&format!("`outbox {}` works on the database", words.join(" "))), "{}", ended.stderr);
        assert!(ended.stderr.contains("leave out --url"), "outbox {line}: {}", ended.stderr);
    }
    let both = served.place.run(&["stats", "--url", &served.url, "--database-url", "sqlite:outbox.db"]);
    assert_eq!(both.code, Some(2), "{}", both.stderr);
    let alone = served.place.run(&["stats", "--token", "obx_a"]);
    assert!(alone.code == Some(2) && alone.stderr.contains("add --url"), "{}", alone.stderr);
    let needless = served.place.run(&["run", "--token", "obx_a"]);
    assert!(needless.code == Some(2) && needless.stderr.contains("leave out --token"), "{}", needless.stderr);
    for url in ["127.0.0.1:8080", "postgres://db/shop", "http://ada:s3cret@127.0.0.1:8080"] {
        let ended = served.place.run(&["stats", "--url", url]);
        assert_eq!(ended.code, Some(2), "{url}: {}", ended.stderr);
        assert!(ended.stderr.contains("http://127.0.0.1:8080") && !ended.stderr.contains("s3cret"), "{url}: {}", ended.stderr);
    }
}
