//! A server of its own, three hosts on it, an application that writes, and the receivers of the events.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use servers::{Database, Durability, Server};
use support::sample_plugins;
use tokio::runtime::Runtime;

use super::ledger::{End, Ledger, Route};
use super::load::{Load, START, insert, payload};
use super::receiver::Receiver;
use super::reports::{Doctor, Reports, first_problem};
use super::session::Session;
use super::{Repeats, SICK};
use crate::http::ask;
use crate::node::{Mode, Node};
use crate::program::{Ended, LOOK_AGAIN, PATIENCE, Place};

const HOSTS: usize = 3;
/// The host whose overview page is read: no fault disturbs it.
const WITNESS: usize = 2;

/// How many calm events healthy hosts deliver during each fault, at the least.
const PROGRESS: usize = 50;
/// A refused outcome is retried once a minute.
const DRAIN: Duration = Duration::from_secs(150);

/// How a message of the plugin `recorder` begins that reports the begin of a call.
const BEGINNING: &str = "{\"aggregate\"";

/// Two sinks, so that an unavailable sink does not hold up the events of the calm route.
const CONFIGURATION: &str = "[purge]
interval = \"2s\"
[sinks.calm]
kind = \"http\"
url = \"${env:RECEIVER}/calm\"
timeout = \"2s\"
[sinks.rough]
kind = \"http\"
url = \"${env:RECEIVER}/rough\"
timeout = \"2s\"
[routes.\"Calm/*\"]
sink = \"calm\"
[routes.\"Rough/*\"]
sink = \"rough\"
";

pub(super) struct Fixture {
    load: Load,
    nodes: Vec<Node>,
    /// How often the sick host was started.
    starts: usize,
    /// A connection with an open transaction.
    held: Option<Session>,
    receiver: Receiver,
    ledger: Arc<Ledger>,
    /// The ID of the event that the fault is about.
    odd: String,
    odds: usize,
    mode: Mode,
    place: Place,
    database: Database,
    server: Server,
    /// The connections live on it; the last to go.
    runtime: Runtime,
}

impl Fixture {
    pub(super) fn start(database: Database, mode: Mode) -> Self {
        sample_plugins();
        let server = Server::start(database, Durability::Durable).expect("`cargo xtask test` installs the servers");
        let place = Place::at(&server.url());
        place.ok(&["migrate", "up"]);
        if let Mode::ByAggregate = mode {
            place.ok(&["migrate", "add-index", mode.name()]);
        }
        fs::write(place.path().join("outbox.toml"), CONFIGURATION).expect("can be written");
        fs::create_dir_all(place.path().join("plugins")).expect("can be made");
        fs::write(place.path().join("plugins/recorder.toml"), "limits.deadline = '9s'\n").expect("can be written");
        let ledger = Arc::<Ledger>::default();
        let mut fixture = Self {
            load: Load::start(database, server.url(), ledger.clone()),
            nodes: Vec::new(),
            starts: 1,
            held: None,
            receiver: Receiver::start(HOSTS, ledger.clone()),
            ledger,
            odd: String::new(),
            odds: 0,
            mode,
            place,
            database,
            server,
            runtime: Runtime::new().expect("threads can be started"),
        };
        for host in 0..HOSTS {
            fixture.make_account(host);
            fixture.set_login(host, "first");
            let node = fixture.with_settings(host, |settings| Node::start(&fixture.place, host, settings));
            fixture.nodes.push(node);
        }
        for node in &mut fixture.nodes {
            node.wait_for("ready", 1);
        }
        fixture
    }

    /// An account with the rights of a host.
    fn make_account(&self, host: usize) {
        match self.database {
            Database::PostgreSql => {
                self.sql(&format!("CREATE ROLE host_{host} LOGIN PASSWORD 'first'"));
                self.sql(&format!("GRANT ALL ON ALL TABLES IN SCHEMA public TO host_{host}"));
                self.sql(&format!("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO host_{host}"));
            }
            Database::MariaDb => {
                self.sql(&format!("CREATE USER host_{host}@'127.0.0.1' IDENTIFIED BY 'first'"));
                self.sql(&format!("GRANT ALL PRIVILEGES ON outbox_test.* TO host_{host}@'127.0.0.1'"));
            }
        }
    }

    /// Writes the address that a host reads, with this password.
    pub(super) fn set_login(&self, host: usize, password: &str) {
        let scheme = match self.database {
            Database::PostgreSql => "postgres",
            Database::MariaDb => "mysql",
        };
        let address = format!("{scheme}://host_{host}:{password}@127.0.0.1:{}/outbox_test", self.server.port());
        fs::write(self.place.path().join(format!("login-{host}")), address).expect("can be written");
    }

    fn with_settings<T>(&self, host: usize, act: impl FnOnce(&[(&str, &str)]) -> T) -> T {
        let (login, receiver) = (format!("${{file:login-{host}}}"), self.receiver.origin(host));
        let common = self.common_settings();
        let own = [("OUTBOX_DATABASE_URL", &*login), ("RECEIVER", &*receiver), ("OUTBOX_HTTP__LISTEN", "127.0.0.1:0")];
        act(&[&common[..], &own[..]].concat()[..])
    }

    /// The settings of hosts and commands.
    const fn common_settings(&self) -> [(&'static str, &'static str); 6] {
        [
            ("OUTBOX_MODE", self.mode.name()),
            ("OUTBOX_DISPATCHER__LEASE", "10s"),
            ("OUTBOX_DISPATCHER__DEADLINE", "5s"),
            ("OUTBOX_POLLER__INTERVAL", "100ms"),
            ("OUTBOX_RETRY__POLICY", "fixed"),
            ("OUTBOX_RETRY__BASE", "100ms"),
        ]
    }

    /// Runs a command to its end.
    pub(super) fn outbox(&self, arguments: &[&str]) -> Ended {
        let mut command = self.place.command(arguments);
        command.envs(self.common_settings()).env("RECEIVER", self.receiver.origin(WITNESS));
        Ended::of(command)
    }

    pub(super) fn sql(&self, statement: &str) {
        let run = async { Session::connect(self.database, &self.server.url()).await?.run(statement).await };
        self.runtime.block_on(run).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }

    fn number(&self, query: &str) -> i64 {
        let ask = async { Session::connect(self.database, &self.server.url()).await?.number(query).await };
        self.runtime.block_on(ask).unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// Runs a statement in a transaction that stays open until [`release`](Self::release).
    pub(super) fn hold(&mut self, statement: &str) {
        let held = self.runtime.block_on(async {
            let mut session = Session::connect(self.database, &self.server.url()).await?;
            session.run(START).await?;
            session.run(statement).await?;
            Ok::<_, sqlx::Error>(session)
        });
        self.held = Some(held.unwrap_or_else(|error| panic!("{statement}: {error}")));
    }

    pub(super) fn release(&mut self) {
        if let Some(mut session) = self.held.take() {
            self.runtime.block_on(session.run("ROLLBACK")).expect("the server answers");
        }
    }

    /// Chooses the ID of the event that the fault is about, before the event is written.
    pub(super) fn choose_odd(&mut self) -> String {
        self.odds += 1;
        self.odd = format!("odd-{}", self.odds);
        self.odd.clone()
    }

    /// Writes the chosen event, in an aggregate of its own, with `more` columns and their values as SQL.
    pub(super) fn write_odd(&self, more: &[(&str, &str)]) {
        self.write(Route::Rough, &self.odd, Duration::ZERO, more);
    }

    /// Writes another event of the aggregate of the chosen one.
    pub(super) fn write_behind_odd(&self) {
        self.write(Route::Rough, &format!("{}-later", self.odd), Duration::ZERO, &[]);
    }

    /// Writes the chosen event as a call of the plugin.
    pub(super) fn write_odd_call(&self, takes: Duration) {
        self.write(Route::Called, &self.odd, takes, &[]);
    }

    fn write(&self, route: Route, id: &str, takes: Duration, more: &[(&str, &str)]) {
        self.write_with(id, route, &insert(self.database, route, id, &self.odd, &payload(takes), more));
    }

    /// Writes the chosen event by this statement.
    pub(super) fn write_odd_with(&self, statement: &str) {
        self.write_with(&self.odd, Route::Rough, statement);
    }

    fn write_with(&self, id: &str, route: Route, statement: &str) {
        self.ledger.begin(id, route);
        self.sql(statement);
        self.ledger.end(id, End::Committed);
    }

    pub(super) fn wait_until_odd_is_delivered(&self) {
        wait_until(PATIENCE, "the event of this fault is delivered", || self.ledger.is_delivered(&self.odd));
    }

    /// Waits until a query returns a number above zero.
    pub(super) fn wait_until_any(&self, query: &str) {
        wait_until(PATIENCE, query, || self.number(query) > 0);
    }

    /// Deletes the chosen event, which need not be delivered any more.
    pub(super) fn delete_odd(&self) {
        self.sql(&format!("DELETE FROM outbox_event WHERE event_id = '{}'", self.odd));
        self.ledger.end(&self.odd, End::Withdrawn);
    }

    /// Truncates the table, between two transactions of the application.
    pub(super) fn truncate(&self) {
        let _quiet = self.load.quiet();
        self.sql("TRUNCATE outbox_event RESTART IDENTITY");
        self.ledger.set_calls(self.calls());
        self.ledger.withdraw_undelivered();
    }

    pub(super) fn odd(&self) -> &str {
        &self.odd
    }

    pub(super) fn load(&self) -> &Load {
        &self.load
    }

    pub(super) fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    pub(super) fn sick(&self) -> &Node {
        &self.nodes[SICK]
    }

    /// Stops the sick host and starts it again, so that all of its sessions are new.
    pub(super) fn restart_sick(&mut self) {
        assert_eq!(self.nodes[SICK].stop(), Some(0), "a host ends well after SIGTERM");
        let mut node = self.nodes.remove(SICK);
        self.with_settings(SICK, |settings| node.revive(&self.place, settings));
        self.nodes.insert(SICK, node);
        self.starts += 1;
        let starts = self.starts;
        self.nodes[SICK].wait_for("ready", starts);
    }

    /// Reads both reports.
    pub(super) fn reports(&self) -> Reports {
        Reports { doctor: self.doctor(), first_problem: self.first_problem() }
    }

    pub(super) fn doctor(&self) -> Doctor {
        Doctor::of(&self.outbox(&["doctor", "--output", "json"]))
    }

    pub(super) fn first_problem(&self) -> Option<String> {
        let said = self.nodes[WITNESS].said("listening on http://");
        let message = said.last().and_then(|line| line["message"].as_str()).expect("it says where it listens");
        let address = message.trim_start_matches("listening on http://");
        first_problem(&ask(address, "GET /", "", ""))
    }

    /// The parts of a report, with the process of the sick host and the ID of the event.
    pub(super) fn fill(&self, parts: &[&str]) -> Vec<String> {
        let process = self.sick().id().to_string();
        parts.iter().map(|part| part.replace("{host}", &process).replace("{event}", &self.odd)).collect()
    }

    /// Waits until healthy hosts have delivered events that were committed since then.
    pub(super) fn wait_for_progress(&self, since: Instant) {
        wait_until(PATIENCE, "healthy hosts deliver", || self.ledger.healthy_deliveries(since) >= PROGRESS);
    }

    /// Waits until everything that was written is delivered and compares both. Returns a summary. Nothing is written meanwhile. After a
    /// failure, the rest is deleted, so that it does not fail the next fault.
    ///
    /// # Errors
    /// If events are lost, repeated without an excuse, unfinished or dead.
    pub(super) fn check_deliveries(&self, repeats: Repeats) -> Result<String, String> {
        let _quiet = self.load.quiet();
        let unfinished = || self.number("SELECT count(*) FROM outbox_event WHERE status IN (0, 2)");
        let started = Instant::now();
        while unfinished() > 0 && started.elapsed() < DRAIN {
            thread::sleep(LOOK_AGAIN);
        }
        self.ledger.set_calls(self.calls());
        let checked = self.ledger.check(repeats, &self.odd);
        let (unfinished, dead) = (unfinished(), self.number("SELECT count(*) FROM outbox_event WHERE status = 3"));
        if unfinished == 0 && dead == 0 {
            return checked;
        }
        self.sql("DELETE FROM outbox_event WHERE status IN (0, 2, 3)");
        self.ledger.withdraw_undelivered();
        let checked = checked.unwrap_or_else(|problem| problem);
        Err(format!("within {DRAIN:?}, {unfinished} events are not finished and {dead} are dead; {checked}"))
    }

    /// The calls of the plugin by event, with their hosts.
    fn calls(&self) -> BTreeMap<String, Vec<usize>> {
        let mut calls: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (host, node) in self.nodes.iter().enumerate() {
            for line in node.said(BEGINNING) {
                let call = line["message"].as_str().and_then(|message| serde_json::from_str::<Value>(message).ok());
                if let Some(id) = call.as_ref().and_then(|call| call["event_id"].as_str()) {
                    calls.entry(id.to_owned()).or_default().push(host);
                }
            }
        }
        calls
    }

    pub(super) fn p99(&self, from: Instant, to: Instant) -> Option<Duration> {
        self.ledger.p99(from, to)
    }
}

fn wait_until(patience: Duration, fact: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < patience, "expected within {patience:?}: {fact}");
        thread::sleep(LOOK_AGAIN);
    }
}
