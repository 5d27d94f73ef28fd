use std::sync::Arc;
use std::time::Duration;

use super::super::by_hand::ByHand;
use super::super::reason::{ActionCode, Cause, ReasonCode};
use super::*;
use crate::event::{Cost, Envelope, Event, OwnerId, Route, Status};
use crate::listener::{DispatchResult, Failure, Listeners, Registration, waits_for_one};
use crate::store::{AttemptCost, AttemptEnd, Node, NodeRecord, RouteRecord, StuckEvent, StuckEvents, StuckReason};
use crate::why::Explanation;

const NOW: Timestamp = Timestamp::from_micros(1_795_249_980_000_000);

fn ago(seconds: u64) -> Timestamp {
    NOW.minus(Duration::from_secs(seconds))
}

fn soon(seconds: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(seconds))
}

fn record(seq: u64) -> Record {
    let id = format!("event-{seq}").parse().unwrap();
    let envelope = Envelope::new("OrderPlaced").id(id).aggregate("Order", "42").occurred_at(ago(60)).json(&42).unwrap();
    changed!(Record { payload: None, ..Record::inserted(seq, &envelope, ago(60)) })
}

fn dead(seq: u64, blocks: bool) -> Record {
    let last_error = Some("no such customer".to_owned());
    changed!(Record {
        status: Status::Dead,
        due_at: None,
        done_at: Some(ago(5)),
        attempts: 3,
        blocks,
        last_error,
        ..record(seq)
    })
}

fn node(owner: &str, alive: bool) -> NodeRecord {
    let node = Node::new(OwnerId::known(owner), format!("machine of {owner}"), "multi_node", "1.0.0");
    let alive_until = if alive { soon(20) } else { ago(40) };
    changed!(NodeRecord { alive_until, alive, ..NodeRecord::new(&node, ago(600)) })
}

fn known(record: Record) -> Facts {
    Facts {
        record,
        now: NOW,
        nodes: vec![node("one", true)],
        routes: Vec::new(),
        relays: Vec::new(),
        queue: Vec::new(),
        waiting: 0,
        by_hand: ByHand::default(),
    }
}

fn paused() -> RouteRecord {
    changed!(RouteRecord {
        first_seen_at: Some(ago(600)),
        paused_at: Some(ago(120)),
        paused_by: Some("anna@shop".to_owned()),
        pause_reason: Some("the mail server moves".to_owned()),
        ..RouteRecord::new(Route::new("Order", "OrderPlaced").unwrap())
    })
}

/// The state, the sentence, and the commands one a line.
fn told(known: &Facts) -> (State, String, String) {
    let Cause { state, actions, .. } = Cause::of(known);
    (state, sentence(known, state), actions.into_iter().map(|action| action.command).collect::<Vec<_>>().join("\n"))
}

#[test]
fn an_event_that_is_due_is_taken_by_whoever_lives() {
    let mut known = known(record(1));
    let route = Route::new("Order", "OrderPlaced").unwrap();
    known.routes = vec![changed!(RouteRecord { first_seen_at: Some(ago(600)), ..RouteRecord::new(route) })];
    let said = |known: &Facts| told(known).1;
    assert_eq!(told(&known).0, State::Due);
    assert_eq!(said(&known), "It has been due for 1 min. The one live host has it in hand, or takes it when it has room.");
    known.record = changed!(Record { available_at: ago(86_400), due_at: Some(ago(86_400)), ..record(1) });
    assert!(said(&known).starts_with("It has been due for 1 min. "), "dated back: due when it was written: {}", said(&known));
    known.record = changed!(Record { created_at: soon(3_600), ..record(1) });
    assert!(said(&known).starts_with("It has been due for 1 min. "), "its writer's clock is ahead: {}", said(&known));
    known.nodes.push(node("two", true));
    assert!(said(&known).contains("Of the 2 live hosts, the one that holds its partition has it in hand"), "{}", said(&known));
    known.nodes.clear();
    assert!(said(&known).contains("no host is running: start one with `outbox run`"), "{}", said(&known));
}

