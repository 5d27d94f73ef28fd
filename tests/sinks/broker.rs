//! Brokers for tests.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use servers::{Broker, BrokerServer, Stop};

/// The address of a broker that nobody stops: the environment's, or one that all tests of this program share.
pub(crate) fn shared(broker: Broker) -> String {
    static STARTED: Mutex<Vec<(Broker, String, BrokerServer)>> = Mutex::new(Vec::new());

    let variable = match broker {
        Broker::Nats => "OUTBOX_TEST_NATS_URL",
        Broker::Redis => "OUTBOX_TEST_REDIS_URL",
        Broker::RabbitMq => "OUTBOX_TEST_AMQP_URL",
    };
    #[expect(clippy::disallowed_methods, reason = "the environment is how xtask speaks to the tests")]
    if let Ok(url) = std::env::var(variable) {
        return url;
    }
    tokio::task::block_in_place(|| {
        let mut started = STARTED.lock().expect("nobody panicked");
        if let Some((_, url, _)) = started.iter().find(|(kind, ..)| *kind == broker) {
            return url.clone();
        }
        let server = BrokerServer::start(broker).expect("it starts");
        let url = server.url();
        started.push((broker, url.clone(), server));
        url
    })
}

/// A broker of the test's own.
pub(crate) fn own(broker: Broker) -> BrokerServer {
    tokio::task::block_in_place(|| BrokerServer::start(broker).expect("it starts"))
}

/// Ends it at once, as `kill -9` does.
pub(crate) fn kill(server: &mut BrokerServer) {
    tokio::task::block_in_place(|| server.stop(Stop::Crash));
}

pub(crate) fn resume(server: &mut BrokerServer) {
    tokio::task::block_in_place(|| server.resume().expect("it starts again"));
}

/// An authority, and a certificate of it for 127.0.0.1 with its key; all in PEM.
pub(crate) struct Certificate {
    pub(crate) authority: PathBuf,
    pub(crate) certificate: String,
    pub(crate) key: String,
    _directory: tempfile::TempDir,
}

const MAKE: &str = "set -e
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.crt
printf 'subjectAltName=IP:127.0.0.1' > server.ext
openssl req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.crt";

/// Made once for all tests.
pub(crate) fn certificate() -> &'static Certificate {
    static MADE: OnceLock<Certificate> = OnceLock::new();
    MADE.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let made = Command::new("sh").args(["-c", MAKE]).current_dir(directory.path()).output().expect("sh is there");
        assert!(made.status.success(), "openssl is installed: {}", String::from_utf8_lossy(&made.stderr));
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect("openssl made it");
        Certificate {
            authority: directory.path().join("ca.crt"),
            certificate: read("server.crt"),
            key: read("server.key"),
            _directory: directory,
        }
    })
}
