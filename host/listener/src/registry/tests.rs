use outbox_event::{DispatchResult, Event, Failure};

use super::*;

async fn done(_: Arc<Event>) -> Result<DispatchResult, Failure> {
    Ok(DispatchResult::Done)
}

fn registration(aggregate_type: &str, event_type: &str) -> Registration {
    Registration::new(Route::new(aggregate_type, event_type).expect("valid"), done)
}

#[test]
fn a_second_listener_for_a_route_is_an_error_and_changes_nothing() {
    let listeners = Listeners::default();
    listeners.replace("a", vec![registration("Order", "OrderPlaced")]).expect("free");
    let error = listeners
        .replace("b", vec![registration("Order", "OrderPaid"), registration("Order", "OrderPlaced")])
        .expect_err("taken");
    assert_eq!(
        error.to_string(),
        "route Order/OrderPlaced is already answered by a; b cannot answer it too: one listener each"
    );
    assert!(listeners.find(&Route::new("Order", "OrderPaid").expect("valid")).is_none(), "all or nothing");
}

#[test]
fn a_swap_replaces_what_the_owner_answered_and_remembers_what_it_no_longer_does() {
    let listeners = Listeners::default();
    let placed = Route::new("Order", "OrderPlaced").expect("valid");
    listeners.replace("a", vec![registration("Order", "OrderPlaced")]).expect("free");
    listeners.replace("a", vec![registration("Order", "OrderPaid")]).expect("its own");
    assert!(listeners.find(&placed).is_none());
    assert!(listeners.is_remembered(&placed));
}

#[test]
fn events_wait_for_a_listener_when_there_was_one_or_routes_may_be_missing_or_there_is_none_at_all() {
    let listeners = Listeners::default();
    let (placed, paid) = (registration("Order", "OrderPlaced"), Route::new("Order", "OrderPaid").expect("valid"));
    assert!(listeners.awaited(&paid).is_some(), "there is no listener at all");
    listeners.replace("a", vec![placed]).expect("free");
    assert_eq!(listeners.awaited(&paid), None);
    listeners.set_incomplete(Some("the plugin b did not load".to_owned()));
    assert_eq!(listeners.awaited(&paid).as_deref(), Some("the plugin b did not load"));
    listeners.set_recorded([Route::new("Order", "OrderShipped").expect("valid")], []);
    let shipped = listeners.awaited(&Route::new("Order", "OrderShipped").expect("valid")).expect("it had one");
    assert!(shipped.contains("had a listener before") && shipped.ends_with("here the plugin b did not load"), "{shipped}");
    listeners.set_incomplete(None);
    assert!(listeners.gives_up_any([&paid].into_iter()));
    listeners.set_recorded([paid.clone()], []);
    assert!(!listeners.gives_up_any([&paid].into_iter()));
}

#[test]
fn events_of_a_route_that_was_given_up_wait_for_that_reason_until_it_has_a_listener() {
    let listeners = Listeners::default();
    let paid = Route::new("Order", "OrderPaid").expect("valid");
    listeners.replace("shop", vec![registration("Order", "OrderPaid"), registration("Order", "OrderPlaced")]).expect("free");
    listeners.set_incomplete(Some("the plugin b did not load".to_owned()));

    listeners.note_given_up([(paid.clone(), "the plugin shop gave it up".to_owned())]);
    listeners.replace("shop", vec![registration("Order", "OrderPlaced")]).expect("its own");

    assert_eq!(listeners.awaited(&paid).as_deref(), Some("the plugin shop gave it up"));
    listeners.replace("other", vec![registration("Order", "OrderPaid")]).expect("free");
    listeners.remove("other");
    let again = listeners.awaited(&paid).expect("it had a listener");
    assert!(!again.contains("shop"), "{again}");
}

#[test]
fn no_plugin_replaces_native_listeners_whatever_its_name() {
    let listeners = Listeners::default();
    let placed = Route::new("Order", "OrderPlaced").expect("valid");
    listeners.replace(Owner::Native, vec![registration("Order", "OrderPlaced")]).expect("free");
    for name in ["native", "native code", ""] {
        listeners.replace(name, vec![registration("Order", "OrderPaid")]).expect("free");
        listeners.remove(name);
        assert!(listeners.find(&placed).is_some_and(|entry| entry.owner == Owner::Native), "{name}");
    }
    let error = listeners.replace("native", vec![registration("Order", "OrderPlaced")]).expect_err("taken");
    assert!(error.to_string().contains("answered by native code; native cannot"), "{error}");
}