#[test]
fn a_due_event_that_no_listener_answers_says_so_and_what_to_do() {
    let mut known = known(record(1));
    let never = "No host has had a listener for Order/OrderPlaced yet: add a plugin, listener or relay for it.";

    let (state, next, commands) = told(&known);
    assert_eq!((state, commands.as_str()), (State::Due, "outbox plugin list"));
    assert!(next.ends_with(never), "{next}");

    known.relays = vec![Route::new("Order", "*").unwrap()];
    let (_, next, commands) = told(&known);
    assert!(!next.contains("listener") && commands.is_empty(), "a relay takes it: {next}");

    known.relays.clear();
    let wait = "no listener answers Order/OrderPlaced (1 route is answered); it is dead if none comes within 1 min";
    for due_at in [ago(1), soon(1)] {
        known.record = changed!(Record {
            wait_reason: Some(wait.to_owned()),
            wait_since: Some(ago(2)),
            due_at: Some(due_at),
            ..record(1)
        });
        let (_, next, commands) = told(&known);
        let advice = "Add a plugin, listener or relay for Order/OrderPlaced; if that name is a mistake, write the event again";
        assert!(next.contains(advice) && !next.contains(never), "{next}");
        assert_eq!(commands, "outbox plugin list");
    }
}

#[test]
fn an_event_that_waits_for_its_time_says_when_and_why() {
    let delayed = changed!(Record { available_at: soon(3), due_at: Some(soon(3)), ..record(1) });
    let (state, next, _) = told(&known(delayed));
    assert!(state == State::Delayed && next.contains("it is due in 3 s. Then the one live host takes it."), "{next}");

    // A plain INSERT that set available_at alone is due at once, and then again at its time.
    let plain = changed!(Record { available_at: soon(3), ..record(1) });
    assert_eq!(told(&known(plain)).0, State::Delayed);

    let last_error = Some("timeout.".to_owned());
    let failed = changed!(Record { status: Status::Retry, attempts: 2, due_at: Some(soon(3)), last_error, ..record(1) });
    let (state, next, _) = told(&known(failed));
    assert_eq!(state, State::Retrying);
    assert_eq!(next, "It failed 2 times, last with: timeout. It is due in 3 s. Then the one live host takes it.");

    let deferred = changed!(Record { deferrals: 1, due_at: Some(soon(3)), ..record(1) });
    let (state, next, _) = told(&known(deferred));
    assert!(state == State::Deferred && next.starts_with("Its listener asked for later (once)"), "{next}");

    let by_hand = changed!(Record { due_at: Some(soon(3)), ..record(1) });
    assert_eq!(told(&known(by_hand)).0, State::Delayed, "no host has had it");

    let down = "the sink orders is down: connection refused";
    let given_back = |record: Record| {
        changed!(Record { wait_reason: Some(down.to_owned()), wait_since: Some(ago(120)), due_at: Some(soon(1)), ..record })
    };
    let facts = known(given_back(record(1)));
    let because = format!("It has waited for 2 min, and no failure is counted, because {down}");
    assert_eq!(told(&facts).1, format!("{because}. It is due in 1 s. Then the one live host takes it."));
    assert_eq!(told(&facts).2, "outbox sinks list");
    assert_eq!(Cause::of(&facts).code, ReasonCode::GivenBack);
    let failed = changed!(Record { status: Status::Retry, attempts: 2, last_error: Some("timeout".to_owned()), ..record(1) });
    let facts = known(given_back(failed));
    assert!(told(&facts).1.starts_with(&format!("It failed 2 times, last with: timeout. {because}. It is due in 1 s.")));
    assert_eq!(Cause::of(&facts).code, ReasonCode::GivenBack);
    let none =
        "no listener answers Order/OrderPlaced (1 route is answered); it is dead if none comes within 1 min after its time";
    let awaited = known(changed!(Record { wait_reason: Some(none.to_owned()), due_at: Some(soon(1)), ..record(1) }));
    assert_eq!(Cause::of(&awaited).code, ReasonCode::NoListener);
    let done = known(changed!(Record { status: Status::Done, due_at: None, ..given_back(record(1)) }));
    assert!(!told(&done).1.contains(down), "it waits no more");
}

