use std::sync::Arc;
use std::time::Duration;

use outbox_event::{DispatchResult, Event, Failure, Owner, SinkOutage};
use outbox_listener::{Listeners, Registration};
use outbox_store::{ListenerReport, NodeRecord, OpenBreaker, RouteRecord};

use super::*;
use crate::pages::fake::{frame, node, route};
use crate::pages::known::snapshot::{Known, Snapshot};

/// The page of a host with these listeners, `web-1`.
fn shown(snapshot: Snapshot, own: &Listeners, query: &str) -> String {
    let answers = RouteListeners::of(&snapshot.nodes, "owner-web-1", &[], own);
    let frame = Frame { known: Known { snapshot: Some(Arc::new(snapshot)), outage: None }, ..frame() };
    page(&frame, &answers, &Fields::of_form(query)).into_string()
}

/// State and listener of each route.
fn states_and_listeners(text: &str) -> Vec<(String, String)> {
    let plain = |cell: &str| {
        let texts = cell.split('<').map(|part| part.rsplit('>').next().unwrap_or_default());
        texts.collect::<String>().trim().to_owned()
    };
    let rows = text.split("<tr>").skip(2);
    rows.map(|row| {
        let cells: Vec<&str> = row.split("<td").collect();
        (plain(&format!("<{}", cells[2])), plain(&format!("<{}", cells[3])))
    })
    .collect()
}

#[test]
fn a_route_is_serving_only_where_a_live_host_is_known_to_have_a_listener() {
    let now = frame().known.now();
    let own = Listeners::default();
    let done = |_: Arc<Event>| async { Ok::<_, Failure>(DispatchResult::Done) };
    own.replace(Owner::Native, vec![Registration::new(Route::new("Order", "Native").unwrap(), done)]).unwrap();
    let relay = Registration::new(Route::new("Invoice", "*").unwrap(), done);
    own.set_relays(vec![(Owner::Sink("broker".into()), relay)]).unwrap();
    let had_one = |event: &str| changed!(RouteRecord { first_seen_at: Some(now), ..route("Order", event) });
    let routes = || {
        let paused = changed!(RouteRecord { paused_at: Some(now), ..had_one("Paused") });
        let failed = had_one("Failed");
        vec![
            had_one("Native"),
            had_one("Plugin"),
            failed,
            had_one("Gone"),
            paused,
            route("Invoice", "Sent"),
            route("A", "Never"),
        ]
    };
    let with = |report: &str, alive| changed!(NodeRecord { alive, report: Some(report.to_owned()), ..node("web-2", now) });
    let plugins = r#"{"plugins":[
        {"name":"mailer","version":"1.4.0","digest":"ab","state":"serving","routes":[{"aggregate_type":"Order","event_type":"Plugin"}]},
        {"name":"broken","digest":"cd","state":"failed","routes":[{"aggregate_type":"Order","event_type":"Failed"}],"error":"no"}
    ]}"#;
    let page = |other: NodeRecord| {
        let snapshot = Snapshot { routes: routes(), nodes: vec![node("web-1", now), other], ..Snapshot::made_up(now) };
        states_and_listeners(&shown(snapshot, &own, ""))
    };
    let both = |state: &str, listener: &str| (state.to_owned(), listener.to_owned());

    // Sorted: what is paused first, then by name.
    let unknown = || both("○ unknown", "none here; another host may have one");
    let two_hosts = [
        both("‖ paused just now", "none here; another host may have one"),
        both("! no listener", "none"),
        both("● serving", "the sink broker"),
        unknown(),
        unknown(),
        both("● serving", "native code"),
        both("● serving", "mailer 1.4.0"),
    ];
    assert_eq!(page(with(plugins, true)), two_hosts);

    let idle = || both("○ idle", "no live host has a listener");
    let alone = [
        both("‖ paused just now", "no live host has a listener"),
        both("! no listener", "none"),
        both("● serving", "the sink broker"),
        idle(),
        idle(),
        both("● serving", "native code"),
        idle(),
    ];
    assert_eq!(page(with(plugins, false)), alone, "a host that is gone serves nothing");
}

