//! What `event emit` writes with.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use outbox::{Envelope, EventId, Outbox, Store};
use outbox_http::answer::Written;

use super::client::{self, Client};
use super::refused::Refused;
use crate::config::{Config, Flags};
use crate::database;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::{output, stderr};

/// The largest body of a request, unless one event alone is larger: below the 2 MiB that a host takes by default.
const BODY: usize = 1 << 20;
/// The most events of one request: what a host takes by default.
const EVENTS: usize = 1_000;
/// The rests before a request is sent again that found no host, or whose answer was lost.
const RESTS: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// After this time without an answer it is said what is waited for.
const SILENT: Duration = Duration::from_secs(3);
/// No request is sent again after this time: another one does not help a host that keeps a request for so long.
const REPEAT_WITHIN: Duration = Duration::from_secs(30);

/// Writes events into the database, or has a host write them.
pub(crate) enum Writer {
    Database {
        outbox: Outbox<Arc<dyn Store>>,
        /// Those of this command, for commands to type.
        flags: Flags,
    },
    Host(Box<HostWriter>),
}

/// Sends events to a host.
pub(crate) struct HostWriter {
    client: Client,
    /// Those of this command, for commands to type.
    flags: Flags,
}

/// The writer of the place that the configuration means.
pub(crate) async fn writer(config: &Config) -> Result<Writer, Failure> {
    if let Some(remote) = &config.remote {
        return Ok(Writer::Host(Box::new(HostWriter { client: Client::new(remote)?, flags: config.flags.clone() })));
    }
    let store = database::open_for_command(config).await?;
    let outbox = Outbox::writer_only(store).label("outbox event emit").start().await;
    let outbox = outbox.map_err(|error| database::not_started(error, config))?;
    Ok(Writer::Database { outbox, flags: config.flags.clone() })
}

impl Writer {
    /// Writes events. The database takes all or none; a host takes all or none of each request, and `written` is told of each request
    /// that it took. Ctrl-C ends it, with an error that says what is certain of the events that were on their way.
    pub(crate) async fn emit(
        &self,
        envelopes: Vec<Envelope>,
        interrupt: &mut Interrupt,
        mut written: impl FnMut(Taken) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self {
            Self::Database { outbox, flags } => {
                let (first, events) = (envelopes.first().map(Envelope::id), envelopes.len());
                let emit = async { Ok(outbox.writer().emit(envelopes).await?) };
                let doubt = || first.map_or_else(String::new, |first| doubt(first, events, flags));
                written(Taken { new: interrupt.unless(emit, doubt).await?, may_be_new: Vec::new(), events })
            }
            Self::Host(host) => {
                for body in bodies(&envelopes) {
                    written(host.send(&body, interrupt).await?)?;
                }
                Ok(())
            }
        }
    }

    pub(crate) async fn close(self) {
        if let Self::Database { outbox, .. } = self {
            outbox.shutdown().await;
        }
    }
}

/// The events that are there after a write and may be ours, in order.
pub(crate) struct Taken {
    /// Were not there before.
    pub(crate) new: Vec<EventId>,
    /// Were there when the request was sent again because its answer was lost: written by it, or earlier.
    pub(crate) may_be_new: Vec<EventId>,
    /// How many events were handed over, with those that were there before.
    pub(crate) events: usize,
}

impl HostWriter {
    /// Sends a request, and sends it again after a failure that passes. The ids are chosen already, so that no event is written
    /// twice.
    async fn send(&self, body: &Body, interrupt: &mut Interrupt) -> Result<Taken, Failure> {
        let (started, mut rests, mut may_be_done) = (std::time::Instant::now(), RESTS.iter(), false);
        loop {
            let answer = interrupt.unless(async { Ok(self.ask(body).await) }, || body.unanswered(&self.flags)).await?;
            let refused = match answer {
                Ok(answer) => return Ok(taken(answer, may_be_done)),
                Err(refused) => refused,
            };
            may_be_done |= refused.may_be_done();
            let failure = refused.failure(self.client.base());
            match rests.next().filter(|_| failure.is_passing() && started.elapsed() < REPEAT_WITHIN) {
                Some(rest) => {
                    stderr::say(&format!("{}; trying again", outbox::deceptive::shown(failure.message())));
                    let known = || if may_be_done { body.doubt(&self.flags) } else { body.unsent() };
                    let rested = async {
                        tokio::time::sleep(*rest).await;
                        Ok(())
                    };
                    interrupt.unless(rested, known).await?;
                }
                None if may_be_done => return Err(failure.detail(body.doubt(&self.flags))),
                None => return Err(failure),
            }
        }
    }

    /// Sends a request once. Whoever waits for a while is told for what.
    async fn ask(&self, body: &Body) -> Result<Written, Refused> {
        let answer = self.client.send::<Written>(Method::POST, "/v1/events", body.text.clone());
        tokio::pin!(answer);
        if let Ok(answer) = tokio::time::timeout(SILENT, &mut answer).await {
            return answer;
        }
        stderr::say(&format!(
            "the host at {} has not answered for {} s; it may be waiting for its database. Still waiting, for at most {} s",
            self.client.base(),
            SILENT.as_secs(),
            client::ANSWER.as_secs()
        ));
        answer.await
    }
}