#[test]
fn an_outcome_that_is_refused_is_told_with_what_the_database_says() {
    let facts = |reason, seq: u64, alive: bool| {
        let event_id = Some(record(1).event_id);
        let one = StuckEvent { seq, event_id, error: "the order is archived".to_owned(), since: ago(90) };
        let mut facts = known(changed!(Record { due_at: Some(ago(100)), ..record(1) }));
        facts.nodes = vec![changed!(NodeRecord { stuck: vec![StuckEvents::new(reason, 1, [one])], ..node("one", alive) })];
        facts
    };
    let refused = |seq, alive| told(&facts(StuckReason::OutcomeRefused, seq, alive));

    let (state, next, _) = refused(record(1).seq, true);
    assert_eq!(state, State::Stuck);
    assert!(next.starts_with("Its listener has answered, but the database has refused to store the outcome since "), "{next}");
    assert!(next.contains("(1 min ago): the order is archived. The host machine of one retries"), "{next}");

    assert_eq!(refused(record(1).seq + 1, true).0, State::Due, "it is another event's");
    assert_eq!(refused(record(1).seq, false).0, State::Due, "the host is gone, and the outcome with it");

    let unclaimed = facts(StuckReason::ClaimRefused, record(1).seq, true);
    assert_eq!(Cause::of(&unclaimed).code, ReasonCode::ClaimRefused);
    assert!(told(&unclaimed).1.starts_with("It is due and is not delivered, because the database "), "{}", told(&unclaimed).1);
    let locked = facts(StuckReason::OutcomeLocked, record(1).seq, true);
    assert_eq!((told(&locked).0, Cause::of(&locked).code), (State::Stuck, ReasonCode::OutcomeLocked));
    assert!(told(&locked).1.starts_with("Its listener has answered, but the outcome waits since "), "{}", told(&locked).1);
    let slow = facts(StuckReason::OutcomeSlow, record(1).seq, true);
    assert_eq!((told(&slow).0, Cause::of(&slow).code), (State::Stuck, ReasonCode::OutcomeSlow));
    assert!(told(&slow).1.contains("The host machine of one stores outcomes in smaller parts "), "{}", told(&slow).1);
}

#[test]
fn a_host_whose_session_has_ended_is_gone_although_its_lease_goes_on() {
    let held = changed!(Record { locked_by: Some("one".to_owned()), lease_end: Some(soon(15)), claim_seq: 1, ..record(1) });
    let mut known = known(held);
    known.nodes = vec![changed!(NodeRecord { alive: false, ..node("one", true) })];

    let (state, next, _) = told(&known);
    let code = Cause::of(&known).code;

    assert_eq!((state, code), (State::Claimed, ReasonCode::HeldByLostHost));
    assert!(next.starts_with("The host machine of one (gone: its session has ended) claimed it until "), "{next}");
    assert!(next.contains("(in 15 s)") && !next.contains("may renew"), "{next}");
    known.record = record(1);
    assert!(told(&known).1.contains("no host is running: start one with `outbox run`."), "{}", told(&known).1);
}

