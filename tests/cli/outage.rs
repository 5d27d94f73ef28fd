//! A database that comes late, restarts, or takes no writes for a while.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use outbox::store::with_hosts;
use servers::{Database, Durability, Server, Stop};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection};
use support::{Faults, Witness, Writers, sample_plugins};

use crate::node::{Mode, Node, Settings, conclude, say, wait_for_writers};
use crate::program::{Ended, Host, Place, run};

const EVENTS: usize = 600;

/// How long the trouble lasts: a plan, not a wait for something.
const TROUBLE: Duration = Duration::from_secs(2);
/// In that time a host looks several times along the routes that have parked events, which writes nothing where there are none.
const SEVERAL_WALKS: Duration = Duration::from_secs(5);

/// In that time a host that waits for its database tries several times to start.
const SEVERAL_TRIES: Duration = Duration::from_secs(5);

const SETTINGS: Settings<'_> =
    &[("OUTBOX_POLLER__INTERVAL", "100ms"), ("OUTBOX_RETRY__POLICY", "fixed"), ("OUTBOX_RETRY__BASE", "100ms")];

const WAITS: &str = "the database cannot be used yet; waiting for it";
const CAN_BE_USED: &str = "the database can be used";

/// A server of a test's own, with a migrated database.
struct Ground {
    place: Place,
    server: Server,
}

impl Ground {
    fn with(database: Database) -> Self {
        let server = Server::start(database, Durability::Durable).expect("`cargo xtask test` installs the servers");
        let place = Place::at(&server.url());
        place.ok(&["migrate", "up"]);
        Self { place, server }
    }

    fn writers(&self) -> std::thread::JoinHandle<()> {
        let (rest, takes) = (Duration::from_millis(20), Duration::from_millis(5));
        let writers = Writers { writers: 2, events: EVENTS, rest, takes, faults: Faults::Expected };
        writers.start(self.place.url(), self.place.path())
    }
}

#[test]
fn a_host_waits_for_a_server_that_comes_later_on_postgres() {
    a_host_waits_for_a_server_that_comes_later(Database::PostgreSql);
}

#[test]
fn a_host_waits_for_a_server_that_comes_later_on_mariadb() {
    a_host_waits_for_a_server_that_comes_later(Database::MariaDb);
}

fn a_host_waits_for_a_server_that_comes_later(database: Database) {
    let mut ground = Ground::with(database);
    ground.server.stop(Stop::Clean);

    let mut impatient = Node::start(&ground.place, 0, SETTINGS);
    impatient.wait_for(WAITS, 1);
    assert_eq!(impatient.end(), Some(130), "a host that waits can be stopped");
    let mut node = Node::start(&ground.place, 1, SETTINGS);
    node.wait_for(WAITS, 1);
    ground.server.resume().expect("it starts again");
    node.wait_for("ready", 1);

    assert_eq!((node.said(WAITS).len(), node.said(CAN_BE_USED).len()), (1, 1), "it says it once");
    let reason = node.said(WAITS)[0]["reason"].to_string();
    assert!(reason.contains("Connection refused"), "with the cause: {reason}");
    let url = ground.place.url().replacen('@', "x@", 1);
    let refused = ground.place.run(&["run", "--plugins", "plugins", "--database-url", &url]);
    assert_eq!(refused.code, Some(5), "a wrong password will not become right: {}", refused.stderr);
    ground.place.ok(&["migrate", "down", "--yes"]);
    let bare = ground.place.run(&["run", "--plugins", "plugins"]);
    assert_eq!(bare.code, Some(5), "nor does a schema come by itself: {}", bare.stderr);
}