/// What an answer tells, of a request that may have been done before.
fn taken(answer: Written, may_be_done: bool) -> Taken {
    let there = if may_be_done { answer.duplicates.clone() } else { Vec::new() };
    let events = answer.ids.len();
    let new = new_ones(answer);
    let mut known: HashSet<EventId> = new.iter().copied().collect();
    Taken { may_be_new: there.into_iter().filter(|id| known.insert(*id)).collect(), new, events }
}

/// The ids of the events that were written. Of an id that stands twice in a request the first is written.
fn new_ones(Written { ids, duplicates, suppressed_ids, .. }: Written) -> Vec<EventId> {
    let mut skipped: HashMap<EventId, u32> = HashMap::new();
    for id in duplicates.into_iter().chain(suppressed_ids) {
        *skipped.entry(id).or_default() += 1;
    }
    let mut new: Vec<EventId> = Vec::with_capacity(ids.len());
    for id in ids.into_iter().rev() {
        match skipped.get_mut(&id).filter(|left| **left > 0) {
            Some(left) => *left -= 1,
            None => new.push(id),
        }
    }
    new.reverse();
    new
}

/// What one request sends.
struct Body {
    /// An array of envelopes.
    text: Bytes,
    /// The id of the first of them.
    first: EventId,
    events: usize,
}

impl Body {
    /// What is told when nobody knows whether the events were written.
    fn doubt(&self, flags: &Flags) -> String {
        doubt(self.first, self.events, flags)
    }

    /// What is told to somebody who stopped waiting for the answer.
    fn unanswered(&self, flags: &Flags) -> String {
        format!("{}, but wait a minute first: the host may still be working on the request", self.doubt(flags))
    }

    /// What is told when no host has taken the request.
    fn unsent(&self) -> String {
        let Self { first, events, .. } = self;
        if *events == 1 {
            return format!("the event {first} was not written: the host did not take it");
        }
        format!("{} from {first} on were not written: the host did not take them", output::count(*events as u64, "event"))
    }
}

/// What is told when nobody knows whether these events of one transaction were written.
fn doubt(first: EventId, events: usize, flags: &Flags) -> String {
    let show = flags.command(&format!("outbox event show {first}"));
    if events == 1 {
        return format!("it is not known whether the event {first} was written; run `{show}` to find out");
    }
    let events = output::count(events as u64, "event");
    format!(
        "it is not known whether {events} from {first} on were written; either all of them were or none, and `{show}` \
         shows which"
    )
}

/// The requests that write these events.
fn bodies(envelopes: &[Envelope]) -> Vec<Body> {
    let (mut bodies, mut rest) = (Vec::new(), envelopes.iter().map(|envelope| (envelope.id(), envelope.to_json())).peekable());
    while let Some((first, mut text)) = rest.next() {
        let mut events = 1;
        while let Some((_, next)) = rest.next_if(|(_, next)| events < EVENTS && text.len() + next.len() <= BODY) {
            text.push(',');
            text.push_str(&next);
            events += 1;
        }
        bodies.push(Body { text: format!("[{text}]").into(), first, events });
    }
    bodies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_sent_in_parts_that_a_host_takes_and_one_that_is_too_large_goes_alone() {
        let event = |bytes: usize| Envelope::new("X").bytes("text/plain", vec![b'x'; bytes]).expect("valid");
        let small: Vec<Envelope> = (0..1_001).map(|_| event(1)).collect();
        assert_eq!(bodies(&small).iter().map(|body| body.events).collect::<Vec<_>>(), [1_000, 1]);
        let mixed = [event(1), event(900 << 10), event(1), event(1)];
        let sent = bodies(&mixed);
        assert_eq!(sent.iter().map(|body| body.events).collect::<Vec<_>>(), [1, 1, 2]);
        for body in sent {
            let events: Vec<serde_json::Value> = serde_json::from_slice(&body.text).expect("an array");
            assert_eq!((events.len(), &events[0]["event_id"]), (body.events, &body.first.to_string().into()));
        }
        assert!(bodies(&[]).is_empty());
    }

    #[test]
    fn an_id_that_stands_twice_is_new_once_and_one_that_was_there_is_not() {
        let ids = |names: &[&str]| names.iter().map(|name| name.parse().expect("an id")).collect::<Vec<EventId>>();
        let written = |all: &[&str], skipped: &[&str]| {
            new_ones(Written { ids: ids(all), duplicates: ids(skipped), ..Written::default() })
        };
        assert_eq!(written(&["a", "b", "a", "c"], &["a", "c"]), ids(&["a", "b"]));
        assert_eq!(written(&["a", "a"], &["a", "a"]), ids(&[]));
        let left_out = Written { ids: ids(&["a", "s"]), suppressed_ids: ids(&["s"]), ..Written::default() };
        assert_eq!(new_ones(left_out), ids(&["a"]), "what a hook of the host left out was not written");
    }

    #[test]
    fn an_event_that_is_there_after_a_lost_answer_may_be_ours() {
        let id = |name: &str| name.parse::<EventId>().expect("an id");
        let answer = || Written { ids: vec![id("a"), id("b")], duplicates: vec![id("a")], ..Written::default() };
        let sure = taken(answer(), false);
        assert_eq!((sure.new, sure.may_be_new), (vec![id("b")], vec![]));
        let unsure = taken(answer(), true);
        assert_eq!((unsure.new, unsure.may_be_new), (vec![id("b")], vec![id("a")]));
    }
}
