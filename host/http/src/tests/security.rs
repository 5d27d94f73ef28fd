//! What must never happen.

use outbox_event::time::{Timestamp, system_clock};

use super::*;

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_reaches_as_far_as_it_says_and_no_further() {
    let (served, [viewer, operator, admin]) = Served::with_tokens().await;
    let event = br#"{"event_id":"e","event_type":"Broken","aggregate_type":"Order","payload":{"secret":"of the shop"}}"#;
    assert_eq!(served.send("POST /v1/events", &bearer(&viewer), event).await.problem(), "forbidden");
    assert_eq!(served.send("POST /v1/events", &bearer(&operator), event).await.status, 201);
    let dead = async { while served.send("GET /v1/dead/e", &bearer(&viewer), b"").await.status != 200 {} };
    tokio::time::timeout(PATIENCE, dead).await.expect("it dies");

    let seen = |token: String| {
        let served = &served;
        async move { served.send("GET /v1/events/e", &bearer(&token), b"").await }
    };
    let of_viewer = seen(viewer.clone()).await;
    assert_eq!(of_viewer.json()["payload_hidden"], true);
    assert!(!of_viewer.text.contains("of the shop"), "{}", of_viewer.text);
    assert!(seen(operator.clone()).await.text.contains("of the shop"));

    for path in [
        "/v1/dead/e/replay",
        "/v1/dead/e/skip",
        "/v1/dead/e/discard",
        "/v1/dead/replay",
        "/v1/replay",
        "/v1/routes/Order/X/pause",
        "/v1/routes/Order/X/resume",
        "/v1/purge",
    ] {
        let answer = served.send(&format!("POST {path}"), &bearer(&viewer), b"{}").await;
        assert_eq!((answer.status, answer.problem().as_str()), (403, "forbidden"), "a viewer: {path}");
    }
    assert_eq!(served.send("POST /v1/purge", &bearer(&operator), b"{}").await.problem(), "forbidden");
    assert_eq!(served.send("POST /v1/purge", &bearer(&admin), br#"{"expected_count":0}"#).await.status, 200);
    for name in ["viewer", "operator", "admin"] {
        let done = served.send(&format!("GET /v1/audit?actor={name}"), &bearer(&viewer), b"").await.json();
        assert_eq!(done, Value::Array(Vec::new()), "nothing was done by {name}");
    }

    let replay = served.send("POST /v1/dead/e/replay", &bearer(&operator), br#"{"reason":"mended"}"#).await;
    assert_eq!(replay.status, 200, "{}", replay.text);
    let audit = served.send("GET /v1/audit", &bearer(&viewer), b"").await.json();
    assert_eq!(
        (&audit[0]["actor"], &audit[0]["action"], &audit[0]["reason"]),
        (&"operator".into(), &"replay".into(), &"mended".into())
    );
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_valid_token_nothing_is_told_but_that_the_process_lives() {
    let now = system_clock().now();
    let (old, expired) = Token::generate("old", Role::Admin, Some(Timestamp::from_micros(now.as_micros() - 1)));
    let (good, known) = Token::generate("good", Role::Viewer, None);
    let served = Served::with(HttpConfig { tokens: vec![expired, known.clone()], ..HttpConfig::default() }).await;
    let stats = |headers: String| {
        let served = &served;
        async move { served.send("GET /v1/stats", &headers, b"").await }
    };
    assert_eq!(stats(bearer(&good)).await.status, 200);
    let session = served.log_in(&good).await.expect("let in");
    assert_eq!(stats(session).await.status, 200, "the session of a browser");
    for (headers, code) in [
        (String::new(), "unauthorized"),
        (bearer(&good[..good.len() - 1]), "unauthorized"),
        (bearer(&known.sha256.to_string()), "unauthorized"),
        (format!("Authorization: Basic {good}\r\n"), "unauthorized"),
        (format!("Cookie: outbox_session={good}\r\n"), "unauthorized"),
        (bearer(&old), "token_expired"),
    ] {
        let answer = stats(headers.clone()).await;
        assert_eq!((answer.status, answer.problem().as_str()), (401, code), "{headers}");
        assert!(answer.header("www-authenticate").starts_with("Bearer"), "{headers}");
    }
    for path in [
        "/v1/events",
        "/v1/events/e",
        "/v1/dead",
        "/v1/dead/count",
        "/v1/dead/e",
        "/v1/plugins",
        "/v1/routes",
        "/v1/sinks",
        "/v1/stats",
        "/v1/stream",
        "/v1/nodes",
        "/v1/audit",
        "/metrics",
    ] {
        assert_eq!(served.get(path).await.status, 401, "{path}");
    }
    assert_eq!((served.get("/livez").await.status, served.get("/livez").await.text.as_str()), (200, "ok\n"));
    let ready = served.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["ready"]), (200, &Value::Bool(true)), "a probe brings no token");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_another_site_can_neither_change_nor_read_anything() {
    let served = Served::start().await;
    let event = br#"{"event_type":"X","payload":1}"#;
    for headers in [
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Origin: https://evil.example\r\n",
        "Origin: null\r\n",
        "Origin: http://localhost:9\r\n",
    ] {
        let headers = format!("{headers}Content-Type: application/json\r\n");
        let answer = served.send("POST /v1/events", &headers, event).await;
        assert_eq!((answer.status, answer.problem().as_str()), (403, "cross_site"), "{headers}");
    }
    for host in ["Host: evil.example\r\n", "Host: localhost.evil.example\r\n", "Host: 10.0.0.1:80\r\n", "Host: \r\n"] {
        for line in ["GET /v1/stats", "GET /livez", "POST /v1/events"] {
            let answer = served.send(line, &format!("{host}Content-Type: application/json\r\n"), event).await;
            assert_eq!((answer.status, answer.problem().as_str()), (403, "foreign_host"), "{line} {host}");
        }
    }
    let answer = served.send("GET http://evil.example/v1/stats", "Host: localhost\r\n", b"").await;
    assert_eq!(answer.status, 403, "a request as to a proxy: {}", answer.text);
    let answer = served.send("GET /v1/stats", "Host: localhost\r\nHost: evil.example\r\n", b"").await;
    assert_eq!(answer.status, 400, "two hosts: {}", answer.text);
    assert_eq!(served.get("/v1/events").await.json()["events"], Value::Array(Vec::new()));

    let answer =
        served.send("OPTIONS /v1/events", "Origin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n", b"").await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (405, ""), "no other origin is allowed");
    let (text, token) = Token::generate("a", Role::Viewer, None);
    let config = HttpConfig { allowed_hosts: vec!["shop.example".to_owned()], tokens: vec![token], ..HttpConfig::default() };
    let named = Served::with(config).await;
    let headers = format!("Host: shop.example\r\nX-Forwarded-For: 192.0.2.1\r\nAuthorization: Bearer {text}\r\n");
    assert_eq!(named.send("GET /v1/stats", &headers, b"").await.status, 200);
    for passed_on in ["X-Forwarded-For: 192.0.2.1\r\n", "Forwarded: for=192.0.2.1\r\n", "Via: 1.1 proxy\r\n"] {
        let answer = served.send("GET /v1/stats", passed_on, b"").await;
        assert_eq!((answer.status, answer.problem().as_str()), (401, "unauthorized"), "{passed_on}: {}", answer.text);
    }
    served.stop().await;
    named.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_carries_the_headers_that_keep_browsers_in_bounds() {
    let served = Served::start().await;
    for (line, status) in [
        ("GET /v1/stats", 200),
        ("GET /nowhere", 404),
        ("DELETE /v1/stats", 405),
        ("GET /livez", 200),
        ("GET /v1/events?x=1", 422),
    ] {
        let answer = served.send(line, "", b"").await;
        assert_eq!(answer.status, status, "{line}");
        assert!(answer.header("content-security-policy").starts_with("default-src 'self'"), "{line}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(answer.header(name), value, "{line}");
        }
        if status >= 400 {
            answer.problem();
        }
    }
    served.stop().await;
}

#[tokio::test]
async fn an_address_that_others_can_reach_is_refused_without_a_token() {
    let listen = Listen::At(([0, 0, 0, 0], 0).into());
    let refused = Server::bind(HttpConfig { listen, ..HttpConfig::default() }).await.expect_err("refused");
    assert!(refused.to_string().contains("no token is configured"), "{refused}");
    let (_, token) = Token::generate("a", Role::Viewer, None);
    let bound = Server::bind(HttpConfig { listen, tokens: vec![token], ..HttpConfig::default() }).await.expect("binds");
    let taken = Listen::At(bound.as_ref().expect("is on").address());
    let (_, token) = Token::generate("a", Role::Viewer, None);
    let error =
        Server::bind(HttpConfig { listen: taken, tokens: vec![token], ..HttpConfig::default() }).await.expect_err("taken");
    assert!(error.is_taken() && error.to_string().contains("another program listens there"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_has_not_started_says_so() {
    let config = HttpConfig { listen: Listen::At(([127, 0, 0, 1], 0).into()), ..HttpConfig::default() };
    let server = Server::bind(config).await.expect("binds").expect("is on");
    for (path, status) in [("/livez", 200), ("/v1/stats", 503)] {
        let mut stream = TcpStream::connect(server.address()).await.expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = Answer::read(&mut stream).await;
        assert_eq!(answer.status, status, "{path}");
        if status == 503 {
            assert_eq!(answer.problem(), "starting");
        }
    }
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_when_its_browser_logs_out_and_the_token_never_comes_back() {
    let (served, [viewer, operator, _]) = Served::with_tokens().await;
    let stats = async |headers: &str| served.send("GET /v1/stats", headers, b"").await.status;
    let (first, second) = (served.log_in(&viewer).await.expect("in"), served.log_in(&viewer).await.expect("in"));
    assert_ne!(first, second);
    assert!(!first.contains(&viewer), "{first}");
    assert_eq!((stats(&first).await, stats(&second).await), (200, 200));

    let out = served.send("POST /logout", &first, b"").await;
    assert!(out.header("set-cookie").contains("outbox_session=; ") && out.header("set-cookie").contains("Max-Age=0"));

    assert_eq!((stats(&first).await, stats(&second).await), (401, 200), "the other browser stays");
    assert_eq!(served.log_in("obx_wrong").await, None);
    let session = served.log_in(&operator).await.expect("in");
    let forged = format!("{session}Sec-Fetch-Site: cross-site\r\nContent-Type: application/json\r\n");
    assert_eq!(served.send("POST /v1/replay", &forged, b"{}").await.problem(), "cross_site");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_many_tokens_are_refused_the_audit_has_a_line_of_them() {
    let (served, [viewer, ..]) = Served::with_tokens().await;
    for number in 0..50 {
        let wrong = bearer(&format!("obx_{number}"));
        assert_eq!(served.send("GET /v1/stats", &wrong, b"").await.status, 401);
    }
    assert_eq!(served.log_in("obx_wrong").await, None);
    // Without a token nothing was refused.
    assert_eq!(served.get("/v1/stats").await.status, 401);

    let audit = async {
        loop {
            let audit = served.send("GET /v1/audit?actor=unknown", &bearer(&viewer), b"").await.json();
            if audit[0].is_object() {
                return audit;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let audit = tokio::time::timeout(PATIENCE, audit).await.expect("it is noted");
    assert_eq!(audit.as_array().expect("a list").len(), 1, "{audit}");
    let note = &audit[0];
    assert_eq!((&note["action"], &note["actor"]), (&"refused_login".into(), &"unknown".into()));
    assert_eq!(note["selector"]["last_from"], "127.0.0.1", "{note}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_tells_all_that_is_wrong_with_its_configuration() {
    let served = Served::start().await;
    let (_, token) = Token::generate("", Role::Viewer, None);
    let config = HttpConfig { max_events: 0, body_timeout: Duration::ZERO, tokens: vec![token], ..HttpConfig::default() };
    let faults = super::super::router(&served.outbox, config).expect_err("refused").0;
    assert_eq!(faults.len(), 3, "{faults:?}");
    for (fault, name) in faults.iter().zip(["http.max_events", "http.body_timeout", "http.tokens"]) {
        assert!(fault.starts_with(name), "{faults:?}");
    }
    assert!(super::super::router(&served.outbox, HttpConfig { open: true, ..HttpConfig::default() }).is_ok());
    served.stop().await;
}
