//! Message brokers, from their start to their end.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use crate::directory::Directory;
use crate::process::{self, Signal};
use crate::program::{self, Account};
use crate::rabbitmq::{self, RabbitMq};
use crate::server::{free_port, password};
use crate::{Fault, Stop};

/// The user of every broker that asks for one.
pub(crate) const USER: &str = "outbox";
/// The user of NATS whose account has a quota.
const SMALL_USER: &str = "small";
/// The user of NATS that may not publish to `denied.>`.
const DENIED_USER: &str = "denied";
/// The bytes that the account of the small user may store.
const SMALL_QUOTA: u32 = 20_000;

/// A kind of broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broker {
    /// NATS with JetStream.
    Nats,
    /// Redis.
    Redis,
    /// RabbitMQ.
    RabbitMq,
}

impl Broker {
    /// As people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nats => "NATS",
            Self::Redis => "Redis",
            Self::RabbitMq => "RabbitMQ",
        }
    }

    /// Debian's package of the server.
    #[must_use]
    pub fn package(self) -> &'static str {
        match self {
            Self::Nats => "nats-server",
            Self::Redis => "redis-server",
            Self::RabbitMq => "rabbitmq-server",
        }
    }

    /// Whether this machine has the programs that [`BrokerServer::start`] needs.
    #[must_use]
    pub fn is_installed(self) -> bool {
        match self {
            Self::Nats => program::find("nats-server").is_some(),
            Self::Redis => program::find("redis-server").is_some(),
            Self::RabbitMq => rabbitmq::is_installed(),
        }
    }
}

/// A private broker. Stopped when dropped, and its files with it.
pub struct BrokerServer {
    broker: Broker,
    port: u16,
    password: String,
    /// The certificate that it shows, in PEM, and its key; `None` without TLS.
    certificate: Option<(String, String)>,
    /// `None` while it is stopped.
    child: Option<Running>,
    /// The last field: the files go after the server.
    directory: Directory,
}

/// The files of a server's certificate and its key.
pub(crate) struct PemFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// What runs for a broker.
enum Running {
    One(Child),
    RabbitMq(RabbitMq),
}

impl BrokerServer {
    /// Makes a broker that keeps what it confirmed, and starts it. RabbitMQ takes ten seconds.
    ///
    /// # Errors
    /// When a program is missing, or does not do what it should; with the last lines of its log.
    pub fn start(broker: Broker) -> Result<Self, Fault> {
        Self::make(broker, None)
    }

    /// The same with TLS and nothing else, by a certificate and its key in PEM.
    ///
    /// # Errors
    /// As [`start`](Self::start) does.
    pub fn start_with_tls(broker: Broker, certificate: &str, key: &str) -> Result<Self, Fault> {
        Self::make(broker, Some((certificate.to_owned(), key.to_owned())))
    }

    fn make(broker: Broker, certificate: Option<(String, String)>) -> Result<Self, Fault> {
        let directory = Directory::make(Account::ours())?;
        let mut server = Self { broker, port: free_port()?, password: password(), certificate, child: None, directory };
        server.resume()?;
        Ok(server)
    }

    /// How to connect, as a user that may do everything. The same after every stop.
    #[must_use]
    pub fn url(&self) -> String {
        let (port, password) = (self.port, &self.password);
        let tls = self.certificate.is_some();
        match self.broker {
            Broker::Nats => format!("{}://{USER}:{password}@127.0.0.1:{port}", if tls { "tls" } else { "nats" }),
            Broker::Redis => format!("{}://:{password}@127.0.0.1:{port}/0", if tls { "rediss" } else { "redis" }),
            Broker::RabbitMq => format!("{}://{USER}:{password}@127.0.0.1:{port}/%2f", if tls { "amqps" } else { "amqp" }),
        }
    }

    /// How to connect to NATS as a user whose account may store 20 kB in JetStream.
    #[must_use]
    pub fn url_with_quota(&self) -> String {
        self.url().replacen(USER, SMALL_USER, 1)
    }

    /// How to connect to NATS as a user that may not publish to `denied.>`.
    #[must_use]
    pub fn url_denied(&self) -> String {
        self.url().replacen(USER, DENIED_USER, 1)
    }

    /// The port, on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops it; returns once it has ended. What it confirmed stays. Nothing happens when it is stopped already.
    pub fn stop(&mut self, how: Stop) {
        let signal = match how {
            Stop::Clean => Signal::Terminate,
            Stop::Crash => Signal::Kill,
        };
        match self.child.take() {
            None => {}
            Some(Running::One(mut child)) => process::end(&mut child, signal),
            Some(Running::RabbitMq(mut rabbit)) => rabbit.end(signal),
        }
    }