#[test]
fn an_event_that_is_held_names_its_holder() {
    let held = |end: Timestamp, owner: &str| {
        changed!(Record {
            locked_by: Some(owner.to_owned()),
            locked_at: Some(ago(5)),
            claim_seq: 1,
            claims: 1,
            starts: 0,
            lease_end: Some(end),
            ..record(1)
        })
    };
    let (state, next, _) = told(&known(held(soon(25), "one")));
    assert_eq!(state, State::Claimed);
    assert!(next.starts_with("The host machine of one (alive) has it until ") && next.contains("(in 25 s)"), "{next}");

    let mut gone = known(held(soon(25), "two"));
    gone.nodes.push(node("two", false));
    assert!(told(&gone).1.contains("machine of two (gone for 40 s)"), "{}", told(&gone).1);

    let again = changed!(Record { attempts: 1, last_error: Some("timeout".to_owned()), ..held(soon(25), "one") });
    assert!(told(&known(again)).1.starts_with("It failed once, last with: timeout. The host machine of one"));

    let (state, next, _) = told(&known(held(ago(2), "three")));
    assert_eq!(state, State::LeaseOver);
    assert!(next.contains("three (not in the table of hosts) claimed it and reported no outcome"), "{next}");
}

#[test]
fn a_finished_event_says_when() {
    let done = changed!(Record { status: Status::Done, due_at: None, done_at: Some(ago(5)), ..record(1) });
    let (state, next, commands) = told(&known(done));
    assert!(state == State::Done && next.contains("(5 s ago)") && commands.is_empty(), "{next}");
}

#[test]
fn a_dead_event_says_why_and_what_can_be_done() {
    let (state, next, commands) = told(&known(dead(1, false)));
    assert_eq!(state, State::Dead);
    assert!(next.contains("(5 s ago), after 3 failed attempts: no such customer."), "{next}");
    assert_eq!(commands, "outbox dead replay event-1\noutbox dead discard event-1");

    let blocking = Facts { waiting: 7, ..known(dead(1, true)) };
    let (state, next, commands) = told(&blocking);
    assert_eq!(state, State::DeadBlocking);
    assert!(next.ends_with("7 later events of Order/42 wait until it is replayed, skipped or discarded."), "{next}");
    assert_eq!(commands, "outbox dead replay event-1\noutbox dead skip event-1\noutbox dead discard event-1");
}

#[test]
fn an_event_that_its_listener_gave_up_failed_once_in_the_sentence_and_among_the_counters() {
    let cost = |attempt| AttemptCost { attempt, outcome: AttemptEnd::Dead, cost: Cost::of_time(Duration::from_millis(3)) };
    let at_once = known(changed!(Record { attempts: 0, claim_seq: 1, last_cost: Some(cost(1)), ..dead(1, false) }));
    let why = Explanation::of(&at_once);
    assert!(why.sentence.starts_with("It was given up by its listener at "), "{}", why.sentence);
    assert!(why.sentence.ends_with("(5 s ago), after 1 failed attempt: no such customer."), "{}", why.sentence);
    assert_eq!((why.failures(), why.counted().as_str()), (1, "1 failed attempt"));

    let counted = known(changed!(Record { attempts: 3, claim_seq: 3, last_cost: Some(cost(3)), ..dead(1, false) }));
    let why = Explanation::of(&counted);
    assert!(why.sentence.starts_with("It was given up at "), "{}", why.sentence);
    assert_eq!((why.failures(), why.counted().as_str()), (3, "3 failed attempts"));
}

#[test]
fn an_event_that_no_listener_answered_says_when_a_replay_helps() {
    let unroutable = |blocks| {
        changed!(Record {
            last_error: Some("no listener answers Order/OrderPlaced (1 route is answered)".to_owned()),
            ..dead(1, blocks)
        })
    };

    let (state, next, commands) = told(&known(unroutable(false)));

    assert_eq!(state, State::Dead);
    assert!(
        next.contains("(1 route is answered). A replay helps only when a listener for Order/OrderPlaced is there;"),
        "{next}"
    );
    assert_eq!(commands, "outbox plugin list\noutbox dead replay event-1\noutbox dead discard event-1");
    assert!(told(&known(unroutable(true))).1.contains("A replay helps only when"));
    assert!(!told(&known(dead(1, false))).1.contains("A replay helps"), "this one had a listener");
    let uncalled = Explanation::of(&known(changed!(Record { attempts: 0, claim_seq: 1, ..unroutable(false) })));
    assert_eq!(uncalled.counted(), "no attempt: no listener was called");
}

