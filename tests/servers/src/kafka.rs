//! A broker that speaks Kafka's protocol: Tansu.

use std::fmt;
use std::path::PathBuf;
use std::process::Child;

use crate::Fault;
use crate::broker::answers;
use crate::directory::Directory;
use crate::process::{self, Signal};
use crate::program::{self, Account};
use crate::server::free_port;

const PROGRAM: &str = "tansu";

/// A private broker. It keeps its records in memory. Stopped when dropped.
///
/// It admits everyone, without TLS: this build of Tansu has no storage for users and ignores its own settings for TLS. See
/// [`KafkaGates`](crate::KafkaGates).
pub struct Kafka {
    port: u16,
    child: Child,
    /// The last field: the files go after the process.
    _directory: Directory,
}

impl Kafka {
    /// The variable that names the program. `cargo xtask test` installs it and sets this: no package of Debian has it.
    pub const VARIABLE: &str = "OUTBOX_TEST_TANSU";

    /// Starts one.
    ///
    /// # Errors
    /// When the program is missing, or does not start; with the last lines of its log.
    pub fn start() -> Result<Self, Fault> {
        let program = program().ok_or_else(|| {
            Fault::new(format!(
                "Kafka's tests need the program {PROGRAM}; type `cargo xtask test`, which installs it, or name it in {}",
                Self::VARIABLE
            ))
        })?;
        let account = Account::ours();
        let directory = Directory::make(account)?;
        let (port, log) = (free_port()?, directory.path().join("log"));
        let address = format!("tcp://127.0.0.1:{port}");
        let mut command = account.command_of(&program, directory.path());
        command.args(["broker", "--silent", "--storage-engine", "memory://tansu/"]);
        command.args(["--listener-url", &address, "--advertised-listener-url", &address]);
        let child = process::start(command, &log, Signal::Kill)?;
        let child = process::wait_until(|| answers(port), child, PROGRAM, &log)?;
        Ok(Self { port, child, _directory: directory })
    }

    /// The port, on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        process::end(&mut self.child, Signal::Kill); // its records are in memory
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka").field("port", &self.port).finish_non_exhaustive()
    }
}

#[expect(clippy::disallowed_methods, reason = "the environment is how xtask says where it has installed the program")]
fn program() -> Option<PathBuf> {
    std::env::var_os(Kafka::VARIABLE).map(PathBuf::from).or_else(|| program::find(PROGRAM))
}
