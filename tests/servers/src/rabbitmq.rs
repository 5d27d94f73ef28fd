//! How a RabbitMQ is started: with a port mapper of its own, so that nothing is left behind.

use std::path::Path;
use std::process::Child;

use crate::Fault;
use crate::broker::{PemFiles, USER, answers};
use crate::directory::Directory;
use crate::process::{self, Signal};
use crate::program::{self, Account};
use crate::server::free_port;

/// Not the one on the PATH, which runs as another user in another directory.
const PROGRAM: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const CONTROL: &str = "/usr/lib/rabbitmq/bin/rabbitmqctl";
const MAPPER: &str = "epmd";

/// The name of an exchange of RabbitMQ. If a test declares it as a topic exchange, the tests' user may only publish messages whose routing
/// keys begin with `allowed-`.
pub const RESTRICTED_EXCHANGE: &str = "restricted";

pub(crate) fn is_installed() -> bool {
    Path::new(PROGRAM).is_file() && program::find(MAPPER).is_some()
}

/// A running RabbitMQ.
pub(crate) struct RabbitMq {
    server: Child,
    /// Erlang's port mapper. A server that finds none starts one that outlives it.
    mapper: Child,
    mapper_port: u16,
    node: String,
}

impl RabbitMq {
    /// `pem` is what it shows its clients, where it speaks TLS and nothing else.
    pub(crate) fn start(directory: &Directory, port: u16, password: &str, pem: Option<&PemFiles>) -> Result<Self, Fault> {
        let (path, log) = (directory.path(), directory.path().join("log"));
        let (mapper_port, distribution_port) = (free_port()?, free_port()?);
        let mut mapper = Account::ours().command(MAPPER, path)?;
        mapper.env("ERL_EPMD_ADDRESS", "127.0.0.1").arg("-port").arg(mapper_port.to_string());
        let mapper = process::start(mapper, &log, Signal::Kill)?;
        let mut mapper = process::wait_until(|| answers(mapper_port), mapper, "Erlang's port mapper", &log)?;

        let listening = match pem {
            None => format!("listeners.tcp.1 = 127.0.0.1:{port}\n"),
            Some(PemFiles { certificate, key }) => format!(
                "listeners.tcp = none\nlisteners.ssl.1 = 127.0.0.1:{port}\nssl_options.certfile = {}\n\
                 ssl_options.keyfile = {}\nssl_options.verify = verify_none\nssl_options.fail_if_no_peer_cert = false\n",
                certificate.display(),
                key.display()
            ),
        };
        let definitions = directory.write("definitions.json", &definitions(password), Account::ours())?;
        let config = format!(
            "{listening}load_definitions = {}\nmax_message_size = 8000000\n\
             log.console = true\nlog.console.level = warning\nlog.file = false\n",
            definitions.display()
        );
        let config = directory.write("rabbitmq.conf", &config, Account::ours())?;
        let mut command = Account::ours().command(PROGRAM, path)?;
        let node = format!("outbox-{port}@localhost");
        command.env("RABBITMQ_NODENAME", &node);
        command.env("ERL_EPMD_PORT", mapper_port.to_string()).env("ERL_EPMD_ADDRESS", "127.0.0.1");
        command.env("RABBITMQ_DIST_PORT", distribution_port.to_string()).env("RABBITMQ_CONFIG_FILE", config);
        for (name, below) in [
            ("RABBITMQ_MNESIA_BASE", "mnesia"),
            ("RABBITMQ_LOG_BASE", "logs"),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", "plugins"),
            ("RABBITMQ_PID_FILE", "pid"),
        ] {
            command.env(name, path.join(below));
        }
        // So the shell becomes the server, and a signal for the one is a signal for the other.
        command.env("RUNNING_UNDER_SYSTEMD", "1");
        let server = process::start(command, &log, Signal::Kill)
            .and_then(|server| process::wait_until(|| answers(port), server, "RabbitMQ", &log));
        match server {
            Ok(server) => Ok(Self { server, mapper, mapper_port, node }),
            Err(fault) => {
                process::end(&mut mapper, Signal::Kill);
                Err(fault)
            }
        }
    }

    /// Runs `rabbitmqctl` with these arguments, to its end.
    pub(crate) fn control(&self, directory: &Directory, arguments: &[&str]) -> Result<(), Fault> {
        let path = directory.path();
        let mut command = Account::ours().command(CONTROL, path)?;
        command.env("ERL_EPMD_PORT", self.mapper_port.to_string()).args(["--node", &self.node]).args(arguments);
        process::run(command, "", &path.join("control.log"))
    }

    pub(crate) fn end(&mut self, signal: Signal) {
        process::end(&mut self.server, signal);
        process::end(&mut self.mapper, Signal::Kill);
    }
}

/// The virtual host and its user, as RabbitMQ imports them before it takes connections.
fn definitions(password: &str) -> String {
    format!(
        r#"{{
            "vhosts": [{{"name": "/"}}],
            "users": [{{"name": "{USER}", "password": "{password}", "tags": "administrator"}}],
            "permissions": [{{"user": "{USER}", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}}],
            "topic_permissions": [
                {{"user": "{USER}", "vhost": "/", "exchange": "{RESTRICTED_EXCHANGE}", "write": "^allowed-", "read": ".*"}}
            ]
        }}"#
    )
}