#[test]
fn an_event_in_a_line_tells_of_the_head_and_how_to_release_it() {
    let waits = changed!(Record { behind: Some(2), due_at: None, ..record(3) });
    let middle = changed!(Record { behind: Some(1), due_at: None, ..record(2) });
    let queue = vec![middle, dead(1, true)];
    let (state, next, commands) = told(&Facts { queue, ..known(waits.clone()) });
    assert_eq!(state, State::Behind);
    assert!(next.starts_with("It waits behind an earlier event of Order/42, event-2 (seq 2, OrderPlaced)."), "{next}");
    assert!(next.contains("The first of the queue, event-1 (seq 1, OrderPlaced) is DEAD: it was given up"), "{next}");
    assert!(commands.starts_with("outbox event why event-1\noutbox dead replay event-1\noutbox dead skip"), "{commands}");

    let failing = changed!(Record { status: Status::Retry, attempts: 1, due_at: Some(soon(9)), ..record(2) });
    let (_, next, commands) = told(&Facts { queue: vec![failing], ..known(waits.clone()) });
    assert!(next.contains("That one is RETRY: it failed once") && next.contains("due in 9 s"), "{next}");
    assert_eq!(commands, "outbox event why event-2");

    let (_, next, _) = told(&Facts { queue: vec![dead(2, false)], ..known(waits.clone()) });
    assert!(next.ends_with("That event blocks nothing, so a host will release this one within seconds."), "{next}");

    let (_, next, commands) = told(&known(waits));
    assert!(next.contains("seq 2") && next.contains("That event no longer exists") && commands.is_empty(), "{next}");
}

#[test]
fn a_parked_event_says_what_ends_its_wait() {
    let parked =
        changed!(Record { parked: Some("no listener answers Order/OrderPlaced".to_owned()), due_at: None, ..record(1) });
    let (state, next, commands) = told(&known(parked.clone()));
    assert_eq!((state, commands.as_str()), (State::Parked, "outbox plugin list"));
    assert_eq!(
        next,
        "It was parked because, at that time, the host that took it had no listener for Order/OrderPlaced. \
         The event is delivered as soon as a host has a listener for Order/OrderPlaced. No host ever had one: if that name is a \
         mistake, a host that serves other routes gives its events up, unless its settings say otherwise: start one with \
         `outbox run --set dispatcher.unroutable=dead`; then skip or discard them."
    );

    let seen = changed!(RouteRecord { paused_at: None, ..paused() });
    let pattern = || changed!(RouteRecord { route: Route::new("Order", "*").unwrap(), ..seen.clone() });
    let other = || changed!(RouteRecord { route: Route::new("User", "*").unwrap(), ..seen.clone() });
    let unseen = || changed!(RouteRecord { first_seen_at: None, ..pattern() });
    // Hosts remember a route that had a listener, and park its events whatever their settings say.
    for (routes, is_told) in
        [(vec![seen.clone()], false), (vec![pattern()], false), (vec![other()], true), (vec![unseen()], true)]
    {
        let (_, next, _) = told(&Facts { routes: routes.clone(), ..known(parked.clone()) });
        assert_eq!(next.contains("dispatcher.unroutable=dead"), is_told, "{routes:?}: {next}");
    }
    // A host of which a plugin does not load parks them whatever its settings say.
    let reason = waits_for_one("no listener answers Order/OrderPlaced", "broken.wasm does not load");
    let (_, next, _) = told(&known(changed!(Record { parked: Some(reason), ..parked.clone() })));
    assert!(next.contains("broken.wasm does not load") && !next.contains("dispatcher.unroutable=dead"), "{next}");

    let relay = |aggregate_type: &str, event_type: &str| vec![Route::new(aggregate_type, event_type).unwrap()];
    for (relays, routes, is_told) in [
        (relay("Order", "*"), vec![seen.clone()], true),
        (relay("Order", "*"), vec![changed!(RouteRecord { first_seen_at: None, ..seen.clone() })], false),
        (relay("User", "*"), vec![seen.clone()], false),
        (relay("Order", "OrderPlaced"), vec![seen], false),
    ] {
        let (_, next, _) = told(&Facts { relays: relays.clone(), routes, ..known(parked.clone()) });
        let note =
            "the relay Order/* does not take it, since it had a listener; write [routes.\"Order/OrderPlaced\"] to relay it";
        assert_eq!(next.contains(note), is_told, "{relays:?}: {next}");
    }

    // Parked by the pause, or not parked yet: the pause is what holds it.
    for record in [parked, record(1)] {
        let (state, next, commands) = told(&Facts { routes: vec![paused()], ..known(record) });
        assert_eq!((state, commands.as_str()), (State::Paused, "outbox route resume Order/OrderPlaced"));
        assert!(next.contains("paused by anna@shop since ") && next.contains("(2 min ago): the mail server moves"), "{next}");
    }
}

