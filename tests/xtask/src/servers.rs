//! Database servers for tests: started when no URL names one already, installed when the machine has none.

use std::process::{Command, ExitCode};

use servers::{Database, Durability, Server};

use crate::fault::Fault;
use crate::install;
use crate::python;
use crate::workspace::{Workspace, environment};

/// Where the tests look for each server.
const VARIABLES: [(Database, &str); 2] =
    [(Database::PostgreSql, "OUTBOX_TEST_POSTGRES_URL"), (Database::MariaDb, "OUTBOX_TEST_MYSQL_URL")];

/// Servers that run, and how the tests find them. Stopped when dropped.
pub(crate) struct Servers(Vec<(&'static str, Server)>);

impl Servers {
    /// One of each, but where the environment names one already: that is passed on to the tests as it is.
    pub(crate) fn start_missing() -> Result<Self, Fault> {
        // No test stops or breaks them: those that do start their own.
        Self::start(VARIABLES.iter().filter(|(_, name)| environment(name).is_none()), Durability::Volatile)
    }

    fn start<'a>(wanted: impl Iterator<Item = &'a (Database, &'static str)>, durability: Durability) -> Result<Self, Fault> {
        let mut started = Vec::new();
        for (database, variable) in wanted {
            install::ensure(*database)?;
            eprintln!("xtask: starting a {} of our own", database.name());
            let server = Server::start(*database, durability);
            let server = server.map_err(|fault| Fault::new(format!("no {}: {fault}", database.name())))?;
            started.push((*variable, server));
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
    // Whoever measures on them wants to know what users will see.
    let servers = Servers::start(VARIABLES.iter(), Durability::Durable)?;
    for (variable, server) in &servers.0 {
        println!("export {variable}='{}'", server.url());
    }
    println!("export {}='{}'", python::VARIABLE, python.display());
    eprintln!("xtask: in a shell with these lines, `cargo test` finds the servers. Ctrl-C stops them.");
    crate::child::wait_for_a_signal();
    Ok(ExitCode::SUCCESS)
}