#[test]
fn several_owners_change_in_one_step_or_not_at_all() {
    let listeners = Listeners::default();
    let [placed, paid] = ["OrderPlaced", "OrderPaid"].map(|name| Route::new("Order", name).expect("valid"));
    let owner = |route: &Route| listeners.find(route).map(|entry| entry.owner.to_string());
    listeners.replace("a", vec![registration("Order", "OrderPlaced")]).expect("free");
    listeners.replace("b", vec![registration("Order", "OrderPaid")]).expect("free");
    let before = *listeners.changes().borrow();

    let exchange = [("a", "OrderPaid"), ("b", "OrderPlaced")];
    let exchange = exchange.map(|(owner, name)| (Owner::from(owner), vec![registration("Order", name)]));
    listeners.replace_all(exchange).expect("each takes what the other gives up");
    assert_eq!((owner(&placed).as_deref(), owner(&paid).as_deref()), (Some("b"), Some("a")));
    assert_eq!(*listeners.changes().borrow(), before + 1);

    let both = ["a", "b"].map(|owner| (Owner::from(owner), vec![registration("Order", "OrderPlaced")]));
    listeners.replace_all(both).expect_err("two listeners for one route");
    assert_eq!((owner(&placed).as_deref(), owner(&paid).as_deref()), (Some("b"), Some("a")), "all or nothing");
}

#[test]
fn a_relay_answers_what_its_pattern_covers_and_nobody_else_does() {
    let listeners = Listeners::default();
    let relay = |sink: &str, pattern: (&str, &str)| (Owner::Sink(Arc::from(sink)), registration(pattern.0, pattern.1));
    let owner = |aggregate_type: &str, event_type: &str| {
        let route = Route::new(aggregate_type, event_type).expect("valid");
        listeners.find(&route).map(|entry| entry.owner.to_string())
    };
    let relays = vec![relay("all", ("*", "*")), relay("orders", ("Order", "*")), relay("paid", ("Order", "OrderPaid"))];
    listeners.set_relays(relays).expect("each its own pattern");
    listeners.replace("mailer", vec![registration("Order", "OrderPaid")]).expect("a relay is no obstacle");
    assert_eq!(owner("User", "UserCreated").as_deref(), Some("the sink all"));
    assert_eq!(owner("Order", "OrderPlaced").as_deref(), Some("the sink orders"));
    assert_eq!(owner("Order", "OrderPaid").as_deref(), Some("mailer"));
    listeners.remove("mailer");
    assert_eq!(owner("Order", "OrderPaid").as_deref(), Some("the sink paid"), "it is named exactly");
    listeners.replace("mailer", vec![registration("Order", "OrderShipped")]).expect("a relay is no obstacle");
    listeners.remove("mailer");
    assert_eq!(owner("Order", "OrderShipped"), None, "its events wait for their listener");

    let twice = vec![relay("a", ("Order", "*")), relay("b", ("Order", "*"))];
    listeners.set_relays(twice).expect_err("one pattern, two sinks");
    assert_eq!(owner("Order", "OrderPlaced").as_deref(), Some("the sink orders"), "nothing has changed");
}

#[test]
fn a_pattern_takes_a_route_that_only_relays_have_answered() {
    let placed = Route::new("Order", "OrderPlaced").expect("valid");
    let relay = |event_type: &str| vec![(Owner::Sink("orders".into()), registration("Order", event_type))];
    let listeners = Listeners::default();
    listeners.set_relays(relay("OrderPlaced")).expect("one");
    listeners.set_relays(relay("*")).expect("one");
    assert!(listeners.find(&placed).is_some());

    listeners.set_recorded([], [placed.clone()]);
    assert!(listeners.find(&placed).is_some(), "a relay of another host");
    listeners.set_recorded([placed.clone()], [placed.clone()]);
    assert!(listeners.find(&placed).is_none(), "it had a listener of its own");
}

