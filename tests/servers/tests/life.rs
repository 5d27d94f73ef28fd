//! Real servers, from start to end.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::thread;

use servers::{Broker, BrokerServer, Database, Durability, Server, Stop};

fn answers(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// How many directories of this process there are.
fn directories() -> usize {
    let ours = format!("outbox-test-servers-{}-", std::process::id());
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours)).count()
}

#[test]
fn servers_come_back_on_their_ports_after_every_kind_of_stop_and_leave_nothing_behind() {
    let databases = [Database::PostgreSql, Database::MariaDb].into_iter();
    let databases = databases.flat_map(|kind| [Durability::Durable, Durability::Volatile].map(|durability| (kind, durability)));
    // Side by side: most of the time, each waits for its server.
    let (databases, brokers): (Vec<Server>, Vec<BrokerServer>) = thread::scope(|scope| {
        let databases: Vec<_> = databases.map(|(kind, durability)| scope.spawn(move || database(kind, durability))).collect();
        let brokers = [Broker::Nats, Broker::Redis, Broker::RabbitMq].map(|kind| scope.spawn(move || broker(kind)));
        let databases = databases.into_iter().map(|thread| thread.join().expect("the database comes back")).collect();
        (databases, brokers.into_iter().map(|thread| thread.join().expect("the broker comes back")).collect())
    });

    assert_eq!(directories(), databases.len() + brokers.len());
    let ports: Vec<u16> = databases.iter().map(Server::port).chain(brokers.iter().map(BrokerServer::port)).collect();
    drop((databases, brokers));
    assert!(!ports.into_iter().any(answers), "no server listens any more");
    assert_eq!(directories(), 0);
}

/// A database that has come back after every kind of stop.
fn database(kind: Database, durability: Durability) -> Server {
    assert!(kind.is_installed(), "{} is missing; `cargo xtask test` installs it", kind.name());
    let mut server = Server::start(kind, durability).expect("it starts");
    let (url, port) = (server.url(), server.port());
    assert!(answers(port), "{server:?} runs");
    for how in [Stop::Clean, Stop::Crash] {
        server.stop(how);
        assert!(!answers(port), "{server:?} is stopped: {how:?}");
        server.resume().expect("it starts again");
        assert!(answers(port), "{server:?} runs again after {how:?}");
    }
    assert_eq!(server.url(), url);
    server
}

/// A broker that has come back after every kind of stop.
fn broker(kind: Broker) -> BrokerServer {
    assert!(kind.is_installed(), "{} is missing; `cargo xtask test` installs it", kind.name());
    let mut server = BrokerServer::start(kind).expect("it starts");
    let (url, port) = (server.url(), server.port());
    for how in [Stop::Clean, Stop::Crash] {
        server.stop(how);
        assert!(!answers(port), "{server:?} is stopped: {how:?}");
        server.resume().expect("it starts again");
        assert!(answers(port), "{server:?} runs again after {how:?}");
    }
    assert_eq!(server.url(), url);
    server
}
