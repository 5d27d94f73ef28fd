//! Real servers, from start to end.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};

use servers::{Broker, BrokerServer, Database, Durability, Server, Stop};

fn answers(server: &Server) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).is_ok()
}

/// How many directories of this process there are.
fn directories() -> usize {
    let ours = format!("outbox-test-servers-{}-", std::process::id());
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours)).count()
}

#[test]
fn servers_come_back_on_their_ports_after_every_kind_of_stop_and_leave_nothing_behind() {
    // One after the other: they count the same directories.
    a_database_comes_back();
    a_broker_comes_back();
}

fn a_broker_comes_back() {
    for broker in [Broker::Nats, Broker::Redis, Broker::RabbitMq] {
        assert!(broker.is_installed(), "{} is missing; `cargo xtask test` installs it", broker.name());
        let mut server = BrokerServer::start(broker).expect("it starts");
        let (url, port) = (server.url(), server.port());
        let answers = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
        for how in [Stop::Clean, Stop::Crash] {
            server.stop(how);
            assert!(!answers(), "{server:?} is stopped: {how:?}");
            server.resume().expect("it starts again");
            assert!(answers(), "{server:?} runs again after {how:?}");
        }
        assert_eq!(server.url(), url);
        drop(server);
        assert!(!answers(), "nobody listens any more");
        assert_eq!(directories(), 0);
    }
}

fn a_database_comes_back() {
    let both = [Durability::Durable, Durability::Volatile];
    for (database, durability) in [Database::PostgreSql, Database::MariaDb].into_iter().flat_map(|kind| both.map(|d| (kind, d)))
    {
        assert!(database.is_installed(), "{} is missing; `cargo xtask test` installs it", database.name());
        let mut server = Server::start(database, durability).expect("it starts");
        let url = server.url();
        assert!(answers(&server), "{server:?} runs");

        for how in [Stop::Clean, Stop::Crash] {
            server.stop(how);
            assert!(!answers(&server), "{server:?} is stopped: {how:?}");
            server.resume().expect("it starts again");
            assert!(answers(&server), "{server:?} runs again after {how:?}");
        }
        assert_eq!(server.url(), url);

        assert_eq!(directories(), 1);
        let port = server.port();
        drop(server);
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err(), "nobody listens any more");
        assert_eq!(directories(), 0);
    }
}
