use super::unavailable::{MANY_REFUSING, RECOUNTED_AFTER, REPORTED_AFTER};
use super::*;

const URL: &str = "https://a";
const HOUR: Duration = Duration::from_secs(3_600);
const PATIENCE: Duration = Duration::from_secs(2);

fn common(has_others: bool, unproven: usize) -> Arc<Common> {
    Arc::new(Common {
        sink: "hooks".to_owned(),
        shown: URL.to_owned(),
        has_others,
        patience: PATIENCE,
        unproven: Arc::new(Semaphore::new(unproven)),
        hasher: RandomState::new(),
        unavailable: UnavailableReceivers::default(),
    })
}

fn receiver(has_others: bool) -> Arc<Receiver> {
    Arc::new(Receiver::new(common(has_others, 16), "a", 1, Instant::now()))
}

/// Sends a message, once the receiver does not rest any more.
fn send(receiver: &Arc<Receiver>, id: &str, answer: Answer) -> Answer {
    let permit = receiver.clone().admit(id, Instant::now() + HOUR).expect("it may be sent");
    permit.judge(answer, Instant::now())
}

fn unavailable() -> Answer {
    Err(SinkError::unavailable("https://a answered 503: card 4711"))
}

fn denied() -> Answer {
    Err(SinkError::denied("https://a answered 404: card 4711"))
}

fn rests(answer: &Answer) -> bool {
    matches!(answer, Err(SinkError::Down { retry_after, .. } | SinkError::Unavailable { retry_after: Some(retry_after), .. })
        if !retry_after.is_zero())
}

#[test]
fn a_receiver_that_takes_nothing_rests_until_it_has_looked_at_a_message() {
    for has_others in [false, true] {
        let receiver = receiver(has_others);
        let answers: Vec<_> = (0..12)
            .map(|n: u32| send(&receiver, &n.to_string(), if n.is_multiple_of(2) { unavailable() } else { denied() }))
            .collect();
        let rest: Vec<_> = answers.iter().map(rests).collect();
        assert_eq!(rest, [false, false, false, false, false, false, false, false, false, true, true, true]);
        assert_eq!(answers[11].as_ref().is_err_and(SinkError::is_down), !has_others, "the sink is down if it has no other");
        assert!(rests(&receiver.look(Instant::now())), "another message is answered at once");

        for looked in [Ok(()), Err(SinkError::rejected("422")), Err(SinkError::Failed { reason: "500".to_owned() })] {
            assert_eq!(send(&receiver, "looked", looked.clone()), looked);
            assert_eq!(receiver.look(Instant::now()), Ok(()));
            assert_eq!(send(&receiver, "next", denied()), denied(), "after {looked:?}");
        }
    }
}

#[test]
fn a_sink_is_down_while_many_receivers_are_unavailable_and_none_answers() {
    let (common, now) = (common(true, 16), Instant::now());
    let receivers: Vec<_> = (0..4).map(|key| Arc::new(Receiver::new(common.clone(), "a", key, now))).collect();
    let is_down = |receiver, id, answer| send(receiver, id, answer).is_err_and(|error| error.is_down());

    let all: Vec<bool> = receivers.iter().map(|receiver| is_down(receiver, "1", unavailable())).collect();
    assert_eq!(all, [false, false, true, true]);
    let down = send(&receivers[2], "1", unavailable());
    assert_eq!(down, Err(SinkError::down_for(LEAST_REST, "https://a answered 503")), "without the body");

    assert!(!is_down(&receivers[0], "2", denied()), "it answers");
    let of_one = ["3", "4", "5"].map(|id| is_down(&receivers[1], id, unavailable()));
    assert_eq!(of_one, [false; 3], "the others may work");
}

