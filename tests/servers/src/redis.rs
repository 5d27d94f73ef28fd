//! Servers of Redis that take over from each other: a cluster, or a master with a replica and a Sentinel.

use std::process::Child;

use crate::Fault;
use crate::broker::answers;
use crate::directory::Directory;
use crate::process::{self, Signal};
use crate::program::Account;
use crate::server::{free_port, password};

/// How long a server may be away before another takes over: short, but not too short for a machine under load.
const AWAY_MS: u32 = 2_000;

/// One server. Stopped when dropped.
struct Process {
    port: u16,
    /// `None` after a crash.
    child: Option<Child>,
    /// The last field: the files go after the server.
    directory: Directory,
}

impl Process {
    /// Starts a server with this configuration; `arguments` come after it.
    fn start(port: u16, config: &str, arguments: &[&str]) -> Result<Self, Fault> {
        let directory = Directory::make(Account::ours())?;
        let config = format!("port {port}\nbind 127.0.0.1\ndir {:?}\n{config}", directory.path());
        let file = directory.write("redis.conf", &config, Account::ours())?;
        let log = directory.path().join("log");
        let mut command = Account::ours().command("redis-server", directory.path())?;
        command.arg(file).args(arguments);
        let child = process::start(command, &log, Signal::Kill)?;
        let child = process::wait_until(|| answers(port), child, "Redis", &log)?;
        Ok(Self { port, child: Some(child), directory })
    }

    fn crash(&mut self) {
        if let Some(mut child) = self.child.take() {
            process::end(&mut child, Signal::Kill);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.crash();
    }
}

/// A private cluster of Redis: three masters, each with a replica. Stopped when dropped.
pub struct RedisCluster {
    nodes: Vec<Process>,
    password: String,
}

impl RedisCluster {
    /// Starts one; returns once all nodes know each other.
    ///
    /// # Errors
    /// When a program is missing, or does not do what it should; with the last lines of its log.
    pub fn start() -> Result<Self, Fault> {
        let password = password();
        let node = || {
            let config = format!(
                "cluster-enabled yes\ncluster-port {}\ncluster-node-timeout {AWAY_MS}\nrequirepass {password}\nmasterauth {password}\n",
                free_port()?
            );
            Process::start(free_port()?, &config, &[])
        };
        let nodes = (0..6).map(|_| node()).collect::<Result<Vec<_>, Fault>>()?;
        let directory = nodes[0].directory.path();
        let mut command = Account::ours().command("redis-cli", directory)?;
        command.env("REDISCLI_AUTH", &password).args(["--cluster", "create"]);
        command.args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)));
        command.args(["--cluster-replicas", "1", "--cluster-yes"]);
        process::run(command, "", &directory.join("create.log"))?;
        Ok(Self { nodes, password })
    }

    /// How to connect to each node.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(|node| format!("redis://:{}@127.0.0.1:{}", self.password, node.port)).collect()
    }

    /// Kills the node of this address for good.
    pub fn crash(&mut self, url: &str) {
        let number = self.urls().iter().position(|of| of == url).expect("a node of this cluster");
        self.nodes[number].crash();
    }
}

/// A private master of Redis with a replica, and a Sentinel that lets the replica take over. Stopped when dropped.
pub struct RedisSentinel {
    servers: [Process; 2],
    sentinel: Process,
    passwords: [String; 2],
}

impl RedisSentinel {
    /// The name under which the Sentinel knows the master.
    pub const MASTER: &str = "orders";

    /// Starts them.
    ///
    /// # Errors
    /// When a program is missing, or does not do what it should; with the last lines of its log.
    pub fn start() -> Result<Self, Fault> {
        let passwords = [password(), password()];
        let [of_servers, of_sentinel] = &passwords;
        let server = |more: &str| {
            Process::start(free_port()?, &format!("requirepass {of_servers}\nmasterauth {of_servers}\n{more}"), &[])
        };
        let master = server("")?;
        let replica = server(&format!("replicaof 127.0.0.1 {}\n", master.port))?;
        let (name, port) = (Self::MASTER, master.port);
        let config = format!(
            "requirepass {of_sentinel}\nsentinel monitor {name} 127.0.0.1 {port} 1\nsentinel auth-pass {name} {of_servers}\n\
             sentinel down-after-milliseconds {name} {AWAY_MS}\nsentinel failover-timeout {name} 5000\n"
        );
        let sentinel = Process::start(free_port()?, &config, &["--sentinel"])?;
        Ok(Self { servers: [master, replica], sentinel, passwords })
    }

    /// How to connect to the Sentinel.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://:{}@127.0.0.1:{}", self.passwords[1], self.sentinel.port)
    }

    /// The password of the master and the replica.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.passwords[0]
    }

    /// How to connect to the first master, and to its replica.
    #[must_use]
    pub fn urls(&self) -> [String; 2] {
        [0, 1].map(|number| format!("redis://:{}@127.0.0.1:{}", self.passwords[0], self.servers[number].port))
    }

    /// Kills the first master for good.
    pub fn crash_master(&mut self) {
        self.servers[0].crash();
    }

    /// Kills the Sentinel for good.
    pub fn crash_sentinel(&mut self) {
        self.sentinel.crash();
    }
}
