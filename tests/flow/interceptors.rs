//! Interceptors: called around every attempt, and able to refuse it.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use outbox::dispatcher::{Interceptor, after, before};
use outbox::listener::Outcome;
use outbox::{Envelope, Event, Route, Status};
use support::{Recorder, Sqlite};

use crate::common::{ROUTE, commit, commit_one, order, outbox, reaches, without_grace};

/// Notes its calls; refuses when told to.
struct Guard {
    name: &'static str,
    lines: Arc<Mutex<Vec<String>>>,
    refuses: bool,
}

impl Guard {
    fn note(&self, what: &str) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{} {what}", self.name));
    }
}

#[async_trait]
impl Interceptor for Guard {
    async fn before(&self, _: &Event) -> Result<(), String> {
        self.note("before");
        if self.refuses { Err("the gate is shut".to_owned()) } else { Ok(()) }
    }

    async fn after(&self, _: &Event, outcome: &Outcome) -> Result<(), String> {
        self.note(if *outcome == Outcome::Done { "after done" } else { "after failed" });
        Err("nobody reads my report".to_owned())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interceptors_surround_the_listener_and_their_late_errors_change_nothing() {
    let db = Sqlite::fresh().await;
    let lines = Arc::new(Mutex::new(Vec::new()));
    let guard = |name| Guard { name, lines: lines.clone(), refuses: false };
    let outbox = outbox(&db)
        .interceptor(guard("a"))
        .interceptor(guard("b"))
        .listener(ROUTE, Recorder::done().listener())
        .start()
        .await
        .expect("starts");

    let id = commit_one(&outbox).await;

    reaches(&db, id, Status::Done).await;
    assert_eq!(*lines.lock().expect("not poisoned"), ["a before", "b before", "b after done", "a after done"]);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interceptor_that_refuses_counts_as_a_failed_attempt() {
    let db = Sqlite::fresh().await;
    let lines = Arc::new(Mutex::new(Vec::new()));
    let recorder = Recorder::done();
    let outbox = outbox(&db)
        .interceptor(Guard { name: "a", lines: lines.clone(), refuses: true })
        .interceptor(Guard { name: "b", lines: lines.clone(), refuses: false })
        .listener(ROUTE, recorder.listener())
        .start()
        .await
        .expect("starts");

    let id = commit_one(&outbox).await;

    let record = reaches(&db, id, Status::Retry).await;
    assert_eq!((record.attempts, record.last_error.as_deref()), (1, Some("interceptor: the gate is shut")));
    assert_eq!(recorder.count(), 0, "the listener is not called");
    assert_eq!(*lines.lock().expect("not poisoned"), ["a before"]);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interceptors_see_an_event_before_it_is_known_whether_somebody_may_answer_it() {
    let db = Sqlite::fresh().await;
    let lines = Arc::new(Mutex::new(Vec::new()));
    let guard = Guard { name: "a", lines: lines.clone(), refuses: true };
    let other = Recorder::done();
    let outbox = outbox(&db).dispatcher(without_grace()).interceptor(guard).listener("Other", other.listener());
    let outbox = outbox.start().await.expect("starts");
    let paused = Route::try_from("Paused").expect("a good name");
    outbox.listeners().set_paused([(paused, "for the night".to_owned())].into());

    let ids = commit(&outbox, vec![order(1), Envelope::new("Paused").json(&1).expect("good")]).await;

    for id in ids {
        let record = reaches(&db, id, Status::Retry).await;
        assert_eq!((record.attempts, record.last_error.as_deref()), (1, Some("interceptor: the gate is shut")));
    }
    assert_eq!(*lines.lock().expect("not poisoned"), ["a before", "a before"]);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interceptors_are_told_that_nobody_answers_an_event() {
    let db = Sqlite::fresh().await;
    let lines = Arc::new(Mutex::new(Vec::new()));
    let guard = Guard { name: "a", lines: lines.clone(), refuses: false };
    let other = Recorder::done();
    let outbox = outbox(&db).dispatcher(without_grace()).interceptor(guard).listener("Other", other.listener());
    let outbox = outbox.start().await.expect("starts");

    let id = commit_one(&outbox).await;

    reaches(&db, id, Status::Dead).await;
    assert_eq!(*lines.lock().expect("not poisoned"), ["a before", "a after failed"]);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_may_be_called_before_and_after_every_attempt() {
    let db = Sqlite::fresh().await;
    let lines = Arc::new(Mutex::new(Vec::new()));
    let (asked, told) = (lines.clone(), lines.clone());
    let outbox = outbox(&db)
        .interceptor(before(move |event| {
            asked.lock().expect("not poisoned").push("before".to_owned());
            if event.aggregate_id() == Some("0") { Err("the gate is shut".to_owned()) } else { Ok(()) }
        }))
        .interceptor(after(move |_, outcome| {
            told.lock().expect("not poisoned").push(format!("after {outcome:?}"));
            Err("nobody reads my report".to_owned())
        }))
        .listener(ROUTE, Recorder::done().listener())
        .start()
        .await
        .expect("starts");

    let ids = commit(&outbox, vec![order(0)]).await;
    let refused = reaches(&db, ids[0], Status::Retry).await;
    let ids = commit(&outbox, vec![order(1)]).await;
    reaches(&db, ids[0], Status::Done).await;

    assert_eq!(refused.last_error.as_deref(), Some("interceptor: the gate is shut"));
    assert_eq!(*lines.lock().expect("not poisoned"), ["before", "before", "after Done"]);
    outbox.shutdown().await;
}
