//! The pages as a browser without scripts gets them: over a real router, in front of a real SQLite store.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode, header};
use tower_service::Service as _;

use crate::event::{Envelope, Event, EventId};
use crate::http::{HttpConfig, Role, Token, router};
use crate::listener::{DispatchResult, Failure};
use crate::purge::PurgeConfig;
use crate::store::sqlite::SqliteOptions;
use crate::store::{Audit, DeadFilter, Filter, SqliteStore};
use crate::{Outbox, Status};

const EVIL: &str = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>";

/// A host that gives up every `Order/Paid` and is done with all else.
struct House {
    outbox: Outbox<SqliteStore>,
    router: Router,
    _directory: tempfile::TempDir,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl House {
    async fn with(config: HttpConfig) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let options = SqliteOptions::new(directory.path().join("outbox.db")).create(true);
        let store = SqliteStore::open_with(options).await.expect("opens");
        let outbox = Outbox::single_node(store)
            .migrate(true)
            .purge(PurgeConfig { enabled: false, ..PurgeConfig::default() })
            .listener(("Order", "Paid"), |event: Arc<Event>| async move {
                Err::<DispatchResult, _>(Failure::unrecoverable(format!("the bank said {EVIL} to number {}", event.sequence())))
            })
            .listener(("Order", "Placed"), |_: Arc<Event>| async { Ok(DispatchResult::Done) })
            .start()
            .await
            .expect("starts");
        let router = router(&outbox, config).expect("the configuration is valid");
        Self { outbox, router, _directory: directory }
    }

    async fn open() -> Self {
        Self::with(HttpConfig { open: true, ..HttpConfig::default() }).await
    }

