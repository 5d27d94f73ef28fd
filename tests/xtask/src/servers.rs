//! Servers for tests, databases and brokers: started when no URL names one already, installed when the machine has none.

use std::process::{Command, ExitCode};
use std::thread;

use servers::{Broker, BrokerServer, Database, Durability, Pooler, Server};

use crate::browser::Browser;
use crate::fault::Fault;
use crate::install;
use crate::kafka;
use crate::python;
use crate::workspace::{Workspace, environment};

/// Where the tests look for each server.
const VARIABLES: [(Database, &str); 2] =
    [(Database::PostgreSql, "OUTBOX_TEST_POSTGRES_URL"), (Database::MariaDb, "OUTBOX_TEST_MYSQL_URL")];

/// Where the tests look for each broker.
const BROKERS: [(Broker, &str); 3] = [
    (Broker::Nats, "OUTBOX_TEST_NATS_URL"),
    (Broker::Redis, "OUTBOX_TEST_REDIS_URL"),
    (Broker::RabbitMq, "OUTBOX_TEST_AMQP_URL"),
];

/// Servers that run, and how the tests find them. Stopped when dropped.
pub(crate) struct Servers(Vec<(&'static str, Running)>);

enum Running {
    Database(Server),
    Broker(BrokerServer),
}

impl Running {
    fn url(&self) -> String {
        match self {
            Self::Database(server) => server.url(),
            Self::Broker(server) => server.url(),
        }
    }
}

impl Servers {
    /// One of each, but where the environment names one already: that is passed on to the tests as it is.
    pub(crate) fn start_missing() -> Result<Self, Fault> {
        // No test stops or breaks them: those that do start their own.
        Self::start(|name| environment(name).is_none(), Durability::Volatile)
    }

    /// Installs the servers that [`Self::start_missing`] would start.
    pub(crate) fn install_missing() -> Result<(), Fault> {
        Self::install(|name| environment(name).is_none())
    }

    fn install(is_wanted: impl Fn(&str) -> bool) -> Result<(), Fault> {
        for (database, _) in VARIABLES.iter().filter(|(_, name)| is_wanted(name)) {
            install::ensure(database.name(), database.package(), || database.is_installed())?;
        }
        // Tests start it themselves, each before a database of its own.
        install::ensure(Pooler::NAME, Pooler::PACKAGE, Pooler::is_installed)?;
        for (broker, _) in BROKERS.iter().filter(|(_, name)| is_wanted(name)) {
            install::ensure(broker.name(), broker.package(), || broker.is_installed())?;
        }
        Ok(())
    }

    /// Side by side: RabbitMQ takes as long as all the others together.
    fn start(is_wanted: impl Fn(&str) -> bool, durability: Durability) -> Result<Self, Fault> {
        Self::install(&is_wanted)?;
        let databases: Vec<_> = VARIABLES.iter().filter(|(_, name)| is_wanted(name)).collect();
        let brokers: Vec<_> = BROKERS.iter().filter(|(_, name)| is_wanted(name)).collect();
        let mut starting = Vec::new();
        for (database, variable) in databases {
            eprintln!("xtask: starting a {} of our own", database.name());
            let start = move || Server::start(*database, durability).map(Running::Database);
            starting.push((database.name(), *variable, thread::spawn(start)));
        }
        for (broker, variable) in brokers {
            eprintln!("xtask: starting a {} of our own", broker.name());
            let start = move || BrokerServer::start(*broker).map(Running::Broker);
            starting.push((broker.name(), *variable, thread::spawn(start)));
        }
        let mut started = Vec::new();
        for (name, variable, starting) in starting {
            let server = starting.join().map_err(|_| Fault::new(format!("starting {name} broke")))?;
            started.push((variable, server.map_err(|fault| Fault::new(format!("no {name}: {fault}")))?));
        }
        Ok(Self(started))
    }

    /// Tells a command where they are.
    pub(crate) fn tell(&self, command: &mut Command) {
        command.envs(self.0.iter().map(|(variable, server)| (*variable, server.url())));
    }
}

/// `cargo xtask servers`: one of each, until somebody has had enough.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode, Fault> {
    let python = python::ensure(workspace)?;
    let kafka = kafka::Tools::ensure(workspace)?;
    let browser = Browser::ensure(workspace)?;
    // Whoever measures on them wants to know what users will see.
    let servers = Servers::start(|_| true, Durability::Durable)?;
    for (variable, server) in &servers.0 {
        println!("export {variable}='{}'", server.url());
    }
    println!("export {}='{}'", python::VARIABLE, python.display());
    for (variable, path) in kafka.variables().into_iter().chain(browser.variables()) {
        println!("export {variable}='{}'", path.display());
    }
    eprintln!("xtask: in a shell with these lines, `cargo test` finds the servers. Ctrl-C stops them.");
    crate::child::wait_for_a_signal();
    Ok(ExitCode::SUCCESS)
}
