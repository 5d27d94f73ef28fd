//! Messages of a plugin in a real host, to sinks of the application's own.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use outbox::sink::{Message, Sink, SinkError, Sinks};
use outbox::store::{InspectStore, Record};
use outbox::wasm::PluginState;
use outbox::{EventId, Outbox, SqliteStore, Status};
use support::{Endpoint, eventually};

use crate::common::{Directory, commit, database, event, sample};

/// Keeps every message, and confirms it unless it was told otherwise.
#[derive(Default)]
struct Kept {
    messages: Mutex<Vec<(&'static str, Message)>>,
    answers: Mutex<VecDeque<SinkError>>,
    /// Whether it gives no answers at all, which no sink may.
    silent: AtomicBool,
}

/// One of the names by which messages come to be kept.
struct Named(&'static str, Arc<Kept>);

#[async_trait]
impl Sink for Named {
    async fn send(&self, messages: &[Message]) -> Vec<Result<(), SinkError>> {
        let Self(name, kept) = self;
        kept.messages.lock().expect("not poisoned").extend(messages.iter().map(|message| (*name, message.clone())));
        if kept.silent.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let mut answers = kept.answers.lock().expect("not poisoned");
        messages.iter().map(|_| answers.pop_front().map_or(Ok(()), Err)).collect()
    }
}

impl Kept {
    fn answers(&self, error: SinkError) {
        self.answers.lock().expect("not poisoned").push_back(error);
    }

    /// The sink, the name, and the header `attempt` of each message.
    fn lines(&self) -> Vec<String> {
        let line = |(sink, message): &(&str, Message)| {
            let attempt = message.headers.iter().find(|(name, _)| name == "attempt").map_or("", |(_, value)| value);
            format!("{sink} {} {attempt}", message.id)
        };
        self.messages.lock().expect("not poisoned").iter().map(line).collect()
    }
}

struct Publishing {
    _db: support::Sqlite,
    store: SqliteStore,
    directory: Directory,
    kept: Arc<Kept>,
    outbox: Outbox<SqliteStore>,
}

impl Publishing {
    async fn with(manifest: &str) -> Self {
        let directory = Directory::new();
        directory.put("effects.toml", format!("{manifest}\n[retry]\npolicy = 'fixed'\nbase = '10ms'\n").as_bytes());
        directory.put("effects.wasm", &sample("effects"));
        let (db, store) = database().await;
        let kept = Arc::<Kept>::default();
        let named = |name| Arc::new(Named(name, kept.clone()));
        let sinks = Sinks::default().with("orders", named("orders")).with("audit", named("audit"));
        let outbox =
            Outbox::single_node(store.clone()).sinks(sinks).plugins_config(directory.config()).start().await.expect("starts");
        Self { _db: db, store, directory, kept, outbox }
    }

    async fn deed(&self, payload: &str) -> EventId {
        commit(&self.outbox, vec![event("Effects", "Do", payload)]).await[0]
    }

    async fn ends(&self, id: EventId, status: Status) -> Record {
        let row = async || self.store.get(id).await.expect("reads").expect("the row is there");
        eventually(&format!("the event is {status}"), async || row().await.status == status).await;
        row().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_arrive_under_numbered_names_of_their_event_and_a_repeated_delivery_sends_the_same_names() {
    let publishing = Publishing::with("publish.sinks = ['orders', 'audit']").await;

    let id = publishing.deed(r#"{"publish":["orders","audit"],"then":"fail_once"}"#).await;
    let row = publishing.ends(id, Status::Done).await;

    assert_eq!(row.attempts, 1);
    let sent = [("orders", 1, 1), ("audit", 2, 1), ("orders", 1, 2), ("audit", 2, 2)];
    let sent = sent.map(|(sink, number, attempt)| format!("{sink} {id}.{number} {attempt}"));
    assert_eq!(publishing.kept.lines(), sent, "a failed call's messages are out, and its repetition can be told");
    let (_, first) = publishing.kept.messages.lock().expect("not poisoned")[0].clone();
    assert_eq!((first.event_id, first.subject.as_str(), first.key.as_deref()), (id, "subject", Some("k")));
    assert_eq!((first.content_type.as_str(), &first.body[..]), ("application/json", &br#"{"number":0,"of":2}"#[..]));
    assert!(!first.trusts_subject, "the plugin chose it");
    publishing.outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_a_sink_does_not_take_is_a_failure_with_the_reason_and_tried_again_only_where_that_helps() {
    let publishing = Publishing::with("publish.sinks = ['orders']").await;
    publishing.kept.answers(SinkError::Unavailable {
        reason: "https://hooks answered 503: s3cret".to_owned(),
        retry_after: None,
        tried_ago: Duration::ZERO,
    });

    let id = publishing.deed(r#"{"publish":["orders"],"then":"done"}"#).await;
    let row = publishing.ends(id, Status::Done).await;

    assert_eq!(row.attempts, 1);
    let error = row.last_error.unwrap_or_default();
    assert_eq!(error, "[unavailable] the sink orders did not confirm the message", "the kind and no more");
    assert_eq!(publishing.kept.lines(), [format!("orders {id}.1 1"), format!("orders {id}.1 2")]);

    publishing.kept.answers(SinkError::Rejected { reason: "too large".to_owned() });
    let id = publishing.deed(r#"{"publish":["orders"],"then":"done"}"#).await;
    let row = publishing.ends(id, Status::Dead).await;
    assert_eq!(row.last_error.as_deref(), Some("[invalid] the sink orders refused the message"));
    assert_eq!(publishing.kept.lines().len(), 3, "it is not sent again");

    publishing.kept.silent.store(true, Ordering::SeqCst);
    let id = publishing.deed(r#"{"publish":["orders"],"then":"done"}"#).await;
    let row = async || publishing.store.get(id).await.expect("reads").expect("the row is there");
    eventually("a message without an answer counts as not confirmed", async || {
        row().await.last_error.as_deref() == Some("[unavailable] the sink orders did not confirm the message")
    })
    .await;
    publishing.kept.silent.store(false, Ordering::SeqCst);
    publishing.ends(id, Status::Done).await;
    publishing.outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_is_not_granted_gets_nothing_and_one_that_is_not_there_keeps_the_manifest_from_serving() {
    let publishing = Publishing::with("publish.sinks = ['orders']").await;
    let id = publishing.deed(r#"{"publish":["orders","audit"],"then":"done"}"#).await;
    eventually("it is refused", async || {
        let row = publishing.store.get(id).await.expect("reads").expect("the row is there");
        row.last_error.is_some_and(|error| error.contains("add `\"audit\"` to publish.sinks in effects.toml"))
    })
    .await;
    assert!(publishing.kept.lines().iter().all(|line| line.starts_with("orders ")), "{:?}", publishing.kept.lines());

    publishing.directory.put("effects.toml", b"publish.sinks = ['orders', 'payments']");
    let plugins = publishing.outbox.plugins().expect("a directory was given");
    plugins.rescan().await;

    let status = plugins.list().remove(0);
    assert_eq!(status.state, PluginState::ServingOlder);
    let error = status.error.unwrap_or_default();
    let told = "publish.sinks of effects.toml names the sink `payments`, and this host has only audit, orders; name one that it has, \
                or add a section [sinks.payments]";
    assert!(error.contains(told), "{error}");
    publishing.outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_at_the_settings_publishes_nothing_and_asks_nobody_though_both_are_granted() {
    let endpoint = Endpoint::answering(&[200]);
    let url = endpoint.origin();
    let manifest = format!(
        "publish.sinks = ['orders']\nhttp.allow = ['{url}']\nhttp.allow_private = ['127.0.0.1']\n\
         config.sink_at_load = 'orders'\nconfig.url_at_load = '{url}/load'"
    );

    let publishing = Publishing::with(&manifest).await;

    assert_eq!(publishing.outbox.plugins().expect("a directory was given").list()[0].error, None, "it was refused both");
    let id = publishing.deed(&format!(r#"{{"publish":["orders"],"ask":[["GET","{url}/event"]],"then":"tell"}}"#)).await;
    let row = publishing.ends(id, Status::Dead).await;
    assert_eq!(row.last_error.as_deref(), Some("200 nothing "));
    assert_eq!(publishing.kept.lines(), [format!("orders {id}.1 1")], "the first message is the event's");
    assert!(endpoint.request().starts_with("GET /event "), "and so is the first request");
    publishing.outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_call_for_several_each_message_is_named_after_the_event_that_it_says() {
    let publishing = Publishing::with("publish.sinks = ['orders', 'audit']\nisolation = 'batch'").await;
    let deeds = (0..60).map(|_| event("Effects", "Do", r#"{"publish":["orders","audit"],"then":"done"}"#)).collect();

    let ids = commit(&publishing.outbox, deeds).await;

    let mut together = BTreeSet::new();
    let mut expected = BTreeSet::new();
    for id in ids {
        together.insert(publishing.ends(id, Status::Dead).await.last_error.unwrap_or_default());
        expected.extend([format!("orders {id}.1 "), format!("audit {id}.2 ")]);
    }
    assert!(together.iter().all(|reason| reason.starts_with("one of ")), "{together:?}");
    assert!(together.iter().any(|reason| reason != "one of 1"), "{together:?}");
    let lines = publishing.kept.lines();
    assert_eq!((lines.len(), lines.into_iter().collect::<BTreeSet<_>>()), (120, expected));
    publishing.outbox.shutdown().await;
}