    /// Writes so many events of this type, and waits until so many are in the state.
    async fn write(&self, event_type: &str, count: usize, status: Status) -> Vec<EventId> {
        let envelope = |number: usize| {
            Envelope::new(event_type).aggregate("Order", number.to_string()).header("x-evil", EVIL).json(&EVIL).expect("valid")
        };
        let ids = self.outbox.writer().emit((0..count).map(envelope).collect()).await.expect("written");
        let limit = u32::try_from(count).expect("small");
        for _ in 0..600 {
            let filter = Filter { status: Some(status), event_type: Some(event_type.to_owned()), ..Filter::default() };
            if self.outbox.store().list(&filter, limit).await.expect("reads").len() == count {
                return ids;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the events of {event_type} never became {status}");
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().call(request).await.expect("a router never fails");
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, 1 << 22).await.expect("a whole body");
        Answer { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).expect("text") }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).expect("a request")).await
    }

    async fn post(&self, path: &str, form: &str) -> Answer {
        let request = Request::post(path)
            .header("sec-fetch-site", "same-origin")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request.body(Body::from(form.to_owned())).expect("a request")).await
    }

    /// Waits until the overview says this: what it shows may be a second old.
    async fn shows(&self, text: &str) {
        for _ in 0..600 {
            if self.get("/").await.text.contains(text) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the overview never said: {text}");
    }

    async fn dead(&self) -> usize {
        self.outbox.store().list(&Filter { status: Some(Status::Dead), ..Filter::default() }, 200).await.expect("reads").len()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_there_is_not_is_refused_with_the_list_of_those_that_there_are() {
    let house = House::open().await;

    let refused = house.get("/audit?actor=anna&action=nonsense").await;

    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text);
    assert!(
        refused.text.contains("Choose one from the list.") && !refused.text.contains("nonsense</option>"),
        "{}",
        refused.text
    );
    assert!(refused.text.contains("<option value=\"replay\">") && refused.text.contains("value=\"anna\""), "{}", refused.text);
    assert!(refused.text.contains("href=\"./audit\""), "back to the whole log: {}", refused.text);
}

const PAGES: [&str; 8] = ["/", "/events", "/dead", "/routes", "/plugins", "/hosts", "/audit", "/dead/replay"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_is_whole_small_and_runs_no_script_of_a_writer() {
    let house = House::open().await;
    let ids = house.write("Paid", 120, Status::Dead).await;
    house.shows("120 events are dead").await;
    let event = format!("/events/{}?payload=show", ids[0]);
    for path in PAGES.into_iter().chain([event.as_str(), "/events?status=dead&error=%3Cscript%3E", "/search?q=nothing"]) {
        let answer = house.get(path).await;
        if path.starts_with("/search") {
            assert_eq!(
                (answer.status, answer.headers[header::LOCATION].to_str().unwrap()),
                (StatusCode::SEE_OTHER, "./events?aggregate_id=nothing")
            );
            continue;
        }
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
        assert!(answer.text.starts_with("<!DOCTYPE html>") && answer.text.ends_with("</html>"), "{path}");
        assert!(
            !answer.text.contains("<script>") && !answer.text.contains("<img") && !answer.text.contains(" style="),
            "{path}: {}",
            answer.text
        );
        assert!(answer.text.len() < 150_000, "{path} has {} bytes", answer.text.len());
        assert!(answer.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap().starts_with("default-src 'self'"), "{path}");
        assert_eq!(answer.headers[header::CACHE_CONTROL], "no-store", "{path}");
        assert_eq!(answer.text.matches("<script").count(), 1, "{path}: our own");
        assert!(answer.text.contains("120 events are dead"), "{path}: the status line is everywhere");
    }
    assert!(house.get(&event).await.text.contains("&lt;script&gt;alert(1)"));
    let hidden = house.get(&format!("/events/{}", ids[0])).await.text;
    assert!(hidden.contains("Show the payload") && !hidden.contains("<pre tabindex"), "{hidden}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_script_is_sent_the_parts_that_changed_and_nothing_else() {
    let house = House::open().await;
    let ids = house.write("Paid", 60, Status::Dead).await;
    house.shows("60 events are dead").await;
    let ask = async |path: &str, has: &str| {
        let request = Request::get(path).header("outbox-has", has).body(Body::empty()).expect("a request");
        house.send(request).await
    };
    for path in PAGES {
        let parts = ask(path, "").await;
        assert_eq!(parts.status, StatusCode::OK, "{path}");
        assert!(parts.text.starts_with("<title>") && parts.text.contains("60 events are dead"), "{path}: {}", parts.text);
        assert!(!parts.text.contains("<html") && !parts.text.contains("<style"), "{path}: {}", parts.text);
    }
    let list = ask("/events", "").await.text;
    assert!(list.contains("id=\"states\"") && !list.contains("table"), "no list: {list}");
    assert!(list.len() < 5_000, "{}", list.len());
    let event = ask(&format!("/events/{}?payload=show", ids[0]), "").await.text;
    assert!(event.contains("It was given up") && !event.contains("<form") && !event.contains("Envelope"), "{event}");

    let mark = |id: &str| {
        let (_, rest) = list.split_once(&format!("id=\"{id}\" data-live=\"")).expect("it is there");
        format!("{id}={}", rest.split('"').next().expect("it ends"))
    };
    let known = ask("/events", &format!("{} {} states=old junk", mark("nav"), mark("status"))).await.text;
    assert!(!known.contains("id=\"nav\"") && !known.contains("id=\"status\"") && known.contains("id=\"states\""), "{known}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_that_cannot_be_read_is_told_and_means_not_everything() {
    let house = House::open().await;
    house.write("Placed", 3, Status::Done).await;
    let list = house.get("/events?since=1h&until=0s&status=done").await;
    assert_eq!((list.status, list.text.matches("class=\"row\"").count()), (StatusCode::OK, 3), "{}", list.text);
    assert_eq!(house.get("/events?until=1h").await.text.matches("class=\"row\"").count(), 0);
    assert_eq!(house.get("/events?status=in_flight").await.text.matches("class=\"row\"").count(), 0);
    for (query, said) in [
        ("since=yesterday", "Written after is “yesterday”; write a span like 2h"),
        ("header=channel", "The header is “channel”; write key=value."),
        ("aggregate_id=a%00", "contains a NUL"),
    ] {
        let answer = house.get(&format!("/events?{query}")).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{query}");
        assert!(answer.text.contains(said) && !answer.text.contains("class=\"row\""), "{query}: {}", answer.text);
    }
    assert_eq!(house.get("/dead?aggregate_id=a%00").await.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_its_listener_gave_up_at_once_failed_once_in_the_list_and_on_its_page() {
    let house = House::open().await;
    let ids = house.write("Paid", 1, Status::Dead).await;
    let list = house.get("/events?status=dead").await.text;
    assert!(list.contains("data-name=\"failed\">1</td>"), "{list}");
    let page = house.get(&format!("/events/{}", ids[0])).await.text;
    for part in ["It was given up by its listener at ", ", after 1 failed attempt: the bank said", "1 failed attempt."] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(page.contains("Attempt 1 (the event was given up): "), "{page}");
    let routes = house.get("/routes").await.text;
    assert!(routes.contains("native code") && routes.contains("</span> serving</span>"), "{routes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_table_is_no_error_and_says_how_to_begin() {
    let house = House::open().await;
    assert!(house.get("/").await.text.contains("All well"));
    assert!(house.get("/events").await.text.contains("outbox event emit"));
    assert!(house.get("/dead").await.text.contains("No dead events."));
    assert_eq!(house.get("/events/01ARZ3NDEKTSV4RRFFQ69G5FAV").await.status, StatusCode::NOT_FOUND);
    assert_eq!(house.get("/dead/burn").await.status, StatusCode::NOT_FOUND);
    assert_eq!(house.get("/jobs/1").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_at_an_address_without_a_page_gets_one_in_the_looks_of_the_house_and_a_program_json() {
    let house = House::open().await;
    let ask = async |method: &str, path: &str, accept: &str| {
        let request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
        let answer = house.send(request.header("sec-fetch-site", "same-origin").body(Body::empty()).expect("a request")).await;
        let kind = answer.headers[header::CONTENT_TYPE].to_str().expect("text").to_owned();
        (answer.status, kind, answer.text)
    };
    const BROWSER: &str = "text/html,application/xhtml+xml,*/*;q=0.8";
    for path in ["/evnts", "/no/such/page", "/%3Cscript%3E"] {
        let (status, kind, text) = ask("GET", path, BROWSER).await;
        assert_eq!((status, kind.as_str()), (StatusCode::NOT_FOUND, "text/html; charset=utf-8"), "{path}: {text}");
        let root = super::link::root(path);
        assert!(text.contains("Page not found") && text.contains(&format!("href=\"{root}events\"")), "{path}: {text}");
        assert!(!text.contains("<script>"), "{text}");
    }
    let (status, kind, text) = ask("DELETE", "/events", BROWSER).await;
    assert_eq!((status, kind.as_str()), (StatusCode::METHOD_NOT_ALLOWED, "text/html; charset=utf-8"), "{text}");
    assert!(text.contains("<h1>Page not available</h1>"), "{text}");
    assert!(text.contains("This request is not allowed at this address. Nothing was changed."), "{text}");
    for (path, accept) in [("/evnts", "*/*"), ("/evnts", "application/json"), ("/v1/evnts", BROWSER)] {
        let (status, kind, text) = ask("GET", path, accept).await;
        assert_eq!((status, kind.as_str()), (StatusCode::NOT_FOUND, "application/problem+json"), "{path} {accept}: {text}");
    }

    let (_, viewer) = Token::generate("ada", Role::Viewer, None);
    let house = House::with(HttpConfig { tokens: vec![viewer], ..HttpConfig::default() }).await;
    let answer =
        house.send(Request::get("/evnts").header(header::ACCEPT, BROWSER).body(Body::empty()).expect("a request")).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert!(!answer.text.contains("<nav") && answer.text.contains("Page not found"), "nothing of the table: {}", answer.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn assets_are_found_where_the_pages_look_for_them_and_may_be_kept() {
    let house = House::open().await;
    let page = house.get("/").await.text;
    for ending in [".js", ".svg"] {
        let path = page.split('"').find(|part| part.starts_with("./assets/") && part.ends_with(ending)).expect("it is linked");
        let asset = house.get(&path[1..]).await;
        assert_eq!(asset.status, StatusCode::OK, "{path}");
        assert!(asset.headers[header::CACHE_CONTROL].to_str().unwrap().contains("immutable"), "{path}");
        assert!(asset.text.len() < 40_000);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_are_replayed_only_with_a_reason_and_only_as_many_as_were_shown() {
    let house = House::open().await;
    house.write("Paid", 3, Status::Dead).await;
    let before = house.get("/dead/discard?event_type=Paid").await.text;
    let field =
        |name: &str| before.split(&format!("name=\"{name}\" value=\"")).nth(1).unwrap().split('"').next().unwrap().to_owned();
    let form = |count: &str, reason: &str| {
        format!("event_type=Paid&dead_before={}&count={count}&reason={reason}", field("dead_before").replace(':', "%3A"))
    };
    assert_eq!(field("count"), "3");

    assert_eq!(house.post("/dead/discard", &form("3", "")).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    let changed = house.post("/dead/discard", &form("2", "test")).await;
    assert_eq!((changed.status, house.dead().await), (StatusCode::CONFLICT, 3), "{}", changed.text);
    let cross =
        Request::post("/dead/discard").header("sec-fetch-site", "cross-site").body(Body::from(form("3", "test"))).unwrap();
    assert_eq!((house.send(cross).await.status, house.dead().await), (StatusCode::FORBIDDEN, 3));

    let begun = house.post("/dead/discard", &form("3", "gone+for+good")).await;
    assert_eq!(begun.status, StatusCode::SEE_OTHER, "{}", begun.text);
    let job = begun.headers[header::LOCATION].to_str().expect("text").trim_start_matches("..").to_owned();
    for _ in 0..600 {
        if house.get(&job).await.text.contains("3 events were discarded.") {
            let audit = house.get("/audit").await.text;
            assert!(audit.contains("gone for good") && house.dead().await == 0, "{audit}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the discard never ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_found_again_and_a_fifth_is_told_which_four_are_running() {
    let house = House::open().await;
    house.write("Paid", 100, Status::Dead).await;
    // As many as match now: those that are running take one a second away.
    let begin = async |speed: &str| loop {
        let preview = house.get("/dead/discard").await.text;
        let field = |name: &str| preview.split(&format!("name=\"{name}\" value=\"")).nth(1)?.split('"').next();
        let [dead_before, count] = ["dead_before", "count"].map(|name| field(name).expect("a field").replace(':', "%3A"));
        let form = format!("dead_before={dead_before}&count={count}&reason=test&per_second={speed}");
        let answer = house.post("/dead/discard", &form).await;
        if answer.status != StatusCode::CONFLICT || answer.text.contains("Four replays") {
            return answer;
        }
    };
    assert_eq!(begin("10%2Fs").await.status, StatusCode::UNPROCESSABLE_ENTITY, "no number is not as fast as possible");
    assert!(!house.get("/dead").await.text.contains("Running on this host"));

    let mut jobs = Vec::new();
    for _ in 0..4 {
        let begun = begin("1").await;
        assert_eq!(begun.status, StatusCode::SEE_OTHER, "{}", begun.text);
        jobs.push(begun.headers[header::LOCATION].to_str().expect("text").trim_start_matches("../").to_owned());
    }
    let fifth = begin("1").await;
    let list = house.get("/dead").await.text;

    assert_eq!(fifth.status, StatusCode::CONFLICT);
    for job in &jobs {
        assert!(fifth.text.contains(&format!("{job}\"")) && list.contains(&format!("{job}\"")), "{job}: {list}");
        assert_eq!(house.post(&format!("/{job}/stop"), "").await.status, StatusCode::SEE_OTHER);
    }
    for _ in 0..600 {
        if !house.get("/dead").await.text.contains("Running on this host") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("they were stopped, and never ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_discard_of_many_beside_replays_of_the_same_events_leaves_none_dead() {
    let house = House::open().await;
    house.write("Paid", 600, Status::Dead).await;
    // What is replayed must not die again.
    house.outbox.listeners().remove(crate::listener::Owner::Native);
    let host = crate::http::host::Host::new(&house.outbox, HttpConfig { open: true, ..HttpConfig::default() });
    let (jobs, filter) = (super::jobs::Jobs::default(), DeadFilter::default());
    let audit = Audit { actor: "tester".to_owned(), reason: None };
    let order = super::jobs::Order {
        action: super::jobs::Action::Discard,
        of: String::new(),
        total: 600,
        filter: filter.clone(),
        per_second: None,
        audit: audit.clone(),
    };

    let job = jobs.get(jobs.begin(order, host).expect("there is room")).expect("it has begun");
    let mut replayed = 0;
    while job.ended().is_none() {
        replayed += house.outbox.store().replay_batch(&filter, 100, &audit).await.expect("replays");
        tokio::task::yield_now().await;
    }

    assert_eq!((job.ended(), house.dead().await), (Some(&super::jobs::Ended::Whole), 0));
    assert_eq!(job.done() + replayed, 600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_rests_ends_when_it_is_stopped_and_when_the_outbox_stops() {
    let house = House::open().await;
    house.write("Paid", 3, Status::Dead).await;
    let host = crate::http::host::Host::new(&house.outbox, HttpConfig { open: true, ..HttpConfig::default() });
    let jobs = super::jobs::Jobs::default();
    let begin = || {
        let order = super::jobs::Order {
            action: super::jobs::Action::Discard,
            of: String::new(),
            total: 3,
            filter: DeadFilter { event_type: Some("Paid".to_owned()), ..DeadFilter::default() },
            per_second: Some(1),
            audit: Audit { actor: "tester".to_owned(), reason: None },
        };
        jobs.get(jobs.begin(order, host.clone()).expect("there is room")).expect("it has begun")
    };
    let ended = async |job: &super::jobs::Job| {
        while job.ended().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        job.ended().cloned()
    };

    let first = begin();
    while first.done() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    first.stop();
    assert_eq!(ended(&first).await, Some(super::jobs::Ended::Stopped));
    let second = begin();
    while second.done() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    house.outbox.shutdown().await;
    assert_eq!(ended(&second).await, Some(super::jobs::Ended::Stopped));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_event_is_replayed_and_a_route_paused_from_their_pages() {
    let house = House::open().await;
    let ids = house.write("Paid", 1, Status::Dead).await;
    let route = "aggregate_type=Order&event_type=Paid&reason=the+bank+is+down";
    assert_eq!(house.get("/routes/pause?aggregate_type=Order&event_type=Paid").await.status, StatusCode::OK);
    assert_eq!(house.post("/routes/pause", route).await.status, StatusCode::SEE_OTHER);
    assert!(house.get("/").await.text.contains("Route Order/Paid was paused"));
    assert_eq!(house.post("/routes/pause", route).await.status, StatusCode::CONFLICT, "it is paused already");

    let replay = format!("/events/{}/replay", ids[0]);
    assert_eq!(house.get(&replay).await.status, StatusCode::METHOD_NOT_ALLOWED, "nothing changes by looking");
    assert_eq!(house.post(&replay, "").await.status, StatusCode::UNPROCESSABLE_ENTITY);
    let done = house.post(&replay, "reason=mended").await;
    assert_eq!(done.headers[header::LOCATION].to_str().unwrap(), format!("../../events/{}?did=replay", ids[0]));
    assert!(house.get(&format!("/events/{}", ids[0])).await.text.contains("replay by local: mended"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_tokens_only_a_session_looks_and_a_viewer_sees_no_payload_and_does_nothing() {
    let (secret, viewer) = Token::generate("ada", Role::Viewer, None);
    let house = House::with(HttpConfig { tokens: vec![viewer], ..HttpConfig::default() }).await;
    let ids = house.write("Paid", 1, Status::Dead).await;
    let away = house.get("/dead?event_type=Paid").await;
    assert_eq!(away.status, StatusCode::SEE_OTHER);
    assert_eq!(away.headers[header::LOCATION], "./login?back=dead%3Fevent_type%3DPaid");
    assert!(house.get("/login").await.text.contains("name=\"token\""));
    assert_eq!(house.post("/login", "token=obx_wrong&back=dead").await.status, StatusCode::FORBIDDEN);

    let entered = house.post("/login", &format!("token={secret}&back=dead")).await;
    assert_eq!((entered.status, entered.headers[header::LOCATION].to_str().unwrap()), (StatusCode::SEE_OTHER, "./dead"));
    let cookie = entered.headers[header::SET_COOKIE].to_str().unwrap();
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    let session = cookie.split(';').next().unwrap().to_owned();
    let with = |request: axum::http::request::Builder| {
        request.header(header::COOKIE, session.clone()).header("sec-fetch-site", "same-origin")
    };

    let event = format!("/events/{}", ids[0]);
    let page = house.send(with(Request::get(format!("{event}?payload=show"))).body(Body::empty()).unwrap()).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(
        page.text.contains("may not see payloads") && !page.text.contains("x-evil") && !page.text.contains("/replay"),
        "{}",
        page.text
    );
    let replay = house.send(with(Request::post(format!("{event}/replay"))).body(Body::from("reason=x")).unwrap()).await;
    assert_eq!((replay.status, house.dead().await), (StatusCode::FORBIDDEN, 1));
    for path in ["/dead/replay", "/routes/pause?aggregate_type=Order&event_type=Paid"] {
        let answer = house.send(with(Request::get(path)).body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_gone_leaves_what_was_known_with_its_age() {
    let house = House::open().await;
    house.write("Paid", 2, Status::Dead).await;
    house.shows("2 events are dead").await;
    house.outbox.store().close().await;
    for _ in 0..200 {
        let text = house.get("/").await.text;
        if text.contains("The database has not answered since") {
            assert!(text.contains("what you see is from") && text.contains("2 events are dead"), "{text}");
            assert_eq!(house.get("/events").await.status, StatusCode::SERVICE_UNAVAILABLE);
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it was never said");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_a_path_that_ends_with_a_slash_every_link_of_the_overview_leads_to_a_page() {
    let house = House::open().await;
    let house = House { router: Router::new().nest("/outbox/", house.router.clone()), ..house };

    let overview = house.get("/outbox/").await;

    assert_eq!(overview.status, StatusCode::OK);
    let links: Vec<&str> = overview.text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(links.len() > 7, "{links:?}");
    for link in links.into_iter().filter(|link| !link.starts_with('#')) {
        let path = link.strip_prefix("./").expect("relative to the page");
        assert_eq!(house.get(&format!("/outbox/{path}")).await.status, StatusCode::OK, "{link}");
    }
}
