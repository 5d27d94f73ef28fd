//! Private servers, databases, a pooler before one, and message brokers: started in a directory of their own, reachable from
//! this machine alone, gone with their owner.
//!
//! `cargo xtask test` starts one of each for all tests. A test that wants to stop, break or restart a server starts its own:
//! nobody else is connected to it, and it keeps what it was told to keep. Nothing here knows the outbox, nor a database driver.

mod broker;
mod certificate;
mod directory;
mod fault;
mod kafka;
mod kafka_gate;
mod mariadb;
mod pooler;
mod postgres;
mod process;
mod program;
mod rabbitmq;
mod redis;
mod server;

pub use broker::{Broker, BrokerServer};
pub use fault::Fault;
pub use kafka::Kafka;
pub use kafka_gate::KafkaGates;
pub use pooler::{Deal, Pooler};
pub use rabbitmq::RESTRICTED_EXCHANGE;
pub use redis::{RedisCluster, RedisSentinel};
pub use server::{Server, Stop};

/// Whether a server keeps what it acknowledged when it crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// As users run theirs: every commit is on the disk before it is acknowledged. For a test that stops or breaks its server.
    Durable,
    /// Nothing is waited for on the way to the disk, which is most of what a small commit costs: what a crash leaves cannot be
    /// relied on. For servers that nobody stops while their data is needed.
    Volatile,
}

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    /// PostgreSQL.
    PostgreSql,
    /// MariaDB, which speaks MySQL's protocol.
    MariaDb,
}

impl Database {
    /// As people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PostgreSql => "PostgreSQL",
            Self::MariaDb => "MariaDB",
        }
    }

    /// Debian's package of the server.
    #[must_use]
    pub fn package(self) -> &'static str {
        match self {
            Self::PostgreSql => "postgresql",
            Self::MariaDb => "mariadb-server",
        }
    }

    /// Whether this machine has the programs that [`Server::start`] needs.
    #[must_use]
    pub fn is_installed(self) -> bool {
        match self {
            Self::PostgreSql => postgres::PROGRAMS,
            Self::MariaDb => mariadb::PROGRAMS,
        }
        .iter()
        .all(|name| program::find(name).is_some())
    }
}