#[test]
fn a_dead_receiver_counts_once_until_it_answers() {
    let (common, now) = (common(true, 16), Instant::now());
    let receivers: Vec<_> = (0..4).map(|key| Arc::new(Receiver::new(common.clone(), "a", key, now))).collect();
    let (works, dead) = receivers.split_first().expect("four");
    let are_down = |id| -> Vec<bool> {
        dead.iter().map(|receiver| send(receiver, id, unavailable()).is_err_and(|error| error.is_down())).collect()
    };

    assert_eq!(are_down("1"), [false, false, true]);
    for id in ["2", "3"] {
        assert_eq!(send(works, id, Ok(())), Ok(()));
        assert_eq!(are_down(id), [false; 3], "the sink works");
    }

    for receiver in dead {
        assert_eq!(send(receiver, "4", Ok(())), Ok(()));
    }
    assert_eq!(are_down("5"), [false, false, true]);
}

#[test]
fn one_answer_in_an_outage_hides_it_for_a_minute_at_most() {
    let (common, now) = (common(true, 16), Instant::now());
    let receivers: Vec<_> = (0..7).map(|key| Arc::new(Receiver::new(common.clone(), "a", key, now))).collect();
    let (lucky, dead) = receivers.split_first().expect("seven");
    let are_down = |dead: &[Arc<Receiver>], at| -> Vec<bool> {
        let fails = |receiver: &Arc<Receiver>| {
            let permit = receiver.clone().admit("1", now).expect("it may be sent");
            permit.judge(unavailable(), at).is_err_and(|error| error.is_down())
        };
        dead.iter().map(fails).collect()
    };

    assert_eq!(are_down(dead, now), [false, false, true, true, true, true]);
    assert_eq!(send(lucky, "2", Ok(())), Ok(()));
    assert_eq!(are_down(&dead[..3], now), [false; 3], "these were counted");
    assert_eq!(are_down(&dead[3..], now), [false, false, true], "these were not");

    assert_eq!(send(lucky, "3", Ok(())), Ok(()));
    assert_eq!(are_down(dead, now), [false; 6], "all were counted");
    assert_eq!(are_down(&dead[..3], now + 2 * RECOUNTED_AFTER), [false, false, true], "no receiver answers");
}

#[test]
fn sink_is_down_while_many_receivers_refuse_and_none_takes_a_message() {
    let now = Instant::now();
    let asks = || Err(SinkError::unavailable_for(Duration::from_secs(7), "https://a answered 503: card 4711"));
    for (refusal, rest) in [(denied(), LEAST_REST), (asks(), Duration::from_secs(7))] {
        let common = common(true, 16);
        let receivers: Vec<_> = (0..12).map(|key| Arc::new(Receiver::new(common.clone(), "a", key, now))).collect();
        let are_down = |id| -> Vec<bool> {
            receivers.iter().map(|receiver| send(receiver, id, refusal.clone()).is_err_and(|error| error.is_down())).collect()
        };
        let first = are_down("1");
        assert_eq!(first.iter().position(|is_down| *is_down), Some(MANY_REFUSING - 1), "{first:?}");
        let outage = common.unavailable.outage().expect("it is down");
        assert!(outage.reason.starts_with("https://a answered ") && !outage.reason.contains("4711"), "{outage:?}");
        let last = send(&receivers[0], "2", refusal.clone());
        assert!(matches!(&last, Err(SinkError::Down { retry_after, .. }) if *retry_after == rest), "{last:?}");

        let works = Arc::new(Receiver::new(common.clone(), "a", 12, now));
        assert_eq!(send(&works, "3", Ok(())), Ok(()));
        assert_eq!(
            (common.unavailable.outage(), are_down("4")),
            (None, vec![false; 12]),
            "they count once while others answer"
        );
    }
}

#[test]
fn only_receiver_that_refuses_one_message_among_many_is_not_reported() {
    let (receiver, now) = (receiver(false), Instant::now());
    let answer = |id, answer, at| {
        let _ = receiver.clone().admit(id, at).expect("it may be sent").judge(answer, at);
        receiver.common.unavailable.outage()
    };
    let asks = || Err(SinkError::unavailable_for(HOUR, "https://a answered 429"));

    assert_eq!(answer("1", Ok(()), now), None);
    assert_eq!(answer("2", asks(), now + REPORTED_AFTER / 2), None);
    let outage = answer("3", asks(), now + REPORTED_AFTER).expect("it is unavailable");
    assert_eq!(outage.next_try, outage.since.plus(HOUR));
    assert_eq!(answer("4", Ok(()), now + REPORTED_AFTER), None);
}

