//! Passwords that are rotated while a host runs.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use servers::{Broker, BrokerServer, Database, Durability, Server};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::commands::ORDER;
use crate::program::{Host, Place, run};

/// A server with a role `rotated` whose password is `first`, and a migrated database.
fn ground() -> (Server, Place) {
    let server = Server::start(Database::PostgreSql, Durability::Volatile).expect("`cargo xtask test` installs the servers");
    let place = Place::at(&server.url());
    place.ok(&["migrate", "up"]);
    sql(&server, "CREATE ROLE rotated SUPERUSER LOGIN PASSWORD 'first'");
    (server, place)
}

fn sql(server: &Server, statement: &str) {
    run(async {
        let mut connection = PgConnection::connect(&server.url()).await.expect("connects");
        connection.execute(AssertSqlSafe(statement)).await.expect("the statement is valid");
    });
}

/// Changes the password, and ends every session of the role.
fn rotate(server: &Server) {
    sql(server, "ALTER ROLE rotated PASSWORD 'second'");
    sql(server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rotated'");
}

fn address(server: &Server, login: &str) -> String {
    format!("postgres://{login}@127.0.0.1:{}/outbox_test", server.port())
}

#[test]
fn a_host_continues_after_the_file_with_its_address_is_replaced() {
    let (server, place) = ground();
    fs::write(place.path().join("address"), address(&server, "rotated:first")).expect("written");
    let mut host = place.host(&[("OUTBOX_DATABASE_URL", "${file:address}")]);
    place.ok(&ORDER);
    host.wait_for_mails(1);

    rotate(&server);
    fs::write(place.path().join("address"), address(&server, "rotated:second")).expect("written");

    place.ok(&ORDER);
    host.wait_for_mails(1);
    let log = host.kill().join("\n");
    assert!(!log.contains("first@") && !log.contains("second@"), "no password is logged: {log}");
}

#[test]
fn a_command_that_prints_the_password_serves_every_command_and_runs_again() {
    let (server, place) = ground();
    let settings =
        [("OUTBOX_DATABASE_URL", &*address(&server, "rotated")), ("OUTBOX_DATABASE__PASSWORD_COMMAND", "[\"cat\", \"token\"]")];
    fs::write(place.path().join("token"), "first\n").expect("written");
    let mut host = place.host(&settings);
    place.ok(&ORDER);
    host.wait_for_mails(1);

    rotate(&server);
    fs::write(place.path().join("token"), "second\n").expect("written");

    place.ok(&ORDER);
    host.wait_for_mails(1);
    let mut doctor = place.command(&["doctor"]);
    doctor.envs(settings);
    let examined = crate::program::Ended::of(doctor);
    assert!(!examined.stderr.contains("refuses this user"), "{}", examined.stderr);
    fs::remove_file(place.path().join("token")).expect("removed");
    let mut stats = place.command(&["stats"]);
    stats.envs(settings);
    let refused = crate::program::Ended::of(stats);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(refused.stderr.contains("database.password_command: `cat` failed"), "{}", refused.stderr);
}

/// Sends commands to a Redis, each of which must succeed.
fn redis(address: &str, commands: &[&str]) {
    let mut server = TcpStream::connect(address).expect("it answers");
    for command in commands {
        server.write_all(format!("{command}\r\n").as_bytes()).expect("sent");
        let mut answer = [0; 64];
        let read = server.read(&mut answer).expect("it answers");
        let answer = String::from_utf8_lossy(&answer[..read]);
        assert!(answer.starts_with(['+', ':']), "{answer}");
    }
}

#[test]
fn a_relay_continues_after_the_file_with_the_password_of_its_sink_is_replaced() {
    let broker = BrokerServer::start(Broker::Redis).expect("`cargo xtask test` installs the servers");
    let url = broker.url();
    let (login, address) = url.split_once('@').expect("the address has an account");
    let (_, first) = login.rsplit_once(':').expect("the account has a password");
    let (address, _) = address.split_once('/').expect("the address has a database");
    let place = Place::migrated();
    fs::write(place.path().join("password"), first).expect("written");
    let configuration = format!(
        "[sinks.orders]\nkind = \"redis\"\nurl = \"redis://{address}\"\npassword = \"${{file:password}}\"\n\
         [routes.\"Order/*\"]\nsink = \"orders\"\n"
    );
    fs::write(place.path().join("outbox.toml"), configuration).expect("written");
    place.order("before", "1");
    let mut host = Host::of(place.command(&["run"]));
    place.wait_for("done", 1);

    let login = format!("AUTH {first}");
    redis(address, &[login.as_str(), "CONFIG SET requirepass s3cond", "CLIENT KILL TYPE normal"]);
    fs::write(place.path().join("password"), "s3cond\n").expect("written");

    host.wait_for_line("the sink connects anew", |line| line.contains("it connects anew"));
    place.order("after", "2");
    place.wait_for("done", 2);
    let log = host.kill().join("\n");
    assert!(!log.contains(first) && !log.contains("s3cond"), "no password is logged: {log}");
}
