//! What pages show, and to whom.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_there_is_not_is_refused_with_the_list_of_those_that_there_are() {
    let pages = Dashboard::open().await;

    let refused = pages.get("/audit?actor=anna&action=nonsense").await;

    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text);
    assert!(
        refused.text.contains("Choose one from the list.") && !refused.text.contains("nonsense</option>"),
        "{}",
        refused.text
    );
    assert!(refused.text.contains("<option value=\"replay\">") && refused.text.contains("value=\"anna\""), "{}", refused.text);
    assert!(refused.text.contains("href=\"./audit\""), "back to the whole log: {}", refused.text);
}

const PAGES: [&str; 9] = ["/", "/events", "/dead", "/routes", "/plugins", "/sinks", "/hosts", "/audit", "/dead/replay"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_is_whole_small_and_runs_no_script_of_a_writer() {
    let pages = Dashboard::open().await;
    let ids = pages.write("Paid", 120, Status::Dead).await;
    pages.shows("120 events are dead").await;
    let event = format!("/events/{}?payload=show", ids[0]);
    for path in PAGES.into_iter().chain([event.as_str(), "/events?status=dead&error=%3Cscript%3E", "/search?q=nothing"]) {
        let answer = pages.get(path).await;
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
    assert!(pages.get(&event).await.text.contains("&lt;script&gt;alert(1)"));
    let hidden = pages.get(&format!("/events/{}", ids[0])).await.text;
    assert!(hidden.contains("Show the payload") && !hidden.contains("<pre tabindex"), "{hidden}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_script_is_sent_the_parts_that_changed_and_nothing_else() {
    let pages = Dashboard::open().await;
    let ids = pages.write("Paid", 60, Status::Dead).await;
    pages.shows("60 events are dead").await;
    let ask = async |path: &str, has: &str| {
        let request = Request::get(path).header("outbox-has", has).body(Body::empty()).expect("a request");
        pages.send(request).await
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
    let pages = Dashboard::open().await;
    pages.write("Placed", 3, Status::Done).await;
    let list = pages.get("/events?since=1h&until=0s&status=done").await;
    assert_eq!((list.status, list.text.matches("class=\"row\"").count()), (StatusCode::OK, 3), "{}", list.text);
    assert_eq!(pages.get("/events?until=1h").await.text.matches("class=\"row\"").count(), 0);
    assert_eq!(pages.get("/events?status=claimed").await.text.matches("class=\"row\"").count(), 0);
    for (query, said) in [
        ("since=yesterday", "Written after is “yesterday”; write a span like 2h"),
        ("header=channel", "The header is “channel”; write key=value."),
        ("aggregate_id=a%00", "contains a NUL"),
    ] {
        let answer = pages.get(&format!("/events?{query}")).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{query}");
        assert!(answer.text.contains(said) && !answer.text.contains("class=\"row\""), "{query}: {}", answer.text);
    }
    assert_eq!(pages.get("/dead?aggregate_id=a%00").await.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_its_listener_gave_up_at_once_failed_once_in_the_list_and_on_its_page() {
    let pages = Dashboard::open().await;
    let ids = pages.write("Paid", 1, Status::Dead).await;
    let list = pages.get("/events?status=dead").await.text;
    assert!(list.contains("data-name=\"failed\">1</td>"), "{list}");
    let page = pages.get(&format!("/events/{}", ids[0])).await.text;
    for part in ["It was given up by its listener at ", ", after 1 failed attempt: the bank said", "1 failed attempt."] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(page.contains("Attempt 1 (the event was given up): "), "{page}");
    let routes = pages.get("/routes").await.text;
    assert!(routes.contains("native code") && routes.contains("</span> serving</span>"), "{routes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_table_is_no_error_and_says_how_to_begin() {
    let pages = Dashboard::open().await;
    assert!(pages.get("/").await.text.contains("All well"));
    assert!(pages.get("/events").await.text.contains("outbox event emit"));
    assert!(pages.get("/dead").await.text.contains("No dead events."));
    assert_eq!(pages.get("/events/01ARZ3NDEKTSV4RRFFQ69G5FAV").await.status, StatusCode::NOT_FOUND);
    assert_eq!(pages.get("/dead/burn").await.status, StatusCode::NOT_FOUND);
    assert_eq!(pages.get("/jobs/1").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_at_an_address_without_a_page_gets_one_in_the_style_of_the_others_and_a_program_json() {
    let pages = Dashboard::open().await;
    let ask = async |method: &str, path: &str, accept: &str| {
        let request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
        let answer = pages.send(request.header("sec-fetch-site", "same-origin").body(Body::empty()).expect("a request")).await;
        let kind = answer.headers[header::CONTENT_TYPE].to_str().expect("text").to_owned();
        (answer.status, kind, answer.text)
    };
    const BROWSER: &str = "text/html,application/xhtml+xml,*/*;q=0.8";
    for path in ["/evnts", "/no/such/page", "/%3Cscript%3E"] {
        let (status, kind, text) = ask("GET", path, BROWSER).await;
        assert_eq!((status, kind.as_str()), (StatusCode::NOT_FOUND, "text/html; charset=utf-8"), "{path}: {text}");
        let root = crate::pages::link::root(path);
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
    let pages = Dashboard::with(HttpConfig { tokens: vec![viewer], ..HttpConfig::default() }).await;
    let answer =
        pages.send(Request::get("/evnts").header(header::ACCEPT, BROWSER).body(Body::empty()).expect("a request")).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert!(!answer.text.contains("<nav") && answer.text.contains("Page not found"), "nothing of the table: {}", answer.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn assets_are_found_where_the_pages_look_for_them_and_may_be_kept() {
    let pages = Dashboard::open().await;
    let page = pages.get("/").await.text;
    for ending in [".js", ".svg"] {
        let path = page.split('"').find(|part| part.starts_with("./assets/") && part.ends_with(ending)).expect("it is linked");
        let asset = pages.get(&path[1..]).await;
        assert_eq!(asset.status, StatusCode::OK, "{path}");
        assert!(asset.headers[header::CACHE_CONTROL].to_str().unwrap().contains("immutable"), "{path}");
        assert!(asset.text.len() < 40_000);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_tokens_only_a_session_looks_and_a_viewer_sees_no_payload_and_does_nothing() {
    let (secret, viewer) = Token::generate("ada", Role::Viewer, None);
    let pages = Dashboard::with(HttpConfig { tokens: vec![viewer], ..HttpConfig::default() }).await;
    let ids = pages.write("Paid", 1, Status::Dead).await;
    let away = pages.get("/dead?event_type=Paid").await;
    assert_eq!(away.status, StatusCode::SEE_OTHER);
    assert_eq!(away.headers[header::LOCATION], "./login?back=dead%3Fevent_type%3DPaid");
    assert!(pages.get("/login").await.text.contains("name=\"token\""));
    assert_eq!(pages.post("/login", "token=obx_wrong&back=dead").await.status, StatusCode::FORBIDDEN);

    let entered = pages.post("/login", &format!("token={secret}&back=dead")).await;
    assert_eq!((entered.status, entered.headers[header::LOCATION].to_str().unwrap()), (StatusCode::SEE_OTHER, "./dead"));
    let cookie = entered.headers[header::SET_COOKIE].to_str().unwrap();
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    let session = cookie.split(';').next().unwrap().to_owned();
    let with = |request: axum::http::request::Builder| {
        request.header(header::COOKIE, session.clone()).header("sec-fetch-site", "same-origin")
    };

    let event = format!("/events/{}", ids[0]);
    let page = pages.send(with(Request::get(format!("{event}?payload=show"))).body(Body::empty()).unwrap()).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(
        page.text.contains("may not see payloads") && !page.text.contains("x-evil") && !page.text.contains("/replay"),
        "{}",
        page.text
    );
    let replay = pages.send(with(Request::post(format!("{event}/replay"))).body(Body::from("reason=x")).unwrap()).await;
    assert_eq!((replay.status, pages.dead().await), (StatusCode::FORBIDDEN, 1));
    for path in ["/dead/replay", "/routes/pause?aggregate_type=Order&event_type=Paid"] {
        let answer = pages.send(with(Request::get(path)).body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_gone_leaves_what_was_known_with_its_age() {
    let pages = Dashboard::open().await;
    pages.write("Paid", 2, Status::Dead).await;
    pages.shows("2 events are dead").await;
    pages.outbox.store().close().await;

    // The first to notice is told as much as all who come later.
    for (path, status) in
        [("/events", StatusCode::SERVICE_UNAVAILABLE), ("/", StatusCode::OK), ("/audit", StatusCode::SERVICE_UNAVAILABLE)]
    {
        let Answer { status: answered, text, .. } = pages.get(path).await;
        assert_eq!(answered, status, "{path}: {text}");
        assert!(text.contains("The database does not answer; what you see is from"), "{path}: {text}");
        assert_eq!(text.contains("2 events are dead"), path == "/", "{path}: the worst comes first: {text}");
        assert!(!text.contains("has been changed yet"), "{path}: the page cannot know: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overview_lists_recent_changes_also_while_the_database_does_not_answer() {
    let pages = Dashboard::open().await;
    pages.shows("Show the whole audit log").await;
    pages.outbox.store().close().await;

    pages.shows("The database does not answer; what you see is from").await;

    let text = pages.get("/").await.text;
    assert!(text.contains("Recent changes") && text.contains("start host"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_a_path_that_ends_with_a_slash_every_link_of_the_overview_leads_to_a_page() {
    let pages = Dashboard::open().await;
    let pages = Dashboard { router: Router::new().nest("/outbox/", pages.router.clone()), ..pages };

    let overview = pages.get("/outbox/").await;

    assert_eq!(overview.status, StatusCode::OK);
    let links: Vec<&str> = overview.text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(links.len() > 7, "{links:?}");
    for link in links.into_iter().filter(|link| !link.starts_with('#')) {
        let path = link.strip_prefix("./").expect("relative to the page");
        assert_eq!(pages.get(&format!("/outbox/{path}")).await.status, StatusCode::OK, "{link}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_event_that_purges_do_not_delete_is_named_until_they_can() {
    let config = HttpConfig { open: true, ..HttpConfig::default() };
    let purge = PurgeConfig { retention: Duration::ZERO, interval: Duration::from_millis(100), ..PurgeConfig::default() };
    let pages = Dashboard::purging(config, purge).await;
    pages.sql("CREATE TRIGGER held BEFORE DELETE ON outbox_event BEGIN SELECT RAISE(ABORT, 'archived'); END").await;

    let id = pages.write("Placed", 1, Status::Done).await[0];
    pages.shows(&format!("Purges do not delete old events: the oldest, {id}, finished ")).await;

    pages.sql("DROP TRIGGER held").await;
    pages.shows("All well").await;
}