/// The address allows the standby.
#[test]
fn a_host_that_waits_for_a_standby_logs_once_that_it_takes_no_writes() {
    const TAKES_NO_WRITES: &str = "the server takes no writes";
    let ground = Ground::with(Database::PostgreSql);
    let standby = ground.server.standby(Duration::ZERO).expect("it starts");
    let both = format!("127.0.0.1:{},127.0.0.1:{}", standby.port(), ground.server.port());
    let url = with_hosts(ground.place.url(), &both) + "?target_session_attrs=any";

    let mut node = Node::start(&ground.place, 0, &[("OUTBOX_DATABASE_URL", &*url)]);

    node.wait_for(WAITS, 1);
    std::thread::sleep(SEVERAL_TRIES);
    assert_eq!((node.said(WAITS).len(), node.said(TAKES_NO_WRITES).len()), (1, 1), "it says it once");
    run(async {
        let mut admin = PgConnection::connect(&standby.url()).await.expect("it answers");
        admin.execute("SELECT pg_promote()").await.expect("the account is a superuser's");
    });
    node.wait_for("ready", 1);
}

#[test]
fn nothing_is_lost_while_the_server_restarts_on_postgres() {
    nothing_is_lost_while_the_server_restarts(Database::PostgreSql);
}

#[test]
fn nothing_is_lost_while_the_server_restarts_on_mariadb() {
    nothing_is_lost_while_the_server_restarts(Database::MariaDb);
}

fn nothing_is_lost_while_the_server_restarts(database: Database) {
    sample_plugins();
    let mut ground = Ground::with(database);
    let mut node = Node::start(&ground.place, 0, SETTINGS);
    node.wait_for("ready", 1);
    let writers = ground.writers();
    let witness = Witness::of(ground.place.url(), ground.place.path());

    for how in [Stop::Clean, Stop::Crash] {
        node.wait_for_deliveries(20);
        let outage = node.unseen(&witness, || ground.server.stop(how));
        std::thread::sleep(TROUBLE);
        let started = Instant::now();
        ground.server.resume().expect("it starts again");
        let up = started.elapsed();
        let recovered = node.wait_for_deliveries(20);
        witness.over(outage);
        say(&format!("{}, {how:?} restart: up after {up:.1?}, delivers again {recovered:.1?} later\n", database.name()));
    }
    wait_for_writers(writers, EVENTS);

    assert_said_once_per_outage(&node, 2);
    conclude(&format!("{}, two restarts", database.name()), &ground.place, &mut [node], EVENTS, &Mode::Any.rules(), &witness);
}

#[test]
fn a_server_that_takes_no_writes_for_a_while_is_waited_for_on_postgres() {
    let ground = Ground::with(Database::PostgreSql);
    let url = ground.place.url().to_owned();
    let read_only = ["ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"];
    let writable = [
        "SET default_transaction_read_only = off",
        "ALTER SYSTEM RESET default_transaction_read_only",
        "SELECT pg_reload_conf()",
    ];
    a_server_that_takes_no_writes_for_a_while_is_waited_for("PostgreSQL", &ground, |on| {
        run(async {
            let mut admin = PgConnection::connect(&url).await.expect("it answers");
            for statement in if on { &read_only[..] } else { &writable[..] } {
                admin.execute(*statement).await.expect("the account is a superuser's");
            }
        });
    });
}

#[test]
fn a_server_that_takes_no_writes_for_a_while_is_waited_for_on_mariadb() {
    let mut ground = Ground::with(Database::MariaDb);
    let admin_url = ground.place.url().to_owned();
    let admin = |statements: &[&'static str]| {
        run(async {
            let mut admin = MySqlConnection::connect(&admin_url).await.expect("it answers");
            for statement in statements {
                admin.execute(sqlx::raw_sql(AssertSqlSafe(*statement))).await.expect("the account may do everything");
            }
        });
    };
    // Whoever may do everything may write even now: the host has no more rights than it needs.
    admin(&[
        "CREATE USER host@'127.0.0.1' IDENTIFIED BY 'secret'",
        "GRANT ALL PRIVILEGES ON outbox_test.* TO host@'127.0.0.1'",
    ]);
    let port = ground.server.port();
    ground.place = Place::at(&format!("mysql://host:secret@127.0.0.1:{port}/outbox_test"));
    a_server_that_takes_no_writes_for_a_while_is_waited_for("MariaDB", &ground, |on| {
        admin(&[if on { "SET GLOBAL read_only = 1" } else { "SET GLOBAL read_only = 0" }]);
    });
}

