//! What all sinks do alike, with a link that does as it is told.

use std::sync::Mutex;

use bytes::Bytes;
use outbox_event::EventId;
use outbox_event::time::Timestamp;
use tokio::sync::Notify;

use super::*;
use crate::common::any_subject;

#[derive(Clone, Default)]
struct Told(Arc<State>);

#[derive(Default)]
struct State {
    /// The ids of each batch.
    batches: Mutex<Vec<Vec<String>>>,
    /// Batches wait here when `holds`.
    go: Notify,
    holds: std::sync::atomic::AtomicBool,
    started: Notify,
    is_down: std::sync::atomic::AtomicBool,
    is_unordered: std::sync::atomic::AtomicBool,
    is_broker: std::sync::atomic::AtomicBool,
    counts_closed: std::sync::atomic::AtomicBool,
    cut_off: std::sync::atomic::AtomicBool,
}

use std::sync::atomic::Ordering::SeqCst;

#[async_trait]
impl Link for Told {
    async fn send(&self, batch: &Batch, _: Instant) {
        self.0.batches.lock().unwrap().push(batch.messages().iter().map(|message| message.id.clone()).collect());
        self.0.started.notify_one();
        if self.0.holds.load(SeqCst) {
            self.0.go.notified().await;
        }
        let mut is_silent = false;
        for (index, message) in batch.messages().iter().enumerate() {
            let answer = match message.id.as_str() {
                _ if self.0.is_down.load(SeqCst) => Err(SinkError::down("refused")),
                "down" => Err(SinkError::down("refused")),
                "full" => Err(SinkError::closed("the stream is full")),
                "resting" => Err(SinkError::unavailable_for(MINUTE, "the topic has no leader")),
                "bad" => Err(SinkError::rejected("bad")),
                "silent" => {
                    is_silent = true;
                    continue;
                }
                _ => Ok(()),
            };
            batch.answer(index, answer);
        }
        if is_silent {
            std::future::pending::<()>().await;
        }
    }

    fn reaches_each_destination(&self) -> bool {
        !self.0.is_broker.load(SeqCst)
    }

    fn counts_closed(&self) -> bool {
        self.0.counts_closed.load(SeqCst)
    }

    fn is_ordered(&self) -> bool {
        !self.0.is_unordered.load(SeqCst)
    }

    fn cut_off(&self) {
        self.0.cut_off.store(true, SeqCst);
    }
}

fn common(subjects: Vec<String>) -> CommonConfig {
    CommonConfig { timeout: MINUTE, subjects, max_age: None }
}

fn sink(told: &Told, timeout: Duration, limits: Limits) -> Arc<Batching> {
    let common = CommonConfig { timeout, ..common(any_subject()) };
    Arc::new(Batching::start("orders", Arc::new(told.clone()), String::new(), common, limits))
}

fn message(id: &str) -> Message {
    Message {
        id: id.to_owned(),
        event_id: EventId::generate(Timestamp::from_micros(0)),
        subject: String::new(),
        trusts_subject: false,
        key: None,
        content_type: "text/plain".to_owned(),
        body: Bytes::from_static(b"x"),
        headers: Vec::new(),
        event: None,
    }
}

const ONE: Limits = Limits { messages: 100, bytes: 1 << 20, in_flight: 1 };
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn each_caller_hears_of_its_own_messages_in_their_order() {
    let sink = sink(&Told::default(), MINUTE, ONE);
    let answers = sink.send(&[message("a"), message("bad"), message("c"), message("")]).await;
    assert!(answers[0].is_ok() && answers[2].is_ok());
    assert_eq!(answers[1], Err(SinkError::rejected("bad")));
    assert!(matches!(&answers[3], Err(SinkError::Rejected { reason }) if reason.contains("id")), "{answers:?}");
}