#[test]
fn whatever_a_host_parked_an_event_with_is_told_as_sentences() {
    let route = Route::new("Order", "OrderPlaced").unwrap();
    let listeners = Listeners::default();
    let said = |reason: String| {
        let had_one = vec![changed!(RouteRecord { paused_at: None, ..paused() })];
        let facts = Facts { routes: had_one, ..known(changed!(Record { parked: Some(reason), due_at: None, ..record(1) })) };
        let next = told(&facts).1;
        let end = " The event is delivered as soon as a host has a listener for Order/OrderPlaced.";
        next.strip_suffix(end).unwrap_or_else(|| panic!("{next}")).to_owned()
    };
    // As the dispatcher says it.
    let waits = |listeners: &Listeners| {
        let awaited = listeners.awaited(&route).expect("there is a reason");
        said(waits_for_one(&listeners.unroutable(&route), &awaited))
    };
    let none = "It was parked because, at that time, the host that took it had no listener for Order/OrderPlaced.";

    assert_eq!(waits(&listeners), format!("{none} That host had no listener at all."));
    listeners.set_incomplete(Some("the plugin mailer is being compiled".to_owned()));
    assert_eq!(waits(&listeners), format!("{none} On that host, the plugin mailer is being compiled."));
    listeners.set_recorded([route.clone()], []);
    let had_one = "The route had a listener before, or another host has one.";
    assert_eq!(waits(&listeners), format!("{none} {had_one} On that host, the plugin mailer is being compiled."));
    listeners.set_incomplete(None);
    assert_eq!(waits(&listeners), format!("{none} {had_one}"));

    let done = |_: Arc<Event>| async { Ok::<_, Failure>(DispatchResult::Done) };
    let near = Registration::new(Route::new("Order", "OrderPlacd").unwrap(), done);
    listeners.replace("mailer", vec![near]).unwrap();
    assert_eq!(
        said(listeners.unroutable(&route)),
        format!("{none} That host had listeners with similar names: did you mean Order/OrderPlacd?")
    );

    assert_eq!(
        said(crate::routes::reason(&paused())),
        "It was parked because, at that time, the route Order/OrderPlaced was paused by anna@shop: the mail server moves. \
         It is no longer paused."
    );
    assert_eq!(said("\u{1b}[2J".to_owned()), "It is parked. When a host parked it, the reason was: \\u{1b}[2J.");
}