fn a_server_that_takes_no_writes_for_a_while_is_waited_for(name: &str, ground: &Ground, read_only: impl Fn(bool)) {
    sample_plugins();
    let mut node = Node::start(&ground.place, 0, SETTINGS);
    node.wait_for("ready", 1);
    let writers = ground.writers();
    node.wait_for_deliveries(20);

    let witness = Witness::of(ground.place.url(), ground.place.path());
    let trouble = node.unseen(&witness, || read_only(true));
    std::thread::sleep(SEVERAL_WALKS);
    read_only(false);
    let recovered = node.wait_for_deliveries(20);
    witness.over(trouble);
    say(&format!("{name}, writable again: delivers {recovered:.1?} later\n"));
    wait_for_writers(writers, EVENTS);

    // Who only reads meanwhile may have nothing to complain of: nobody could write an event either.
    assert_said_once_per_outage(&node, 1);
    conclude(&format!("{name}, read-only for a while"), &ground.place, &mut [node], EVENTS, &Mode::Any.rules(), &witness);
}

/// Writes to files fail beyond the limit of file sizes, and SQLite then rolls back by itself, as on a full disk.
#[test]
fn host_continues_by_itself_when_its_file_takes_writes_again_on_sqlite() {
    let place = Place::migrated();
    place.plugin("order-mailer");
    let mut command = place.shell("trap '' XFSZ; exec outbox run --plugins plugins --log info");
    command.env("OUTBOX_DATABASE_URL", place.url());
    command.envs([("OUTBOX_DISPATCHER__LEASE", "10s"), ("OUTBOX_DISPATCHER__DEADLINE", "5s")]);
    let mut host = Host::of(command);
    host.wait_for_line("it says that it is ready", |line| line == "ready");

    limit_file_sizes(&host, "0:");
    host.wait_for_line("its heartbeat fails", |line| line.contains("cannot write its heartbeat"));
    let mut doctor = place.shell("trap '' XFSZ; ulimit -f 0; exec outbox doctor --output json");
    doctor.env("OUTBOX_DATABASE_URL", place.url());
    let ended = Ended::of(doctor);
    assert_eq!(ended.code, Some(8), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("nothing can be committed to"), "{}{}", ended.stdout, ended.stderr);
    limit_file_sizes(&host, "unlimited:");

    host.wait_for_line("its heartbeat is written", |line| line.contains("is seen by the others again"));
    let of = ["--type", "OrderPlaced", "--aggregate-type", "Order", "--payload", r#"{"order_id":1,"total":9.5}"#];
    place.ok(&[&["event", "emit"], &of[..]].concat());
    place.wait_for("done", 1);
    host.signal("TERM");
    let (status, said) = host.end();
    assert_eq!(status.code(), Some(0), "{said:#?}");
    assert!(!said.iter().any(|line| line.contains("could not sign off")), "{said:#?}");
}

/// Sets the largest size of a file to which this process may write.
fn limit_file_sizes(host: &Host, limit: &str) {
    let arguments = ["--pid".to_owned(), host.id().to_string(), format!("--fsize={limit}")];
    let set = Command::new("prlimit").args(arguments).status().expect("prlimit of util-linux is installed");
    assert!(set.success(), "the limit of the host can be set");
}

/// Each part of the host says once per change that it cannot go on, however often it tries.
fn assert_said_once_per_outage(node: &Node, outages: usize) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for complaint in node.complaints() {
        *counts.entry(complaint).or_default() += 1;
    }
    say(&format!("  it complained: {counts:?}\n"));
    // An outcome whose answer was lost is dropped when it is stored again: each of the two batches that were on their way says so.
    let most = |complaint: &str| if complaint.starts_with("outcomes were dropped") { 2 * outages } else { outages };
    assert!(counts.iter().all(|(complaint, times)| *times <= most(complaint)), "{counts:?}");
}
