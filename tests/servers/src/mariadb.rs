//! How a MariaDB is made, started, and known to be ready.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use crate::certificate::Certificate;
use crate::directory::Directory;
use crate::process::{self, Signal};
use crate::program::Account;
use crate::server::Access;
use crate::{Database, Durability, Fault};

pub(crate) const PROGRAMS: &[&str] = &["mariadb-install-db", "mariadbd"];

/// The account that the package makes.
pub(crate) const ACCOUNT: &str = "mysql";

/// An account that may do everything; root keeps out of the tests.
pub(crate) const USER: &str = "outbox";

/// The version of the protocol, which is the first thing that a server says after a packet's length and number.
const PROTOCOL: u8 = 10;

/// Makes the files, and what the first start runs.
pub(crate) fn prepare(directory: &Directory, account: Account, access: &Access) -> Result<(), Fault> {
    let Access { password, database, .. } = access;
    let setup = format!(
        "CREATE DATABASE IF NOT EXISTS {database};\n\
         CREATE OR REPLACE USER {USER}@'127.0.0.1' IDENTIFIED BY '{password}';\n\
         GRANT ALL PRIVILEGES ON *.* TO {USER}@'127.0.0.1' WITH GRANT OPTION;\n"
    );
    directory.write("setup.sql", &setup, account)?;
    let mut install = account.command("mariadb-install-db", directory.path())?;
    install.args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=socket"]);
    install.arg(option("--datadir=", &directory.path().join("data")));
    // A mariadbd that starts deletes the temporary tables that it finds, those of another that is just installing its files included.
    install.env("TMPDIR", directory.path());
    process::run(install, "", &directory.path().join("log"))
}

/// Nothing is flushed at a commit, and nothing is written twice so that half a page could be mended.
const VOLATILE: [&str; 2] = ["--innodb-flush-log-at-trx-commit=0", "--skip-innodb-doublewrite"];

/// Starts it; returns once it takes connections.
pub(crate) fn start(directory: &Path, account: Account, access: &Access, durability: Durability) -> Result<Child, Fault> {
    let log = directory.join("log");
    let mut mariadbd = account.command("mariadbd", directory)?;
    mariadbd.args([
        "--no-defaults",
        "--bind-address=127.0.0.1",
        "--skip-name-resolve",
        "--max-connections=300",
        "--character-set-server=utf8mb4",
        "--default-time-zone=+00:00",
    ]);
    mariadbd.arg(format!("--port={}", access.port));
    mariadbd.arg(option("--datadir=", &directory.join("data")));
    mariadbd.arg(option("--socket=", &directory.join("socket")));
    mariadbd.arg(option("--pid-file=", &directory.join("pid")));
    mariadbd.arg(option("--tmpdir=", directory));
    mariadbd.arg(option("--init-file=", &directory.join("setup.sql")));
    if durability == Durability::Volatile {
        mariadbd.args(VOLATILE);
    }
    if let Some(Certificate { authority, certificate, key }) = Certificate::of(directory) {
        for (name, file) in [("--ssl-ca=", &authority), ("--ssl-cert=", &certificate), ("--ssl-key=", &key)] {
            mariadbd.arg(option(name, file));
        }
    }
    let child = process::start(mariadbd, &log, Signal::Kill)?;
    process::wait_until(|| greets(access.port), child, Database::MariaDb.name(), &log)
}

/// Whether a server greets, rather than refuses.
fn greets(port: u16) -> bool {
    let wait = Duration::from_secs(1);
    let Ok(mut stream) = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), wait) else { return false };
    let mut greeting = [0; 5];
    stream.set_read_timeout(Some(wait)).is_ok() && stream.read_exact(&mut greeting).is_ok() && greeting[4] == PROTOCOL
}

/// `--name=` with a path, whatever characters it holds.
fn option(name: &str, path: &Path) -> std::ffi::OsString {
    let mut option = std::ffi::OsString::from(name);
    option.push(path);
    option
}