#[test]
fn a_route_whose_sink_is_down_is_not_serving() {
    let now = frame().known.now();
    let own = Listeners::default();
    let relay = |to: &str| {
        Registration::new(Route::new(to, "*").unwrap(), |_: Arc<Event>| async { Ok::<_, Failure>(DispatchResult::Done) })
    };
    own.set_relays(vec![(Owner::Sink("down".into()), relay("Invoice")), (Owner::Sink("up".into()), relay("Order"))]).unwrap();
    let snapshot = Snapshot { routes: vec![route("Invoice", "Sent"), route("Order", "Placed")], ..Snapshot::made_up(now) };
    let since = now.minus(Duration::from_secs(240));
    let down = DownSink {
        name: "down".to_owned(),
        hosts: vec!["web-1".to_owned()],
        other_hosts: 1,
        routes: Vec::new(),
        more_routes: 0,
        waiting: 0,
        outage: SinkOutage { since, reason: "connection refused".to_owned(), next_try: now },
        first_since: since,
    };
    let answers = RouteListeners::of(&[], "owner-web-1", &[], &own).with_down(vec![down]);
    let frame = Frame { known: Known { snapshot: Some(Arc::new(snapshot)), outage: None }, ..frame() };

    let rows = states_and_listeners(&page(&frame, &answers, &Fields::default()).into_string());

    let both = |state: &str, listener: &str| (state.to_owned(), listener.to_owned());
    assert_eq!(rows, [both("✕ sink down for 4 min on 1 of 2 hosts", "the sink down"), both("● serving", "the sink up")]);
}

#[test]
fn a_route_whose_breaker_is_open_on_any_host_is_not_serving() {
    let now = frame().known.now();
    let own = Listeners::default();
    let native = |event: &str| {
        let done = |_: Arc<Event>| async { Ok::<_, Failure>(DispatchResult::Done) };
        Registration::new(Route::new("Order", event).unwrap(), done)
    };
    own.replace(Owner::Native, vec![native("Paid"), native("Placed")]).unwrap();
    let open = |event: &str| OpenBreaker {
        route: Route::new("Order", event).unwrap(),
        listener: "native code".to_owned(),
        since: now.minus(Duration::from_secs(240)),
        next_try: now.plus(Duration::from_secs(90)),
    };
    let listeners = ListenerReport::default().with_open_breakers([open("Elsewhere"), open("Paid")]);
    let other = changed!(NodeRecord { listeners, ..node("web-2", now) });
    let had_one = |event: &str| changed!(RouteRecord { first_seen_at: Some(now), ..route("Order", event) });
    let snapshot = Snapshot {
        routes: vec![had_one("Elsewhere"), had_one("Paid"), had_one("Placed")],
        nodes: vec![node("web-1", now), other],
        ..Snapshot::made_up(now)
    };

    let rows = states_and_listeners(&shown(snapshot, &own, ""));

    let state = "‖ breaker open for 4 min on 1 of 2 hosts, next try in 1 min";
    let wanted = [(state, "none here; another host may have one"), (state, "native code"), ("● serving", "native code")];
    assert_eq!(rows, wanted.map(|(state, listener)| (state.to_owned(), listener.to_owned())));
}