#[tokio::test]
async fn sink_that_answers_but_takes_no_message_is_down_until_it_looks_at_one() {
    let sink = sink(&Told::default(), MINUTE, ONE);
    let reason = || sink.unavailable.outage().map(|outage| outage.reason);
    let a_minute_ago = Instant::now().checked_sub(MINUTE).expect("the machine is up");
    sink.unavailable.note(&Err(SinkError::closed("the stream is full")), true, a_minute_ago);
    assert_eq!(reason(), None, "it failed only once");

    let chosen = Message { subject: "full".to_owned(), ..message("full") };
    assert!(matches!(&sink.send(&[chosen]).await[0], Err(SinkError::Closed { .. })));
    assert_eq!(reason(), None, "a plugin chose its subject");
    assert!(matches!(&sink.send(&[message("full")]).await[0], Err(SinkError::Closed { .. })));
    assert_eq!(reason(), Some("the stream is full".to_owned()));
    assert!(sink.breaker.is_closed(), "each message is still tried");

    assert_eq!(sink.send(&[message("bad")]).await[0], Err(SinkError::rejected("bad")));
    assert_eq!(reason(), None);
    assert!(sink.send(&[message("full")]).await[0].is_err());
    assert_eq!(reason(), None, "it has just looked at a message");
}

#[tokio::test]
async fn receiver_that_its_link_counts_is_no_outage_of_the_sink() {
    let told = Told::default();
    let sink = sink(&told, MINUTE, ONE);
    let a_minute_ago = Instant::now().checked_sub(MINUTE).expect("the machine is up");
    sink.unavailable.note(&Err(SinkError::unavailable("the node is full")), true, a_minute_ago);

    assert!(sink.send(&[message("resting")]).await[0].is_err());
    assert_eq!(sink.unavailable.outage(), None);
    assert!(sink.send(&[message("full")]).await[0].is_err());
    assert!(sink.unavailable.outage().is_some(), "the link does not count this one");
}

#[tokio::test]
async fn destination_that_is_closed_is_no_outage_of_the_sink_if_the_link_counts_it() {
    let told = Told::default();
    told.0.counts_closed.store(true, SeqCst);
    let sink = sink(&told, MINUTE, ONE);
    let a_minute_ago = Instant::now().checked_sub(MINUTE).expect("the machine is up");
    sink.unavailable.note(&Err(SinkError::closed("the topic is missing")), true, a_minute_ago);

    assert!(sink.send(&[message("full")]).await[0].is_err());
    assert_eq!(sink.unavailable.outage(), None);
}

#[tokio::test]
async fn messages_that_a_broker_did_not_answer_are_those_of_a_destination_that_is_closed_to_every_host() {
    let told = Told::default();
    let sink = sink(&told, MINUTE, ONE);
    for (is_broker, id) in [(false, "down"), (true, "down")] {
        told.0.is_broker.store(is_broker, SeqCst);
        let answers = sink.send(&[message("a"), message(id)]).await;
        assert_eq!(matches!(answers[1], Err(SinkError::Closed { .. })), is_broker, "{answers:?}");
        assert_eq!(matches!(answers[1], Err(SinkError::Unavailable { .. })), !is_broker, "{answers:?}");
    }
}

#[tokio::test]
async fn a_link_that_replaces_another_sends_all_later_messages_of_every_user() {
    let (before, after) = (Told::default(), Told::default());
    let sink = sink(&before, MINUTE, ONE);
    let other_user = sink.with_own_share();
    assert!(sink.send(&[message("a")]).await[0].is_ok());

    sink.replace(Arc::new(after.clone()), String::new()).await;

    assert!(other_user.send(&[message("b")]).await[0].is_ok());
    let sent = |told: &Told| told.0.batches.lock().unwrap().concat();
    assert_eq!((sent(&before), sent(&after)), (vec!["a".to_owned()], vec!["b".to_owned()]));
}

#[tokio::test]
async fn a_link_that_replaces_another_sends_nothing_before_the_batches_of_the_other_have_ended() {
    let (before, after) = (Told::default(), Told::default());
    before.0.holds.store(true, SeqCst);
    let sink = sink(&before, MINUTE, Limits { in_flight: PLACES, ..ONE });
    let spawn = |id: &'static str| {
        let sink = sink.clone();
        tokio::spawn(async move { sink.send(&[message(id)]).await })
    };
    let first = spawn("first");
    before.0.started.notified().await;

    // One task looks at both in turn: the replacement begins first.
    let ((), second) = tokio::join!(sink.replace(Arc::new(after.clone()), String::new()), async {
        let second = spawn("second");
        while sink.places.available_permits() > PLACES - 2 || sink.jobs.capacity() < PLACES {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        assert!(after.0.batches.lock().unwrap().is_empty(), "the first is still on its way");
        before.0.go.notify_one();
        second.await.expect("no panic")
    });

    assert_eq!((first.await.expect("no panic"), second), (vec![Ok(())], vec![Ok(())]));
    let sent = |told: &Told| told.0.batches.lock().unwrap().concat();
    assert_eq!((sent(&before), sent(&after)), (vec!["first".to_owned()], vec!["second".to_owned()]));
}