#[test]
fn an_event_under_a_paused_pattern_is_told_of_the_pattern_and_how_to_resume_it() {
    let pattern = changed!(RouteRecord { route: Route::new("Order", "*").unwrap(), first_seen_at: None, ..paused() });
    let other = changed!(RouteRecord { route: Route::new("User", "*").unwrap(), ..paused() });
    let parked = changed!(Record { parked: Some("the route Order/* is paused".to_owned()), due_at: None, ..record(1) });
    for record in [parked, record(1)] {
        let (state, next, commands) = told(&Facts { routes: vec![other.clone(), pattern.clone()], ..known(record) });
        assert_eq!((state, commands.as_str()), (State::Paused, "outbox route resume 'Order/*'"));
        let held = "Its route Order/OrderPlaced is held by the pattern Order/*, which is paused by anna@shop since ";
        assert!(next.starts_with(held) && next.contains("(2 min ago): the mail server moves"), "{next}");
        assert!(next.ends_with("It is delivered once Order/* is resumed."), "{next}");
    }

    let (_, next, commands) = told(&Facts { routes: vec![pattern, paused()], ..known(record(1)) });
    assert_eq!(commands, "outbox route resume Order/OrderPlaced\noutbox route resume 'Order/*'");
    assert!(next.contains("The pattern Order/*, which covers it too, is also paused by anna@shop"), "{next}");
    assert!(next.ends_with("It is delivered once all of them are resumed."), "{next}");
}

#[test]
fn what_will_never_be_done_is_told() {
    let expired = changed!(Record { expires_at: Some(ago(1)), ..record(1) });
    assert_eq!(told(&known(expired)).0, State::Expired);
    let (state, next, _) = told(&known(changed!(Record { due_at: None, ..record(1) })));
    assert!(state == State::Stranded && next.contains("no host will ever take it"), "{next}");
}

#[test]
fn nothing_that_a_guest_wrote_can_steer_the_terminal() {
    let last_error = Some("\u{1b}[2J".to_owned());
    let (_, next, _) = told(&known(changed!(Record { last_error, ..dead(1, false) })));
    assert!(!next.contains('\u{1b}'), "{next}");
}

#[test]
fn an_id_that_a_shell_would_run_stands_in_quotes_in_the_commands() {
    let event_id = "$(reboot)".parse().unwrap();
    let (_, _, commands) = told(&known(changed!(Record { event_id, ..dead(1, false) })));
    assert_eq!(commands, "outbox dead replay '$(reboot)'\noutbox dead discard '$(reboot)'");
}