#[test]
fn a_route_of_a_plugin_is_not_serving_if_breakers_that_no_host_names_may_include_its_own() {
    let now = frame().known.now();
    let own = Listeners::default();
    let plugins = r#"{"plugins":[
        {"name":"mailer","version":"1.4.0","digest":"ab","state":"breaker_open","routes":[{"aggregate_type":"Order","event_type":"Paid"}]}
    ]}"#;
    let page = |more_open_breakers: u64| {
        let mut other = changed!(NodeRecord { report: Some(plugins.to_owned()), ..node("web-2", now) });
        other.listeners.more_open_breakers = more_open_breakers;
        let routes = vec![changed!(RouteRecord { first_seen_at: Some(now), ..route("Order", "Paid") })];
        let snapshot = Snapshot { routes, nodes: vec![node("web-1", now), other], ..Snapshot::made_up(now) };
        shown(snapshot, &own, "")
    };
    let state = |text: &str| states_and_listeners(text)[0].0.clone();

    assert_eq!(state(&page(0)), "● serving", "the open breaker is that of another route");
    let text = page(3);
    assert_eq!(state(&text), "‖ breaker open on routes of its plugin that no host names");
    assert!(text.contains("3 more breakers are open; a host names 20."), "{text}");
}

#[test]
fn a_route_that_stays_in_its_state_is_on_one_of_the_pages_though_others_leave_theirs_meanwhile() {
    let now = frame().known.now();
    let own = Listeners::default();
    let parked = |number: usize, parked: u64| changed!(RouteRecord { parked, ..route("Order", &format!("E{number:03}/ü")) });
    let before = |count: u64| (0..250).map(|number| parked(number, if number < 10 { count } else { 1 })).collect();
    let snapshot = |routes: Vec<RouteRecord>| Snapshot { routes, ..Snapshot::made_up(now) };
    let names =
        |text: &str| text.match_indices("\">Order/E").map(|(at, _)| text[at + 9..at + 12].to_owned()).collect::<Vec<_>>();
    let link = |text: &str, rel: &str| {
        let (start, _) = text.split_once(&format!("\" rel=\"{rel}\""))?;
        Some(start.rsplit_once("routes?")?.1.replace("&amp;", "&"))
    };

    let first = shown(snapshot(before(1)), &own, "");
    assert!(first.contains("1–100 of 250") && link(&first, "prev").is_none(), "{first}");
    // Ten routes of the first page are resolved, before the visitor opens the next page.
    let second = shown(snapshot(before(0)), &own, &link(&first, "next").expect("there are more"));
    let third = shown(snapshot(before(0)), &own, &link(&second, "next").expect("there are more"));
    let seen: Vec<String> = [&first, &second, &third].into_iter().flat_map(|text| names(text)).collect();
    for number in 10..250 {
        assert_eq!(seen.iter().filter(|name| **name == format!("{number:03}")).count(), 1, "{number}: {seen:?}");
    }
    assert_eq!(link(&third, "next"), None);
    let back = shown(snapshot(before(0)), &own, &link(&third, "prev").expect("there are some before"));
    assert_eq!(names(&back), names(&second));
    assert!(
        shown(snapshot(before(0)), &own, "after=nonsense").contains("1–100 of 250"),
        "what cannot be read is the first page"
    );
}

#[test]
fn a_paused_pattern_holds_the_routes_that_it_covers_and_counts_their_events() {
    let known = frame();
    let now = known.known.now();
    let routes = vec![
        changed!(RouteRecord {
            paused_at: Some(now),
            pause_reason: Some("the bank is down".to_owned()),
            ..route("Order", "*")
        }),
        changed!(RouteRecord { first_seen_at: Some(now), parked: 3, waiting: 1, ..route("Order", "Paid") }),
        changed!(RouteRecord { first_seen_at: Some(now), parked: 2, ..route("Order", "Placed") }),
        changed!(RouteRecord { first_seen_at: Some(now), waiting: 7, ..route("Invoice", "Sent") }),
    ];
    let snapshot = Snapshot { routes, ..Snapshot::made_up(now) };
    let text = shown(snapshot, &Listeners::default(), "");

    let rows: Vec<&str> = text.split("<tr>").skip(2).collect();
    assert_eq!(rows.iter().filter(|row| row.contains("paused")).count(), 3, "{text}");
    assert!(rows[1].contains("with <span class=\"mono\">Order/*</span>") && rows[1].contains("the bank is down"), "{text}");
    assert!(rows[1].contains("routes/resume?aggregate_type=Order&amp;event_type=%2A"), "it is resumed by its pattern: {text}");
    assert!(rows[0].contains("events?aggregate_type=Order\"") && rows[0].contains(">5<"), "{text}");
    assert!(rows[3].contains("routes/pause?aggregate_type=Invoice&amp;event_type=Sent"), "{text}");
}

