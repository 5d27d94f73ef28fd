//! Brokers for tests.

use std::sync::Mutex;

use servers::{Broker, BrokerServer, Stop};

use crate::certificate::{Certificate, certificate};

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

/// A broker of the test's own that speaks TLS alone.
pub(crate) fn encrypted(broker: Broker) -> BrokerServer {
    let Certificate { certificate, key, .. } = certificate();
    tokio::task::block_in_place(|| BrokerServer::start_with_tls(broker, certificate, key).expect("it starts"))
}

/// Ends it at once, as `kill -9` does.
pub(crate) fn kill(server: &mut BrokerServer) {
    tokio::task::block_in_place(|| server.stop(Stop::Crash));
}

pub(crate) fn resume(server: &mut BrokerServer) {
    tokio::task::block_in_place(|| server.resume().expect("it starts again"));
}

/// Runs `rabbitmqctl` for it.
pub(crate) fn control(server: &BrokerServer, arguments: &[&str]) {
    tokio::task::block_in_place(|| server.control(arguments).expect("rabbitmqctl succeeds"));
}

/// Stops it in order and starts it again: what it was told is on its disk.
pub(crate) fn restart(server: &mut BrokerServer) {
    tokio::task::block_in_place(|| {
        server.stop(Stop::Clean);
        server.resume().expect("it starts again");
    });
}
