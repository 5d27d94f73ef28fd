//! A relay between a sink and the broker. It passes requests on, except for faults that a broker does not produce on demand.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::wire::{self, API_VERSIONS, METADATA, PRODUCE, Reader, VERSIONS, Writer};

/// Codes of Kafka's protocol.
const NO_LEADER: i16 = 5;
pub(crate) const TOO_LARGE: i16 = 10;
pub(crate) const TOO_FEW_REPLICAS: i16 = 19;
const WRONG_ACKS: i16 = 21;
pub(crate) const DENIED: i16 = 29;
const UNSUPPORTED_VERSION: i16 = 35;
pub(crate) const FENCED: i16 = 90;

/// A fault of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The metadata has nothing but this code for it.
    Hidden(i16),
    /// None of its partitions has a leader.
    Leaderless,
    /// Its records are refused with this code, this many times.
    Refused { code: i16, times: usize },
    /// The broker writes its records, and this many times the connection is cut before the answer.
    AnswerLost { times: usize },
}

/// A relay in front of a broker; gone with this value, and its connections with it.
pub(crate) struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Whether it takes connections. Each change cuts those that are open.
    is_there: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

struct Shared {
    address: SocketAddr,
    /// The port that the metadata names, unless it is the relay's own.
    advertised: OnceLock<u16>,
    broker: SocketAddr,
    troubles: Mutex<HashMap<String, Trouble>>,
}

/// Records of one partition, as a producer sends them.
struct Records<'r> {
    topic: String,
    partition: i32,
    batch: &'r [u8],
}

impl Relay {
    pub(crate) async fn before(broker: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared { address, advertised: OnceLock::new(), broker, troubles: Mutex::default() });
        let (is_there, watched) = watch::channel(true);
        let accepting = tokio::spawn(accept(listener, shared.clone(), watched));
        Self { address, shared, is_there, accepting }
    }

    pub(crate) fn brokers(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Names this port to clients instead of the relay's own.
    pub(crate) fn advertise(&self, port: u16) {
        self.shared.advertised.set(port).expect("set once");
    }

    pub(crate) fn trouble(&self, topic: &str, trouble: Trouble) {
        self.shared.troubles.lock().expect("no thread panicked").insert(topic.to_owned(), trouble);
    }

    pub(crate) fn heal(&self, topic: &str) {
        self.shared.troubles.lock().expect("no thread panicked").remove(topic);
    }

    /// Cuts all connections, and refuses new ones until [`come_back`](Self::come_back).
    pub(crate) fn go_away(&self) {
        self.is_there.send_replace(false);
    }

    pub(crate) fn come_back(&self) {
        self.is_there.send_replace(true);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, watched: watch::Receiver<bool>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (shared, mut watched) = (shared.clone(), watched.clone());
        if !*watched.borrow_and_update() {
            continue; // which closes the connection
        }
        tokio::spawn(async move {
            // The relay itself may be gone.
            tokio::select! { _ = shared.serve(stream) => {}, _ = watched.changed() => {} }
        });
    }
}

impl Shared {
    /// Answers the requests of one connection in their order.
    async fn serve(&self, mut client: TcpStream) -> Option<()> {
        let mut broker = TcpStream::connect(self.broker).await.ok()?;
        broker.set_nodelay(true).ok()?;
        loop {
            let request = wire::receive(&mut client).await?;
            let mut reader = Reader(&request);
            let (key, version, number) = (reader.i16(), reader.i16(), reader.i32());
            let _client = reader.text();
            let mut answer = Writer::default();
            answer.i32(number);
            if key == API_VERSIONS {
                versions(version, &mut answer);
            } else if key == PRODUCE {
                let header = &request[..request.len() - reader.0.len()];
                self.produce(header, &mut reader, &mut broker, &mut answer).await?;
            } else {
                wire::send(&mut broker, &request).await?;
                let response = wire::receive(&mut broker).await?;
                match key {
                    METADATA => self.metadata(&mut Reader(&response[4..]), &mut answer),
                    _ => _ = answer.raw(&response[4..]),
                }
            }
            wire::send(&mut client, &answer.0).await?;
        }
    }

    /// The trouble of a topic, which is used up by that.
    fn next_trouble(&self, topic: &str) -> Option<Trouble> {
        let mut troubles = self.troubles.lock().expect("no thread panicked");
        let trouble = troubles.get_mut(topic)?;
        match trouble {
            Trouble::Refused { times: 0, .. } | Trouble::AnswerLost { times: 0 } => return None,
            Trouble::Refused { times, .. } | Trouble::AnswerLost { times } => *times -= 1,
            Trouble::Hidden(_) | Trouble::Leaderless => {}
        }
        Some(*trouble)
    }