#[test]
fn the_events_of_a_paused_pattern_are_counted_at_the_routes_that_it_covers() {
    let now = frame().known.now();
    let routes = || {
        vec![
            changed!(RouteRecord { paused_at: Some(now), ..route("Order", "*") }),
            changed!(RouteRecord {
                first_seen_at: Some(now),
                parked: 3,
                waiting: 1,
                dead: 1,
                blocked: 1,
                ..route("Order", "Paid")
            }),
        ]
    };
    let page = |query: &str| shown(Snapshot { routes: routes(), ..Snapshot::made_up(now) }, &Listeners::default(), query);
    let all = page("");
    for (state, wanted) in [("parked", 1), ("dead", 1), ("blocked", 1), ("waiting", 1), ("paused", 2), ("no_listener", 0)] {
        let (_, chip) = all.split_once(&format!("routes?state={state}\"")).expect("a chip");
        let (_, figure) = chip.split_once("<span class=\"figure quiet\">").expect("a figure");
        assert!(figure.starts_with(&format!("{wanted}<")), "{state}: {all}");
        let rows = page(&format!("state={state}")).matches("class=\"row\"").count();
        assert_eq!(rows, wanted, "the page shows what the chip counts: {state}");
    }
}

#[test]
fn thirty_thousand_routes_take_a_small_page_and_each_of_them_can_be_found() {
    let known = frame();
    let now = known.known.now();
    let paused = |number: usize| {
        changed!(RouteRecord {
            paused_at: Some(now),
            pause_reason: Some("the bank is down ".repeat(60)),
            parked: number as u64,
            waiting: 1_000_000,
            dead: 12_345,
            ..route("BillingAccount", &format!("InvoiceWasSentToCustomer{number:05}"))
        })
    };
    let snapshot = Snapshot { routes: (0..30_000).map(paused).collect(), ..Snapshot::made_up(now) };
    let frame = Frame { known: Known { snapshot: Some(Arc::new(snapshot)), outage: None }, ..known };
    let own = Listeners::default();
    let answers = RouteListeners::of(&[], "owner-web-1", &[], &own);
    let page = |query: &str| {
        let text = frame.document("Routes", page(&frame, &answers, &Fields::of_form(query))).into_string();
        assert!(text.len() < 150_000, "{query}: {} bytes", text.len());
        text
    };

    let first = page("");
    assert!(
        first.contains("1–100 of 30,000")
            && first.contains("routes?after=0%2FBillingAccount%2FInvoiceWasSentToCustomer00100\" rel=\"next\""),
        "{first}"
    );
    assert!(first.contains("30,000 routes are paused"), "{first}");
    let found = page("q=customer29999");
    assert_eq!((found.matches("class=\"row\"").count(), found.matches("rel=\"next\"").count()), (1, 0), "{found}");
    assert!(found.contains("Customer29999"), "{found}");
    assert!(found.contains("<span class=\"figure quiet\">30,000</span>"), "the counts stay those of all routes: {found}");
    assert!(page("state=paused&after=0%2FBillingAccount%2FInvoiceWasSentToCustomer29900").contains("29,901–30,000 of 30,000"));
    assert!(page("state=blocked").contains("No route matches."));

    let hour = Vec::new();
    let overview = crate::pages::view::overview::Overview { frame: &frame, hour, in_hand: 0 };
    let text = frame.document("Overview", crate::pages::view::overview::page(&overview)).into_string();
    assert!(text.len() < 150_000, "{} bytes", text.len());
}
