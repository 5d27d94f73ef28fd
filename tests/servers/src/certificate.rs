//! A certificate for a server, and the authority that signed it, which nobody else knows.

use std::path::{Path, PathBuf};

use crate::Fault;
use crate::directory::Directory;
use crate::process;
use crate::program::Account;

/// Makes an authority, and a certificate of it for 127.0.0.1 and for no name. MariaDB reads no other form of a key than this one.
const COMMANDS: &str = "set -e; umask 077
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.crt
printf subjectAltName=IP:127.0.0.1 > server.ext
openssl req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.crt";

/// Where a server finds what it needs for TLS.
pub(crate) struct Certificate {
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Certificate {
    /// Makes it by the server's own account, since a server reads a key only if nobody else can.
    pub(crate) fn make(directory: &Directory, account: Account) -> Result<(), Fault> {
        let mut shell = account.command("sh", directory.path())?;
        shell.args(["-c", COMMANDS]);
        process::run(shell, "", &directory.path().join("log"))
    }

    /// That of a directory; `None` where none was made.
    pub(crate) fn of(directory: &Path) -> Option<Self> {
        let [authority, certificate, key] = ["ca.crt", "server.crt", "server.key"].map(|name| directory.join(name));
        certificate.exists().then_some(Self { authority, certificate, key })
    }
}