#[tokio::test]
async fn a_link_whose_messages_have_no_order_waits_for_no_batch_of_the_other() {
    let (before, after) = (Told::default(), Told::default());
    before.0.holds.store(true, SeqCst);
    after.0.is_unordered.store(true, SeqCst);
    let sink = sink(&before, MINUTE, Limits { in_flight: PLACES, ..ONE });
    let first = tokio::spawn({
        let sink = sink.clone();
        async move { sink.send(&[message("first")]).await }
    });
    before.0.started.notified().await;

    sink.replace(Arc::new(after.clone()), String::new()).await;

    assert_eq!(sink.send(&[message("second")]).await, [Ok(())], "although the first is still on its way");
    before.0.go.notify_one();
    assert_eq!(first.await.expect("no panic"), [Ok(())]);
}

#[tokio::test]
async fn what_comes_while_a_batch_is_on_its_way_goes_together_in_the_next_but_for_whoever_went_away() {
    let told = Told::default();
    told.0.holds.store(true, SeqCst);
    let sink = sink(&told, MINUTE, ONE);
    let spawn = |id: &'static str| {
        let sink = sink.clone();
        tokio::spawn(async move { sink.send(&[message(id)]).await })
    };
    let first = spawn("first");
    told.0.started.notified().await;
    let (gone, second, third) = (spawn("gone"), spawn("second"), spawn("third"));
    while sink.places.available_permits() > PLACES - 4 {
        tokio::task::yield_now().await;
    }
    gone.abort();
    let _ = gone.await;
    told.0.holds.store(false, SeqCst);
    told.0.go.notify_one();
    for task in [first, second, third] {
        assert_eq!(task.await.expect("no panic"), [Ok(())]);
    }
    let batches = told.0.batches.lock().unwrap().clone();
    assert_eq!(batches, [vec!["first".to_owned()], vec!["second".to_owned(), "third".to_owned()]]);
}

#[tokio::test]
async fn a_batch_is_bounded_in_messages_and_bytes_but_one_message_always_fits() {
    let told = Told::default();
    let large = Message { body: Bytes::from(vec![0; 5_000]), ..message("large") };
    let sink = sink(&told, MINUTE, Limits { messages: 2, bytes: 2_000, in_flight: 1 });
    let answers = sink.send(&[large, message("a"), message("b"), message("c")]).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let sizes: Vec<usize> = told.0.batches.lock().unwrap().iter().map(Vec::len).collect();
    assert!(sizes[0] == 1 && sizes.iter().all(|size| *size <= 2) && sizes.iter().sum::<usize>() == 4, "{sizes:?}");
}

#[tokio::test]
async fn a_sink_that_is_down_is_left_alone_for_a_rest_that_every_caller_is_told() {
    let told = Told::default();
    told.0.is_down.store(true, SeqCst);
    let sink = sink(&told, MINUTE, ONE);
    for _ in 0..20 {
        let answer = sink.send(&[message("a")]).await.remove(0);
        assert!(matches!(answer, Err(SinkError::Down { retry_after, .. }) if !retry_after.is_zero()), "{answer:?}");
    }
    assert_eq!(told.0.batches.lock().unwrap().len(), 1, "only the first went out");
}

#[tokio::test]
async fn a_link_that_does_not_answer_is_cut_off_and_the_sink_counts_as_down() {
    let told = Told::default();
    told.0.holds.store(true, SeqCst);
    let sink = sink(&told, Duration::from_millis(50), ONE);
    let answer = sink.send(&[message("a")]).await.remove(0);
    assert!(matches!(&answer, Err(SinkError::Down { reason, .. }) if reason.contains("does not answer")), "{answer:?}");
    assert!(told.0.cut_off.load(SeqCst));
}