    /// Passes on the records of topics without trouble, and answers for the others. `None` if the answer is lost.
    async fn produce(
        &self,
        header: &[u8],
        request: &mut Reader<'_>,
        broker: &mut TcpStream,
        answer: &mut Writer,
    ) -> Option<()> {
        let transaction = request.text();
        let (acks, timeout) = (request.i16(), request.i32());
        let records = request.list(|topic| {
            let name = topic.text().expect("a topic has a name");
            topic.list(|partition| Records { topic: name.clone(), partition: partition.i32(), batch: partition.bytes() })
        });
        let (mut passed, mut refused, mut is_lost) = (Vec::new(), Vec::new(), false);
        for records in records.into_iter().flatten() {
            // Confirmed by all replicas, and by a producer whose retries the broker can tell.
            if acks != -1 || Reader(&records.batch[43..]).i32() < 0 {
                refused.push((records, WRONG_ACKS));
                continue;
            }
            match self.next_trouble(&records.topic) {
                Some(Trouble::Refused { code, .. } | Trouble::Hidden(code)) => refused.push((records, code)),
                Some(Trouble::Leaderless) => refused.push((records, NO_LEADER)),
                trouble => {
                    is_lost |= trouble.is_some();
                    passed.push(records);
                }
            }
        }
        // A client looks for a topic once: its partitions are together.
        let mut answers: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        for (records, code) in refused {
            let mut refusal = Writer::default();
            refusal.i32(records.partition).i16(code).i64(-1).i64(-1).i64(-1);
            answers.entry(records.topic).or_default().push(refusal.0);
        }
        for records in passed {
            let mut one = Writer(header.to_vec());
            one.text(transaction.as_deref()).i16(acks).i32(timeout).count(1);
            one.text(Some(&records.topic)).count(1).i32(records.partition).bytes(records.batch);
            wire::send(broker, &one.0).await?;
            let response = wire::receive(broker).await?;
            // After the number, the count of topics, the topic and the count of partitions; before the throttle time.
            let confirmation = &response[4 + 4 + 2 + records.topic.len() + 4..response.len() - 4];
            answers.entry(records.topic).or_default().push(confirmation.to_vec());
        }
        answer.count(answers.len());
        for (topic, partitions) in answers {
            answer.text(Some(&topic)).count(partitions.len()).raw(&partitions.concat());
        }
        answer.i32(0);
        (!is_lost).then_some(())
    }

    /// The broker's metadata, with the relay's address, and with the troubles of topics.
    fn metadata(&self, response: &mut Reader<'_>, answer: &mut Writer) {
        answer.i32(response.i32());
        let brokers = response.list(|broker| (broker.i32(), broker.text(), broker.i32(), broker.text()));
        answer.count(brokers.len());
        let port = self.advertised.get().copied().unwrap_or(self.address.port());
        for (id, _, _, rack) in &brokers {
            answer.i32(*id).text(Some(&self.address.ip().to_string())).i32(port.into()).text(rack.as_deref());
        }
        answer.text(response.text().as_deref()).i32(response.i32());
        let topics = response.i32();
        answer.i32(topics);
        for _ in 0..topics {
            let (code, name, is_internal) = (response.i16(), response.text(), response.i8());
            let partitions = response.list(|partition| {
                let (code, index, leader, epoch) = (partition.i16(), partition.i32(), partition.i32(), partition.i32());
                let brokers: [Vec<i32>; 3] = std::array::from_fn(|_| partition.list(Reader::i32));
                (code, index, leader, epoch, brokers)
            });
            let trouble = self.troubles.lock().expect("no thread panicked").get(name.as_deref().unwrap_or_default()).copied();
            let (code, partitions) = match trouble {
                Some(Trouble::Hidden(code)) => (code, Vec::new()),
                _ => (code, partitions),
            };
            answer.i16(code).text(name.as_deref()).i8(is_internal).count(partitions.len());
            for (code, index, leader, epoch, brokers) in partitions {
                match trouble {
                    Some(Trouble::Leaderless) => answer.i16(NO_LEADER).i32(index).i32(-1),
                    _ => answer.i16(code).i32(index).i32(leader),
                };
                answer.i32(epoch);
                for list in brokers {
                    answer.count(list.len());
                    list.into_iter().for_each(|id| _ = answer.i32(id));
                }
            }
            answer.i32(response.i32());
        }
        answer.i32(response.i32());
    }
}

/// The requests that the relay takes. A newer request gets the error for its version, together with the list, as from any broker.
fn versions(version: i16, answer: &mut Writer) {
    answer.i16(if version == 0 { 0 } else { UNSUPPORTED_VERSION }).count(VERSIONS.len());
    for (key, lowest, highest) in VERSIONS {
        answer.i16(key).i16(lowest).i16(highest);
    }
}
