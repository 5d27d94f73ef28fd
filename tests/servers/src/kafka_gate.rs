//! Kafka's own TLS and authentication, in front of a broker that has neither.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Child;

use crate::Fault;
use crate::broker::answers;
use crate::directory::Directory;
use crate::process::{self, Signal};
use crate::program::{self, Account};
use crate::server::free_port;

const SCRIPT: &str = include_str!("kafka_gate.py");

/// A process that opens gates: ports where Kafka's library for Java encrypts connections and authenticates clients, as it does in
/// Kafka's broker. A gate passes the requests of admitted clients on to a broker. Stopped when dropped.
pub struct KafkaGates {
    port: u16,
    child: Child,
    /// The last field: the files go after the process.
    directory: Directory,
}

impl KafkaGates {
    /// The variable that names the Python that has Kafka's library. `cargo xtask test` installs it and sets this.
    pub const VARIABLE: &str = "OUTBOX_TEST_KAFKA_PYTHON";

    /// The name of the other program that it needs.
    pub const NAME: &str = "Java";

    /// Debian's package of it.
    pub const PACKAGE: &str = "default-jre-headless";

    /// Whether this machine has Java.
    #[must_use]
    pub fn is_installed() -> bool {
        program::find("java").is_some()
    }

    /// Starts the process, without a gate. Takes two seconds.
    ///
    /// # Errors
    /// If a program is missing or does not start; with the last lines of its log.
    pub fn start() -> Result<Self, Fault> {
        let python = python().ok_or_else(|| {
            Fault::new(format!(
                "Kafka's tests need its library; type `cargo xtask test`, which installs it, or name a Python in {}",
                Self::VARIABLE
            ))
        })?;
        let account = Account::ours();
        let directory = Directory::make(account)?;
        let (port, log) = (free_port()?, directory.path().join("log"));
        let script = directory.write("kafka_gate.py", SCRIPT, account)?;
        let mut command = account.command_of(&python, directory.path());
        command.arg(script).arg(port.to_string());
        let child = process::start(command, &log, Signal::Kill)?;
        let child = process::wait_until(|| answers(port), child, "Kafka's library", &log)?;
        Ok(Self { port, child, directory })
    }

    /// Opens a gate with these settings, which `kafka_gate.py` describes. Returns its port, on 127.0.0.1.
    ///
    /// # Errors
    /// If Kafka's library refuses the settings; with the last lines of its log.
    pub fn open(&self, settings: &str) -> Result<u16, Fault> {
        let mut answer = String::new();
        let asked = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).and_then(|mut stream| {
            writeln!(stream, "{settings}")?;
            BufReader::new(stream).read_line(&mut answer)
        });
        asked.map_err(|error| Fault::new(format!("Kafka's library opens no gate: {error}")))?;
        let log = || process::tail(&self.directory.path().join("log"));
        answer.trim().parse().map_err(|_| Fault::new(format!("Kafka's library refuses the settings of a gate:\n{}", log())))
    }
}

impl Drop for KafkaGates {
    fn drop(&mut self) {
        process::end(&mut self.child, Signal::Kill); // it keeps nothing
    }
}

impl fmt::Debug for KafkaGates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaGates").field("port", &self.port).finish_non_exhaustive()
    }
}

#[expect(clippy::disallowed_methods, reason = "the environment is how xtask says where it has installed the library")]
fn python() -> Option<PathBuf> {
    std::env::var_os(KafkaGates::VARIABLE).map(PathBuf::from)
}