#[test]
fn one_message_that_is_refused_again_and_again_is_no_reason_to_send_no_other() {
    let receiver = receiver(false);
    assert!((0..30).all(|_| send(&receiver, "7", denied()) == denied()));
}

#[test]
fn what_a_receiver_says_of_one_message_is_not_told_of_others() {
    let receiver = receiver(false);
    let answers: Vec<_> = (0..10).map(|n: u32| send(&receiver, &n.to_string(), unavailable())).collect();
    let last = &answers[9];
    assert!(matches!(last, Err(SinkError::Down { reason, .. }) if reason == "https://a answered 503"), "{last:?}");
    assert_eq!(without_body("https://a: connection reset", URL), "https://a: connection reset");
}

#[test]
fn a_rest_that_a_receiver_asks_for_is_that_of_its_message_and_bounded_for_all_others() {
    let asks = || Err(SinkError::unavailable_for(HOUR, "https://a answered 429"));
    for has_others in [false, true] {
        let receiver = receiver(has_others);
        assert!((1..10).all(|n: u32| send(&receiver, &n.to_string(), asks()) == asks()));
        let tenth = send(&receiver, "10", asks());
        assert_eq!(
            tenth,
            Err(receiver.breaker.scope().error("https://a answered 429".to_owned(), LONGEST_REST, Duration::ZERO))
        );
    }
}

#[test]
fn a_receiver_that_has_not_answered_gets_one_message_and_one_that_answers_as_many_as_there_are() {
    let (receiver, now) = (receiver(true), Instant::now());
    let admit = |now| receiver.clone().admit("1", now);
    let first = admit(now).expect("one may be sent");
    let crowded = |answer: &Answer| matches!(answer, Err(SinkError::Crowded { .. }));
    assert!(crowded(&receiver.look(now)) && admit(now).is_err());
    assert_eq!(first.judge(Ok(()), now), Ok(()));

    let many: Vec<_> = (0..100).map(|_| admit(now + PATIENCE).expect("it answers")).collect();
    let later = now + 3 * PATIENCE;
    assert!(admit(later).is_err(), "it is silent");
    let mut many = many.into_iter();
    let _ = many.next().expect("a hundred").judge(Ok(()), later);
    drop(admit(later).expect("it answers again"));

    let _ = many.next().expect("a hundred").judge(unavailable(), later);
    assert!(admit(later).is_err(), "it did not answer that one");
    drop(many);
    assert!(admit(later).is_ok(), "none is in flight");
}

#[test]
fn receivers_that_have_not_answered_leave_requests_to_those_that_answer() {
    let (common, now) = (common(true, 2), Instant::now());
    let other = || Arc::new(Receiver::new(common.clone(), "a", 1, now));
    let good = other();
    let _ = good.clone().admit("1", now).expect("one may be sent").judge(Ok(()), now);
    let hanging = [other().admit("2", now).expect("one"), other().admit("3", now).expect("two")];
    assert!(other().look(now).is_err() && other().admit("4", now).is_err());
    assert!(good.admit("5", now).is_ok());
    drop(hanging);
    assert!(other().admit("6", now).is_ok());
}

#[test]
fn the_only_receiver_of_a_sink_gets_as_many_messages_as_there_are() {
    let (receiver, now) = (receiver(false), Instant::now());
    let permits: Vec<_> = (0..100).map(|n: u32| receiver.clone().admit(&n.to_string(), now + HOUR).expect("it may")).collect();
    assert_eq!(permits.len(), 100);
}

#[test]
fn one_message_tries_after_a_rest() {
    let receiver = receiver(true);
    for n in 0..10 {
        let _ = send(&receiver, &n.to_string(), denied());
    }
    let later = Instant::now() + HOUR;
    let trial = receiver.clone().admit("10", later).expect("one may try");
    assert!(receiver.clone().admit("11", later).is_err());
    assert_eq!(trial.judge(Ok(()), later), Ok(()));
    assert!(receiver.admit("11", later).is_ok());
}
