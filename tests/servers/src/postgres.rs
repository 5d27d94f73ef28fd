//! How a PostgreSQL is made, started, and known to be ready.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use crate::certificate::Certificate;
use crate::directory::Directory;
use crate::process::{self, Signal};
use crate::program::Account;
use crate::server::Access;
use crate::{Database, Durability, Fault};

pub(crate) const PROGRAMS: &[&str] = &["initdb", "pg_basebackup", "postgres"];

/// The account that the package makes.
pub(crate) const ACCOUNT: &str = "postgres";

/// The superuser.
pub(crate) const USER: &str = "postgres";

/// Makes the files, and the database in them.
pub(crate) fn prepare(directory: &Directory, account: Account, access: &Access) -> Result<(), Fault> {
    let log = log(directory.path());
    let password = directory.write("password", &access.password, account)?;
    let mut initdb = command(account, "initdb", directory.path())?;
    // SCRAM has a client hash 4,096 times for each connection. Unoptimised, that took a seventh of the processor time of the flow tests
    // on PostgreSQL. The pooler asks for SCRAM.
    // Flushing every file of an empty database takes longer than all the rest, and protects nothing yet.
    initdb.args(["--auth=md5", "--encoding=UTF8", "--locale=C", "--no-sync", "--username", USER]);
    initdb.arg("--pgdata").arg(data(directory.path())).arg("--pwfile").arg(&password);
    process::run(initdb, "", &log)?;
    fs::remove_file(&password).map_err(|error| Fault::file("remove", &password, &error))?;

    // Without a client program, and before anybody can connect.
    let mut single = command(account, "postgres", directory.path())?;
    single.arg("--single").arg("-D").arg(data(directory.path())).arg("postgres");
    process::run(single, &format!("CREATE DATABASE {}\n", access.database), &log)
}

/// Makes the files of a standby that follows a server, and applies what it receives so much later.
pub(crate) fn copy(directory: &Directory, account: Account, primary: &Access, apply_delay: Duration) -> Result<(), Fault> {
    let mut backup = command(account, "pg_basebackup", directory.path())?;
    backup.args(["--host=127.0.0.1", "--username", USER, "--port", &primary.port.to_string()]);
    backup.args(["--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf", "--no-sync", "--pgdata"]);
    backup.arg(data(directory.path())).env("PGPASSWORD", &primary.password);
    process::run(backup, "", &log(directory.path()))?;
    let settings = format!("recovery_min_apply_delay = '{}ms'\n", apply_delay.as_millis());
    append(&data(directory.path()).join("postgresql.auto.conf"), &settings)?;
    // A password that is sent as it is can be sent by a proxy, too.
    let access = "host all all 127.0.0.1/32 password\n";
    let file = data(directory.path()).join("pg_hba.conf");
    fs::write(&file, access).map_err(|error| Fault::file("write", &file, &error))
}

fn append(file: &Path, text: &str) -> Result<(), Fault> {
    let opened = fs::OpenOptions::new().append(true).open(file);
    let appended = opened.and_then(|mut opened| opened.write_all(text.as_bytes()));
    appended.map_err(|error| Fault::file("write", file, &error))
}

/// What every server is told.
const SETTINGS: &[&str] =
    &["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=300", "timezone=UTC", "log_timezone=UTC"];

/// Commits wait for the write as ever, but nothing is forced to the disk.
const VOLATILE: &[&str] = &["fsync=off", "full_page_writes=off"];

/// Starts it; returns once it takes connections.
pub(crate) fn start(directory: &Path, account: Account, access: &Access, durability: Durability) -> Result<Child, Fault> {
    let log = log(directory);
    let mut postgres = command(account, "postgres", directory)?;
    postgres.arg("-D").arg(data(directory)).args(["-p", &access.port.to_string()]);
    let volatile = if durability == Durability::Volatile { VOLATILE } else { &[] };
    for setting in SETTINGS.iter().chain(volatile) {
        postgres.args(["-c", setting]);
    }
    if let Some(Certificate { certificate, key, .. }) = Certificate::of(directory) {
        let files = [("ssl_cert_file=", &certificate), ("ssl_key_file=", &key)];
        postgres.args(["-c", "ssl=on"]);
        for (name, file) in files {
            postgres.args(["-c", &format!("{name}{}", file.display())]);
        }
    }
    // What is left of an earlier run would be taken for this one's.
    let status = data(directory).join("postmaster.pid");
    fs::remove_file(&status).ok();
    let child = process::start(postgres, &log, Signal::Quit)?;
    let ready = || fs::read_to_string(&status).is_ok_and(|status| is_ready(&status));
    process::wait_until(ready, child, Database::PostgreSql.name(), &log)
}

/// What `pg_ctl` looks at: the eighth line says how far the server is.
fn is_ready(status: &str) -> bool {
    status.lines().nth(7).is_some_and(|line| line.trim() == "ready")
}

/// A developer's own settings for other servers have no place here.
fn command(account: Account, name: &str, folder: &Path) -> Result<Command, Fault> {
    let mut command = account.command(name, folder)?;
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("PG")) {
            command.env_remove(name);
        }
    }
    Ok(command)
}

fn data(directory: &Path) -> std::path::PathBuf {
    directory.join("data")
}

fn log(directory: &Path) -> std::path::PathBuf {
    directory.join("log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_when_its_eighth_line_says_so() {
        assert!(is_ready("41\n/data\n1700000000\n5432\n\n127.0.0.1\n  5 6\nready   \n"));
        assert!(!is_ready("41\n/data\n1700000000\n5432\n\n127.0.0.1\n  5 6\nstarting\n"));
        assert!(!is_ready("41\n/data\n"));
    }
}