#[test]
fn each_case_has_a_code_that_programs_can_rely_on() {
    let code = |known: &Facts| Cause::of(known).code;
    let of = |record: Record| code(&known(record));
    let parked = || changed!(Record { parked: Some("no listener answers it".to_owned()), due_at: None, ..record(1) });
    let held = |owner: &str| changed!(Record { locked_by: Some(owner.to_owned()), lease_end: Some(soon(9)), ..record(1) });
    let behind = || changed!(Record { behind: Some(2), due_at: None, ..record(3) });
    let pattern = changed!(RouteRecord { route: Route::new("Order", "*").unwrap(), first_seen_at: None, ..paused() });
    let unroutable = changed!(Record { last_error: Some("no listener answers Order/X".to_owned()), ..dead(1, false) });

    assert_eq!(of(changed!(Record { status: Status::Done, done_at: Some(ago(1)), ..record(1) })), ReasonCode::Delivered);
    assert_eq!(
        [of(dead(1, false)), of(dead(1, true)), of(unroutable)],
        [ReasonCode::GivenUp, ReasonCode::GivenUp, ReasonCode::NoListener]
    );
    assert_eq!([of(held("one")), of(held("two"))], [ReasonCode::HeldByHost, ReasonCode::HeldByLostHost]);
    assert_eq!(of(changed!(Record { lease_end: Some(ago(1)), ..held("one") })), ReasonCode::LeaseOver);
    assert_eq!(of(record(1)), ReasonCode::WaitsForHost);
    assert_eq!(code(&Facts { nodes: vec![node("one", false)], ..known(record(1)) }), ReasonCode::NoHost);
    let later = || changed!(Record { due_at: Some(soon(9)), ..record(1) });
    assert_eq!(of(changed!(Record { available_at: soon(9), ..later() })), ReasonCode::DelayedByWriter);
    assert_eq!(of(changed!(Record { status: Status::Retry, attempts: 1, ..later() })), ReasonCode::AttemptFailed);
    assert_eq!(
        [of(changed!(Record { deferrals: 1, ..later() })), of(changed!(Record { claim_seq: 2, ..later() })), of(later())],
        [ReasonCode::DeferredByListener, ReasonCode::GivenBack, ReasonCode::DelayedByWriter]
    );
    assert_eq!(of(parked()), ReasonCode::NoListener);
    assert_eq!(code(&Facts { routes: vec![paused()], ..known(parked()) }), ReasonCode::RoutePaused);
    assert_eq!(code(&Facts { routes: vec![pattern], ..known(parked()) }), ReasonCode::PatternPaused);
    let relayed = Facts {
        routes: vec![changed!(RouteRecord { paused_at: None, ..paused() })],
        relays: vec![Route::new("Order", "*").unwrap()],
        ..known(parked())
    };
    assert_eq!(code(&relayed), ReasonCode::PassedOverByRelay);
    let after = |first: Record| code(&Facts { queue: vec![first], ..known(behind()) });
    assert_eq!(
        [after(dead(2, true)), after(dead(2, false)), after(record(2)), of(behind())],
        [ReasonCode::BlockedByDead, ReasonCode::BlockerGone, ReasonCode::BlockedByEarlier, ReasonCode::BlockerGone]
    );
    assert_eq!(of(changed!(Record { expires_at: Some(ago(1)), ..record(1) })), ReasonCode::Expired);
    assert_eq!(of(changed!(Record { due_at: None, ..record(1) })), ReasonCode::Stranded);
}

#[test]
fn the_next_time_is_one_to_come() {
    let next_at = |record: Record| Cause::of(&known(record)).next_at;
    let failed = changed!(Record { status: Status::Retry, attempts: 1, due_at: Some(soon(9)), ..record(1) });
    assert_eq!(next_at(failed), Some(soon(9)));
    let held = changed!(Record { locked_by: Some("one".to_owned()), lease_end: Some(soon(25)), ..record(1) });
    assert_eq!(next_at(held), Some(soon(25)));
    assert_eq!(
        next_at(changed!(Record { available_at: soon(3), ..record(1) })),
        Some(soon(3)),
        "it is due at once, and then again"
    );
    let parked = changed!(Record { parked: Some("no".to_owned()), due_at: None, ..record(1) });
    assert_eq!([next_at(record(1)), next_at(dead(1, false)), next_at(parked)], [None; 3]);
}

#[test]
fn each_action_tells_its_request_with_names_that_no_path_could_misread() {
    let event_id = "a/b%c".parse().unwrap();
    let actions = Cause::of(&known(changed!(Record { event_id, ..dead(1, true) }))).actions;
    let requests: Vec<_> = actions.iter().map(|action| (action.code, action.request.as_deref())).collect();
    assert_eq!(
        requests,
        [
            (ActionCode::Replay, Some("POST /v1/dead/a%2Fb%25c/replay")),
            (ActionCode::Skip, Some("POST /v1/dead/a%2Fb%25c/skip")),
            (ActionCode::Discard, Some("POST /v1/dead/a%2Fb%25c/discard")),
        ]
    );
    let pattern = changed!(RouteRecord { route: Route::new("Order", "*").unwrap(), ..paused() });
    let actions = Cause::of(&Facts { routes: vec![pattern], ..known(record(1)) }).actions;
    assert_eq!(actions[0].request.as_deref(), Some("POST /v1/routes/Order/%2A/resume"));
}
