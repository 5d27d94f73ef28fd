use super::*;
use crate::listener::Fixed;

const SECOND: Duration = Duration::from_secs(1);
const RULES: SettlementRules = SettlementRules {
    erase_done: false,
    dead_blocks: false,
    all_costs: false,
    park_unroutable: false,
    unroutable_grace: SECOND,
    max_deferrals: 2,
    max_starts: 5,
};
const POLICY: Policy<'static> = Policy { retry: &Fixed(SECOND), max_attempts: 3, awaits_listener: false };

fn settled(outcome: Outcome, attempts: u32) -> Settlement {
    RULES.settle(outcome, attempts, 0, &POLICY)
}

fn dead(error: &str) -> Settlement {
    Settlement::Dead { error: error.to_owned(), counted: false, blocks: false }
}

fn dead_by_attempt(error: &str) -> Settlement {
    Settlement::Dead { error: error.to_owned(), counted: true, blocks: false }
}

fn no() -> String {
    "no".to_owned()
}

#[test]
fn every_outcome_has_its_settlement() {
    assert_eq!(settled(Outcome::Done, 0), Settlement::Done);
    assert_eq!(settled(Outcome::RetryAfter(SECOND), 2), Settlement::Deferred { after: SECOND });
    assert_eq!(settled(Outcome::Dead(no()), 0), dead("no"));
    let failed = |failure: Failure, attempts| settled(Outcome::Failed(failure), attempts);
    assert_eq!(failed(Failure::retryable("no"), 0), Settlement::Retry { after: SECOND, error: no() });
    assert_eq!(failed(Failure::retryable("no"), 2), dead_by_attempt("no"));
    let own = Failure::retryable_after(SECOND * 9, "no");
    assert_eq!(failed(own.clone(), 1), Settlement::Retry { after: SECOND * 9, error: no() });
    assert_eq!(failed(own, 2), dead_by_attempt("no"));
    assert_eq!(failed(Failure::unrecoverable("no"), 0), dead("no"));
    assert_eq!(settled(Outcome::Unroutable(no()), 0), dead("no"));
    let busy = |after| settled(Outcome::Busy { after, reason: "paused".into() }, 0);
    assert_eq!(busy(SECOND), Settlement::Released { after: SECOND, reason: Some("paused".into()) });
    let at_once = busy(Duration::ZERO);
    assert!(
        matches!(at_once, Settlement::Released { after, .. } if !after.is_zero()),
        "its next call has another number: {at_once:?}"
    );
}

#[test]
fn a_listener_does_not_speak_for_the_host() {
    for said in ["no listener answers Order/Paid", "no listener answers", "the listener asked for later 100 times"] {
        let error = format!("the listener said: {said}");
        assert!(!is_unroutable(&error) && !error.starts_with(ASKED_FOR_LATER));
        assert_eq!(settled(Outcome::Dead(said.to_owned()), 0), dead(&error));
        assert_eq!(settled(Outcome::Failed(Failure::unrecoverable(said)), 0), dead(&error));
        assert_eq!(settled(Outcome::Failed(Failure::retryable(said)), 0), Settlement::Retry { after: SECOND, error });
        assert_eq!(settled(Outcome::Unroutable(said.to_owned()), 0), dead(said), "the host's own word stays");
    }
}

#[test]
fn an_event_that_nobody_answers_is_looked_at_a_few_times_until_its_grace_is_over() {
    let rules = SettlementRules { unroutable_grace: Duration::from_secs(60), ..RULES };
    let (mut waited, mut looks) = (Duration::ZERO, 0);
    while let Some(rest) = rules.rest_without_listener(waited) {
        assert!(
            rest <= (waited / 2).max(SHORTEST_REST) && rest <= LONGEST_REST,
            "a listener that comes now is found soon: {waited:?}, {rest:?}"
        );
        waited += rest;
        looks += 1;
    }
    assert_eq!(waited, Duration::from_secs(60), "it is given up when its grace is over");
    assert!(looks < 25, "{looks} looks");
    assert_eq!(SettlementRules { unroutable_grace: Duration::ZERO, ..RULES }.rest_without_listener(Duration::ZERO), None);
}

