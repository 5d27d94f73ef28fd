//! Looking at events and hosts.

use outbox_store::AuditFilter;
use serde_json::json;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_filtered_and_paged() {
    let served = Served::start().await;
    let event = |number: u32| {
        json!({
            "event_id": format!("e{number}"), "event_type": "OrderPlaced", "aggregate_type": "Order", "payload": number,
            "aggregate_id": (number % 2).to_string(), "tenant_id": "t", "headers": {"source": if number < 3 { "shop" } else { "web" }}
        })
    };
    let batch = Value::Array((0..7).map(event).collect());
    assert_eq!(served.post("/v1/events", &batch.to_string()).await.status, 201);
    for number in 0..7 {
        served.wait_for(&format!("e{number}"), "DONE").await;
    }

    let (mut ids, mut after) = (Vec::new(), String::new());
    loop {
        let page = served.get(&format!("/v1/events?status=done&type=OrderPlaced&tenant=t&limit=3{after}")).await.json();
        ids.extend(page["events"].as_array().unwrap().iter().map(|row| row["event_id"].as_str().unwrap().to_owned()));
        assert!(page["events"].as_array().unwrap().iter().all(|row| row.get("payload").is_none()), "{page}");
        match page["next"].as_u64() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(ids, ["e0", "e1", "e2", "e3", "e4", "e5", "e6"]);
    let count = |query: &'static str| {
        let served = &served;
        async move { served.get(&format!("/v1/events?{query}")).await.json()["events"].as_array().unwrap().len() }
    };
    assert_eq!((count("header.source=shop").await, count("aggregate_id=1").await, count("status=dead").await), (3, 3, 0));
    let newest = served.get("/v1/events?newest_first=true&limit=1").await.json();
    assert_eq!(newest["events"][0]["event_id"], "e6");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_that_is_not_known_or_not_valid_never_means_everything() {
    let served = Served::start().await;
    for (query, field) in [
        ("typ=X", "typ"),
        ("status=finished", "status"),
        ("limit=201", "limit"),
        ("limit=0", "limit"),
        ("after=x", "after"),
        ("after=18446744073709551616", "after"),
        ("type=", "type"),
        ("type=A&type=B", "type"),
        ("newest_first=maybe", "newest_first"),
    ] {
        let answer = served.get(&format!("/v1/events?{query}")).await;
        assert_eq!((answer.status, &answer.json()["errors"][0]["field"]), (422, &json!(field)), "{query}: {}", answer.text);
    }
    for path in [
        "/v1/stats?x=1",
        "/v1/nodes?x=1",
        "/v1/routes?x=1",
        "/v1/plugins?x=1",
        "/v1/sinks?x=1",
        "/v1/audit?limit=999",
        "/v1/dead?since=soon",
    ] {
        assert_eq!(served.get(path).await.status, 422, "{path}");
    }
    let misspelt = served.get("/v1/audit?action=replya").await;
    assert_eq!((misspelt.status, &misspelt.json()["errors"][0]["field"]), (422, &json!("action")), "{}", misspelt.text);
    for action in AuditFilter::ACTIONS {
        let known = served.get(&format!("/v1/audit?action={action}")).await;
        assert!(known.status == 200 && misspelt.text.contains(action), "{action}: {} {}", known.text, misspelt.text);
    }
    assert_eq!(served.get("/v1/events/no%20id").await.problem(), "not_found");
    assert_eq!(served.get("/v1/events/%ff").await.problem(), "not_found");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_routes_plugins_and_counts_are_told() {
    let served = Served::start().await;
    let looking = async {
        while served.get("/v1/nodes").await.json()[0]["alive"] != true {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("the host tells that it lives");
    let nodes = served.get("/v1/nodes").await.json();
    assert_eq!((&nodes[0]["owner"], &nodes[0]["mode"]), (&json!(served.outbox.owner().as_str()), &json!("single_node")));
    let routes = served.get("/v1/routes").await.json();
    let names: Vec<&str> =
        routes["routes"].as_array().unwrap().iter().map(|route| route["event_type"].as_str().unwrap()).collect();
    assert_eq!(names, ["Broken", "OrderPlaced"]);
    assert_eq!(served.get("/v1/plugins").await.json(), json!([]));
    assert_eq!(served.get("/v1/sinks").await.json(), json!([]));
    let stats = served.get("/v1/stats").await.json();
    for name in ["new", "retry", "done", "dead", "parked", "blocked", "in_flight"] {
        assert_eq!(stats[name], 0, "{name}");
    }
    assert_eq!(stats["oldest_pending_seconds"], json!({ "waits_for_host": null, "given_back": null, "no_listener": null }));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routes_are_filtered_and_paged() {
    let served = Served::start().await;
    // Names with what separates them in the cursor. A pause makes them known.
    let names = [("A%2FB", "C"), ("A%2FB%2FC", "D%25"), ("Order", "a"), ("Order", "b"), ("*", "a")];
    for (aggregate_type, event_type) in names {
        assert_eq!(served.post(&format!("/v1/routes/{aggregate_type}/{event_type}/pause"), "").await.status, 200);
    }
    let listed = async |query: &str| {
        let (mut names, mut after) = (Vec::new(), String::new());
        loop {
            let page = served.get(&format!("/v1/routes?{query}{after}")).await.json();
            let routes = page["routes"].as_array().unwrap_or_else(|| panic!("{page}"));
            names.extend(routes.iter().map(|route| {
                format!("{}+{}", route["aggregate_type"].as_str().unwrap(), route["event_type"].as_str().unwrap())
            }));
            let Some(next) = page["next"].as_str() else { return names };
            assert!(!routes.is_empty(), "a page that is not the last has rows: {page}");
            after = format!("&after={}", next.replace('%', "%25"));
        }
    };
    let all = ["*+a", "A/B+C", "A/B/C+D%", "Order+Broken", "Order+OrderPlaced", "Order+a", "Order+b"];
    for limit in [1, 2, 3, 7, 200] {
        assert_eq!(listed(&format!("limit={limit}")).await, all, "{limit} a page");
    }
    assert_eq!(listed("aggregate_type=Order&type=a").await, ["Order+a"]);
    assert_eq!(listed("state=paused&aggregate_type=Order&limit=1").await, ["Order+a", "Order+b"]);
    assert_eq!(listed("state=no_listener").await, ["A/B+C", "A/B/C+D%", "Order+a", "Order+b"]);
    served.dead(&["dead-1"]).await;
    assert_eq!(served.post("/v1/routes/Order/b/resume", "").await.status, 200, "whoever changes a route sees new counts");
    assert_eq!(listed("state=dead").await, ["Order+Broken"]);
    for state in ["waiting", "parked", "blocked"] {
        assert!(listed(&format!("state={state}")).await.is_empty(), "{state}");
    }
    for (query, field) in
        [("state=busy", "state"), ("limit=201", "limit"), ("after=Order", "after"), ("after=%25ff/b", "after")]
    {
        let answer = served.get(&format!("/v1/routes?{query}")).await;
        assert_eq!((answer.status, &answer.json()["errors"][0]["field"]), (422, &json!(field)), "{query}: {}", answer.text);
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_tell_their_age_and_whoever_changes_a_route_sees_it_at_once() {
    let served = Served::start().await;
    let stats = served.get("/v1/stats").await;
    assert!(stats.json()["age_seconds"].as_f64().is_some_and(|age| age >= 0.0), "{}", stats.text);
    assert_eq!(stats.header("age").parse::<u64>().ok().map(|age| age < 60), Some(true));
    let held = async || {
        let routes = served.get("/v1/routes").await;
        assert!(routes.header("age").parse::<u64>().is_ok());
        let routes = routes.json();
        routes["routes"].as_array().expect("a list").iter().filter(|route| route["held_by"] != json!([])).count()
    };
    for _ in 0..3 {
        assert_eq!(held().await, 0);
        assert_eq!(served.post("/v1/routes/Order/OrderPlaced/pause", "").await.status, 200);
        assert_eq!(held().await, 1);
        assert_eq!(served.post("/v1/routes/Order/OrderPlaced/resume", "").await.status, 200);
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_is_told_to_the_byte_to_whoever_asks_for_base64_and_the_time_is_that_of_the_database() {
    let served = Served::start().await;
    let event = r#"{"event_id":"e1","event_type":"OrderPlaced","aggregate_type":"Order","payload":{ "a":  1.0 }}"#;
    assert_eq!(served.post("/v1/events", event).await.status, 201);
    let row = served.get("/v1/events/e1?payload=base64").await.json();
    assert_eq!((&row["payload_base64"], &row["payload"]), (&json!("eyAiYSI6ICAxLjAgfQ=="), &Value::Null));
    assert_eq!(served.get("/v1/events/e1?payload=hex").await.status, 422);
    let now = served.get("/v1/now").await.json();
    let now: outbox_event::time::Timestamp = now["now"].as_str().expect("a time").parse().expect("RFC 3339");
    let created: outbox_event::time::Timestamp = row["created_at"].as_str().expect("a time").parse().expect("RFC 3339");
    assert!(now >= created);
    for aside in ["delayed", "claimed", "in_flight"] {
        assert_eq!(served.get(&format!("/v1/events?status={aside}")).await.status, 200, "{aside}");
    }
    served.stop().await;
}