#[tokio::test]
async fn panic_of_the_task_that_sends_is_noticed() {
    let sink = sink(&Told::default(), MINUTE, ONE);
    let mut panicked = sink.panicked();
    sink.link.close();

    let answer = sink.send(&[message("a")]).await.remove(0);

    assert!(matches!(&answer, Err(SinkError::Unavailable { reason, .. }) if reason.contains("has stopped")), "{answer:?}");
    let noticed = tokio::time::timeout(MINUTE, panicked.wait_for(|panicked| *panicked)).await;
    assert!(noticed.is_ok_and(|noticed| noticed.is_ok()));
}

#[tokio::test]
async fn a_message_chooses_no_subject_that_the_operator_did_not_allow() {
    let common = common(vec!["orders.*".to_owned()]);
    let told = Told::default();
    let sink = Batching::start("orders", Arc::new(told.clone()), String::new(), common, ONE);
    let of = |subject: &str| Message { subject: subject.to_owned(), ..message("a") };
    let answers = sink.send(&[of("orders.paid"), of("$JS.API"), of("")]).await;
    assert_eq!((&answers[0], &answers[2]), (&Ok(()), &Ok(())));
    assert!(matches!(&answers[1], Err(SinkError::Rejected { reason }) if reason.contains("sinks.orders.subjects")));
}

#[tokio::test]
async fn a_message_that_is_not_answered_costs_its_own_place_and_no_other_message() {
    let sink = sink(&Told::default(), MINUTE, Limits { in_flight: PLACES, ..ONE });
    let one = async |id: &str| sink.send(&[message(id)]).await.remove(0);
    for _ in 0..10 {
        let [silent, good, bad] = ["silent", "good", "bad"].map(|id| Box::pin(one(id)));
        let (mut silent, mut both) = (silent, Box::pin(async { (good.await, bad.await) }));
        tokio::select! {
            answer = &mut silent => panic!("nobody answers it: {answer:?}"),
            answers = &mut both => assert_eq!(answers, (Ok(()), Err(SinkError::rejected("bad")))),
        }
    }
    assert_eq!(sink.breaker.look(Instant::now()), Ok(()));
}

#[tokio::test]
async fn after_one_confirmed_message_the_sink_works_and_the_messages_that_found_it_down_are_not_counted() {
    let sink = sink(&Told::default(), MINUTE, ONE);
    for batch in [["down", "good"], ["good", "down"]] {
        let answers = sink.send(&batch.map(message)).await;
        let concerned = answers.iter().find(|answer| answer.is_err());
        assert!(matches!(concerned, Some(Err(SinkError::Unavailable { .. }))), "{answers:?}");
    }
    assert_eq!(sink.breaker.look(Instant::now()), Ok(()));
}

#[tokio::test]
async fn a_user_whose_messages_are_not_answered_leaves_half_of_the_places_to_the_others() {
    let sink = sink(&Told::default(), MINUTE, Limits { in_flight: PLACES, ..ONE });
    let greedy = sink.with_own_share();
    let silent = vec![message("silent"); 2 * PLACES];
    let mut sending = Box::pin(greedy.send(&silent));
    let other = async {
        while sink.places.available_permits() > PLACES - SHARE {
            tokio::task::yield_now().await;
        }
        sink.with_own_share().send(&vec![message("good"); 2 * PLACES]).await
    };
    tokio::select! {
        answers = &mut sending => panic!("nobody answers them: {:?}", answers[0]),
        answers = other => assert!(answers.iter().all(Result::is_ok), "{:?}", answers.iter().find(|answer| answer.is_err())),
    }
}

#[tokio::test]
async fn an_outage_and_the_last_success_are_those_of_the_sent_messages() {
    let told = Told::default();
    let sink = sink(&told, MINUTE, ONE);
    let (breaker, ..) = sink.watched();
    assert_eq!(sink.send(&[message("a")]).await, [Ok(())]);
    let last_success = breaker.last_success();
    assert!(last_success.is_some() && breaker.outage().is_none());

    told.0.is_down.store(true, SeqCst);
    assert!(sink.send(&[message("b")]).await[0].is_err());

    assert_eq!(breaker.outage().map(|outage| outage.reason).as_deref(), Some("refused"));
    assert_eq!(breaker.last_success(), last_success);
}