#[test]
fn a_route_that_the_table_has_lost_is_forgotten_if_no_listener_answers_it() {
    let listeners = Listeners::default();
    let [placed, paid] = ["OrderPlaced", "OrderPaid"].map(|name| Route::new("Order", name).expect("valid"));
    listeners.set_relays(vec![(Owner::Sink("orders".into()), registration("Order", "*"))]).expect("one");
    listeners.replace("mailer", vec![registration("Order", "OrderPlaced")]).expect("a relay is no obstacle");
    listeners.set_recorded([placed.clone(), paid.clone()], []);
    assert!(listeners.find(&paid).is_none(), "another host has its listener");
    listeners.set_recorded([placed.clone()], []);
    assert!(listeners.find(&paid).is_some(), "the route was forgotten");

    listeners.note_given_up([(placed.clone(), "the plugin mailer was unloaded".to_owned())]);
    listeners.remove("mailer");
    assert!(listeners.find(&placed).is_none(), "the table has it");
    listeners.set_recorded([], []);
    assert!(listeners.find(&placed).is_some(), "the route was forgotten");
    assert!(!listeners.awaited(&placed).is_some_and(|why| why.contains("unloaded")));
}

#[test]
fn a_route_that_the_table_never_had_stays_remembered() {
    let listeners = Listeners::default();
    let placed = Route::new("Order", "OrderPlaced").expect("valid");
    listeners.replace("mailer", vec![registration("Order", "OrderPlaced")]).expect("free");
    listeners.set_recorded([placed.clone()], []);
    listeners.set_recorded([], []);
    assert!(listeners.is_remembered(&placed), "its listener is here");
    listeners.remove("mailer");

    listeners.set_recorded([], []);

    assert!(listeners.is_remembered(&placed), "it was not recorded again");
    listeners.set_recorded([placed.clone()], []);
    listeners.set_recorded([], []);
    assert!(!listeners.is_remembered(&placed));
}

#[test]
fn events_of_a_pattern_are_answered_here_and_waited_for_elsewhere() {
    let placed = Route::new("Order", "OrderPlaced").expect("valid");
    let listeners = Listeners::default();
    listeners.set_relays(vec![(Owner::Sink("orders".into()), registration("Order", "*"))]).expect("one");
    assert!(!listeners.gives_up_any([&placed].into_iter()));
    assert!(listeners.gives_up_any([&Route::new("User", "UserCreated").expect("valid")].into_iter()));
    assert!(listeners.has_patterns() && listeners.open_routes().is_empty());

    let elsewhere = Listeners::default();
    elsewhere.replace("a", vec![registration("User", "UserCreated")]).expect("free");
    assert!(elsewhere.gives_up_any([&placed].into_iter()));
    elsewhere.set_recorded([], listeners.routes());
    assert!(!elsewhere.gives_up_any([&placed].into_iter()), "another host relays it");
}

#[test]
fn no_plugin_makes_hosts_wait_for_every_route() {
    let listeners = Listeners::default();
    listeners.replace("greedy", vec![registration("*", "*")]).expect("a name like any other");
    assert_eq!(listeners.routes(), [], "nothing to remember");
    assert!(listeners.gives_up_any([&Route::new("Order", "OrderPlaced").expect("valid")].into_iter()));
}

#[test]
fn a_pattern_pauses_what_it_covers() {
    let listeners = Listeners::default();
    listeners.set_paused([(Route::new("Order", "*").expect("valid"), "moving".to_owned())].into());
    assert_eq!(listeners.paused(&Route::new("Order", "OrderPaid").expect("valid")).as_deref(), Some("moving"));
    assert_eq!(listeners.paused(&Route::new("User", "UserCreated").expect("valid")), None);
}

#[test]
fn an_unroutable_event_is_told_the_near_names() {
    let listeners = Listeners::default();
    listeners.replace("a", vec![registration("Order", "OrderPlaced"), registration("User", "UserCreated")]).expect("free");
    let text = listeners.unroutable(&Route::new("order", "OrderPlacd").expect("valid"));
    assert_eq!(text, "no listener answers order/OrderPlacd (did you mean Order/OrderPlaced?)");
}