#[test]
fn deferring_for_ever_ends() {
    let settle = |deferrals| RULES.settle(Outcome::RetryAfter(SECOND), 0, deferrals, &POLICY);
    assert_eq!(settle(1), Settlement::Deferred { after: SECOND });
    assert!(matches!(settle(2), Settlement::Dead { counted: false, .. }));
}

#[test]
fn an_event_without_a_listener_is_parked_when_one_is_awaited_or_the_rules_say_so() {
    let parked = Settlement::Parked { reason: no() };
    let awaited = Policy { awaits_listener: true, ..POLICY };
    assert_eq!(RULES.settle(Outcome::Unroutable(no()), 0, 0, &awaited), parked);
    let park = SettlementRules { park_unroutable: true, ..RULES };
    assert_eq!(park.settle(Outcome::Unroutable(no()), 0, 0, &POLICY), parked);
}

#[test]
fn a_policy_may_decide_that_an_error_is_not_worth_another_attempt() {
    #[derive(Debug)]
    struct Never;
    impl RetryPolicy for Never {
        fn delay(&self, _: u32, _: &Failure) -> Option<Duration> {
            None
        }
    }
    let policy = Policy { retry: &Never, ..POLICY };
    assert_eq!(RULES.settle(Outcome::Failed(Failure::retryable("no")), 0, 0, &policy), dead_by_attempt("no"));
}

#[test]
fn a_done_event_is_erased_where_none_is_kept() {
    let rules = SettlementRules { erase_done: true, ..RULES };
    assert_eq!(rules.settle(Outcome::Done, 0, 0, &POLICY), Settlement::Erased);
}

#[test]
fn every_dead_event_blocks_the_later_ones_of_its_aggregate_where_that_is_asked_for() {
    for dead_blocks in [true, false] {
        let rules = SettlementRules { dead_blocks, ..RULES };
        let settle = |outcome, attempts, deferrals| rules.settle(outcome, attempts, deferrals, &POLICY);
        let all = [
            settle(Outcome::Dead(no()), 0, 0),
            settle(Outcome::Failed(Failure::unrecoverable("no")), 0, 0),
            settle(Outcome::Failed(Failure::retryable("no")), 2, 0),
            settle(Outcome::RetryAfter(SECOND), 0, 2),
            settle(Outcome::Unroutable(no()), 0, 0),
            rules.expired(),
            rules.unreadable("no"),
            rules.stopped_its_host(5).expect("it is the limit"),
            rules.not_taken(true, no()),
        ];
        for settlement in all {
            assert!(matches!(settlement, Settlement::Dead { blocks, .. } if blocks == dead_blocks), "{settlement:?}");
        }
    }
}

#[test]
fn an_event_that_a_host_gives_up_by_itself_says_why() {
    assert_eq!(RULES.expired(), dead(EXPIRED));
    assert_eq!(RULES.unreadable("no headers"), dead("the row cannot be read: no headers"));
    assert_eq!(RULES.stopped_its_host(4), None, "one start is left");
    let stopped = dead("its host stopped 5 times while it delivered this event and no other");
    assert_eq!(RULES.stopped_its_host(5), Some(stopped));
}

#[test]
fn an_answer_that_is_not_taken_is_a_counted_failure() {
    assert_eq!(RULES.not_taken(false, no()), Settlement::Retry { after: NOT_TAKEN, error: no() });
    assert_eq!(RULES.not_taken(true, no()), dead_by_attempt("no"));
    assert!(!POLICY.is_last(1) && POLICY.is_last(2));
}

#[test]
fn the_cost_of_an_attempt_is_recorded_when_it_failed_or_always() {
    let all = SettlementRules { all_costs: true, ..RULES };
    let failed = Settlement::Retry { after: SECOND, error: no() };
    for ended in [Settlement::Done, Settlement::Erased, Settlement::Deferred { after: SECOND }] {
        assert!(!RULES.records_cost(&ended) && all.records_cost(&ended), "{ended:?}");
    }
    assert!(RULES.records_cost(&failed) && RULES.records_cost(&dead("no")));
    assert!(!all.records_cost(&Settlement::Released { after: SECOND, reason: None }), "no listener was called");
}