    /// Starts it again after a stop, on the same port; returns once it takes connections. Nothing happens when it runs.
    ///
    /// # Errors
    /// When it does not start; with the last lines of its log.
    pub fn resume(&mut self) -> Result<(), Fault> {
        if self.child.is_none() {
            self.child = Some(match self.broker {
                Broker::Nats => Running::One(self.nats()?),
                Broker::Redis => Running::One(self.redis()?),
                Broker::RabbitMq => {
                    let pem = self.pem_files()?;
                    Running::RabbitMq(RabbitMq::start(&self.directory, self.port, &self.password, pem.as_ref())?)
                }
            });
        }
        Ok(())
    }

    fn nats(&self) -> Result<Child, Fault> {
        let (port, password) = (self.port, &self.password);
        let data = self.directory.path().join("data");
        let tls = match self.pem_files()? {
            Some(PemFiles { certificate, key }) => format!("tls {{ cert_file: {certificate:?}, key_file: {key:?} }}\n"),
            None => String::new(),
        };
        let config = format!(
            "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: {data:?} }}\naccounts {{\n\
             MAIN: {{ jetstream: enabled, users: [\n\
             {{ user: {USER}, password: \"{password}\" }}\n\
             {{ user: {DENIED_USER}, password: \"{password}\", permissions: {{ publish: {{ deny: \"denied.>\" }} }} }}\n\
             ] }}\n\
             SMALL: {{ jetstream: {{ max_file: {SMALL_QUOTA} }}, users: [{{ user: {SMALL_USER}, password: \"{password}\" }}] }}\n\
             }}\n{tls}"
        );
        let file = self.directory.write("nats.conf", &config, Account::ours())?;
        let mut command = Account::ours().command("nats-server", self.directory.path())?;
        command.arg("--config").arg(file);
        self.started(command)
    }

    fn redis(&self) -> Result<Child, Fault> {
        let (port, password) = (self.port, &self.password);
        let listening = match self.pem_files()? {
            Some(PemFiles { certificate, key }) => {
                format!("port 0\ntls-port {port}\ntls-cert-file {certificate:?}\ntls-key-file {key:?}\ntls-auth-clients no\n")
            }
            None => format!("port {port}\n"),
        };
        // What was confirmed survives a crash.
        let config = format!(
            "bind 127.0.0.1\n{listening}requirepass {password}\ndir {:?}\nappendonly yes\nappendfsync always\n",
            self.directory.path()
        );
        let file = self.directory.write("redis.conf", &config, Account::ours())?;
        let mut command = Account::ours().command("redis-server", self.directory.path())?;
        command.arg(file);
        self.started(command)
    }

    fn started(&self, command: std::process::Command) -> Result<Child, Fault> {
        let log = self.directory.path().join("log");
        let child = process::start(command, &log, Signal::Kill)?;
        process::wait_until(|| answers(self.port), child, self.broker.name(), &log)
    }

    /// Runs `rabbitmqctl` with these arguments, to its end.
    ///
    /// # Errors
    /// If this is no running RabbitMQ, or the program fails; with the last lines of its output.
    pub fn control(&self, arguments: &[&str]) -> Result<(), Fault> {
        match &self.child {
            Some(Running::RabbitMq(rabbit)) => rabbit.control(&self.directory, arguments),
            _ => Err(Fault::new("only a RabbitMQ that runs can be controlled")),
        }
    }

    /// Where the certificate and its key are; `None` without TLS.
    fn pem_files(&self) -> Result<Option<PemFiles>, Fault> {
        let Some((certificate, key)) = &self.certificate else { return Ok(None) };
        let write = |name: &str, text: &str| self.directory.write(name, text, Account::ours());
        Ok(Some(PemFiles { certificate: write("certificate.pem", certificate)?, key: write("key.pem", key)? }))
    }

    /// Where its files are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for BrokerServer {
    fn drop(&mut self) {
        self.stop(Stop::Crash); // nobody will look at its files
    }
}

impl fmt::Debug for BrokerServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerServer").field("broker", &self.broker).field("port", &self.port).finish_non_exhaustive()
    }
}

/// Whether anybody takes connections there.
pub(crate) fn answers(port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Duration::from_secs(1)).is_ok()
}