#[test]
fn a_route_with_the_same_event_type_is_near_whatever_its_aggregate_type() {
    let listeners = Listeners::default();
    listeners.replace("a", vec![registration("Customer", "UserRegistered")]).expect("free");
    let unroutable =
        |aggregate_type: &str, event_type: &str| listeners.unroutable(&Route::new(aggregate_type, event_type).expect("valid"));

    assert_eq!(
        unroutable(AggregateType::GLOBAL, "UserRegistered"),
        "no listener answers __GLOBAL__/UserRegistered (was the aggregate type left out? did you mean Customer/UserRegistered?)"
    );
    assert_eq!(
        unroutable("Account", "UserRegistered"),
        "no listener answers Account/UserRegistered (did you mean Customer/UserRegistered?)"
    );
    assert_eq!(unroutable(AggregateType::GLOBAL, "Other"), "no listener answers __GLOBAL__/Other (1 route is answered)");
}

#[test]
fn hosts_with_the_same_listeners_have_the_same_digest() {
    let hosts = [(); 2].map(|()| Listeners::default());
    let digests = || hosts.each_ref().map(Listeners::digest);
    let native = |event_type: &str| vec![registration("Order", event_type)];
    for host in &hosts {
        host.replace(Owner::Native, native("OrderPaid")).expect("free");
    }
    assert_eq!(digests()[0], digests()[1]);
    hosts[0].replace("mailer", vec![registration("Order", "OrderPlaced")]).expect("free");
    assert_ne!(digests()[0], digests()[1], "the plugin does not serve on the other");
    hosts[1].replace("mailer", vec![registration("Order", "OrderPlaced")]).expect("free");
    assert_eq!(digests()[0], digests()[1]);

    hosts[1].set_relays(vec![(Owner::Sink("orders".into()), registration("Order", "*"))]).expect("one");
    assert_ne!(digests()[0], digests()[1]);
    hosts[0].set_relays(vec![(Owner::Sink("orders".into()), registration("Order", "*"))]).expect("one");
    assert_eq!(digests()[0], digests()[1]);
    hosts[0].set_relays(vec![(Owner::Sink("others".into()), registration("Order", "*"))]).expect("one");
    assert_ne!(digests()[0], digests()[1]);
}

#[test]
fn a_plugin_that_breaks_is_no_stall_of_its_host() {
    let (listeners, now) = (Listeners::default(), Instant::now());
    listeners.replace("mailer", vec![registration("Order", "OrderPlaced")]).expect("free");
    listeners.replace(Owner::Native, vec![registration("Order", "OrderPaid")]).expect("free");
    for event_type in ["OrderPlaced", "OrderPaid"] {
        listeners.find(&Route::new("Order", event_type).expect("valid")).expect("it is there").gave_back(
            None,
            "it breaks",
            now,
        );
    }
    let stalls: Vec<_> = listeners.stalls(now).into_iter().map(|(route, ..)| route.to_string()).collect();
    assert_eq!(stalls, ["Order/OrderPaid"]);
}

#[test]
fn an_open_breaker_is_reported_only_while_its_listener_answers_the_route() {
    let (listeners, now) = (Listeners::default(), Instant::now());
    let paid = Route::new("Order", "OrderPaid").expect("valid");
    listeners.set_relays(vec![(Owner::Sink("orders".into()), registration("Order", "*"))]).expect("one");
    let relay = listeners.find(&paid).expect("the relay covers it");
    let breaker = relay.breaker(&paid, now);
    for _ in 0..BreakerConfig::default().threshold {
        let _ = breaker.admit(now).expect("closed").record(true, now);
    }
    let open = || listeners.open_breakers().into_iter().map(|(route, owner, _)| (route, owner)).collect::<Vec<_>>();
    assert_eq!(open(), [(paid.clone(), Owner::Sink("orders".into()))]);

    listeners.replace("mailer", vec![registration("Order", "OrderPaid")]).expect("a relay is no obstacle");

    assert!(open().is_empty(), "the plugin answers the route, so the relay is not called again");
}
