//! How a MariaDB is made, started, and known to be ready.

use std::fs;
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

/// The file with the server options of a cluster node, one per line.
const CLUSTER: &str = "cluster";

/// The ID of the cluster's history, which all nodes share.
const CLUSTER_ID: &str = "6acd0ba0-ed18-11f1-ad0a-8247eddfda8e";

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

/// Copies the data of a stopped server.
pub(crate) fn copy(from: &Directory, to: &Directory, account: Account) -> Result<(), Fault> {
    let mut copy = account.command("cp", to.path())?;
    copy.arg("-R").arg(from.path().join("data")).arg(to.path().join("data"));
    process::run(copy, "", &to.path().join("log"))
}

/// Makes a stopped server a node of a Galera cluster: its next start listens to other nodes on `port`. `other` is the port of a running
/// node; `None` for the first node. Both nodes must have the same data.
pub(crate) fn join(directory: &Directory, account: Account, port: u16, other: Option<u16>) -> Result<(), Fault> {
    let address = other.map(|other| format!("127.0.0.1:{other}")).unwrap_or_default();
    // Without a saved position, a node waits forever for a state transfer. When the first node starts, the cluster's position becomes 1. A
    // copy that starts at this position needs no state transfer.
    let (position, bootstraps) = if other.is_none() { (0, 1) } else { (1, 0) };
    let state = format!("version: 2.1\nuuid: {CLUSTER_ID}\nseqno: {position}\nsafe_to_bootstrap: {bootstraps}\n");
    directory.write("data/grastate.dat", &state, account)?;
    let options = format!(
        "--wsrep-on=ON\n\
         --wsrep-provider=/usr/lib/galera/libgalera_smm.so\n\
         --wsrep-cluster-name=outbox_test\n\
         --wsrep-cluster-address=gcomm://{address}\n\
         --wsrep-node-address=127.0.0.1\n\
         --wsrep-sst-method=skip\n\
         --wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{port};gcache.size=16M\n\
         --binlog-format=ROW\n\
         --innodb-autoinc-lock-mode=2\n"
    );
    directory.write(CLUSTER, &options, account).map(drop)
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
    match fs::read_to_string(directory.join(CLUSTER)) {
        // A node runs no statements before it has joined, and its data has the accounts.
        Ok(options) => mariadbd.args(options.lines()),
        Err(_) => mariadbd.arg(option("--init-file=", &directory.join("setup.sql"))),
    };
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
