//! Replays, discards, pauses.

use outbox::dead::ReplayLimits;

use super::*;
use crate::pages::jobs::{Action, Ended, Job, Jobs, Order};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_are_replayed_only_with_a_reason_and_only_as_many_as_were_shown() {
    let pages = Dashboard::open().await;
    pages.write("Paid", 3, Status::Dead).await;
    let before = pages.get("/dead/discard?event_type=Paid").await.text;
    let field =
        |name: &str| before.split(&format!("name=\"{name}\" value=\"")).nth(1).unwrap().split('"').next().unwrap().to_owned();
    let form = |count: &str, reason: &str| {
        format!("event_type=Paid&dead_before={}&count={count}&reason={reason}", field("dead_before").replace(':', "%3A"))
    };
    assert_eq!(field("count"), "3");

    assert_eq!(pages.post("/dead/discard", &form("3", "")).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    let changed = pages.post("/dead/discard", &form("2", "test")).await;
    assert_eq!((changed.status, pages.dead().await), (StatusCode::CONFLICT, 3), "{}", changed.text);
    let cross =
        Request::post("/dead/discard").header("sec-fetch-site", "cross-site").body(Body::from(form("3", "test"))).unwrap();
    assert_eq!((pages.send(cross).await.status, pages.dead().await), (StatusCode::FORBIDDEN, 3));

    let begun = pages.post("/dead/discard", &form("3", "gone+for+good")).await;
    assert_eq!(begun.status, StatusCode::SEE_OTHER, "{}", begun.text);
    let job = begun.headers[header::LOCATION].to_str().expect("text").trim_start_matches("..").to_owned();
    for _ in 0..600 {
        if pages.get(&job).await.text.contains("3 events were discarded.") {
            let audit = pages.get("/audit").await.text;
            assert!(audit.contains("gone for good") && pages.dead().await == 0, "{audit}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the discard never ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_found_again_and_a_fifth_is_told_which_four_are_running() {
    let pages = Dashboard::open().await;
    pages.write("Paid", 100, Status::Dead).await;
    // As many as match now: those that are running take one a second away.
    let begin = async |speed: &str| loop {
        let preview = pages.get("/dead/discard").await.text;
        let field = |name: &str| preview.split(&format!("name=\"{name}\" value=\"")).nth(1)?.split('"').next();
        let [dead_before, count] = ["dead_before", "count"].map(|name| field(name).expect("a field").replace(':', "%3A"));
        let form = format!("dead_before={dead_before}&count={count}&reason=test&per_second={speed}");
        let answer = pages.post("/dead/discard", &form).await;
        if answer.status != StatusCode::CONFLICT || answer.text.contains("Four replays") {
            return answer;
        }
    };
    assert_eq!(begin("10%2Fs").await.status, StatusCode::UNPROCESSABLE_ENTITY, "no number is not as fast as possible");
    assert!(!pages.get("/dead").await.text.contains("Running on this host"));

    let mut jobs = Vec::new();
    for _ in 0..4 {
        let begun = begin("1").await;
        assert_eq!(begun.status, StatusCode::SEE_OTHER, "{}", begun.text);
        jobs.push(begun.headers[header::LOCATION].to_str().expect("text").trim_start_matches("../").to_owned());
    }
    let fifth = begin("1").await;
    let list = pages.get("/dead").await.text;

    assert_eq!(fifth.status, StatusCode::CONFLICT);
    for job in &jobs {
        assert!(fifth.text.contains(&format!("{job}\"")) && list.contains(&format!("{job}\"")), "{job}: {list}");
        assert_eq!(pages.post(&format!("/{job}/stop"), "").await.status, StatusCode::SEE_OTHER);
    }
    for _ in 0..600 {
        if !pages.get("/dead").await.text.contains("Running on this host") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("they were stopped, and never ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_that_steps_over_a_refused_event_names_it_and_did_not_end_early() {
    let pages = Dashboard::open().await;
    let ids = pages.write("Paid", 5, Status::Dead).await;
    pages.outbox.listeners().remove(outbox_event::Owner::Native);
    let mut user = pages.outbox.begin().await.expect("begins");
    let when = format!("WHEN OLD.event_id = '{}'", ids[1]);
    let trigger =
        format!("CREATE TRIGGER held BEFORE UPDATE ON outbox_event {when} BEGIN SELECT RAISE(ABORT, 'archived'); END");
    sqlx::query(sqlx::AssertSqlSafe(trigger)).execute(&mut **user.inner_mut()).await.expect("creates");
    user.commit().await.expect("commits");
    let host = crate::host::Host::new(&pages.outbox, HttpConfig { open: true, ..HttpConfig::default() });
    let order = Order {
        action: Action::Replay,
        of: String::new(),
        total: 5,
        filter: DeadFilter::default(),
        per_second: None,
        audit: Audit { actor: "tester".to_owned(), reason: None },
    };
    let jobs = Jobs::default();

    let job = jobs.get(jobs.begin(order, host).expect("there is room")).expect("it has begun");
    while job.ended().is_none() {
        tokio::task::yield_now().await;
    }

    let Some(Ended::Refused(why)) = job.ended() else { panic!("{:?}", job.ended()) };
    assert!(why.starts_with("The database refuses to change 1 event; seq 2: ") && why.contains("archived"), "{why}");
    assert_eq!(job.done(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_discard_of_many_beside_replays_of_the_same_events_leaves_none_dead() {
    let pages = Dashboard::open().await;
    pages.write("Paid", 600, Status::Dead).await;
    // What is replayed must not die again.
    pages.outbox.listeners().remove(outbox_event::Owner::Native);
    let host = crate::host::Host::new(&pages.outbox, HttpConfig { open: true, ..HttpConfig::default() });
    let (jobs, filter) = (Jobs::default(), DeadFilter::default());
    let audit = Audit { actor: "tester".to_owned(), reason: None };
    let order = Order {
        action: Action::Discard,
        of: String::new(),
        total: 600,
        filter: filter.clone(),
        per_second: None,
        audit: audit.clone(),
    };

    let job = jobs.get(jobs.begin(order, host).expect("there is room")).expect("it has begun");
    let mut replayed = 0;
    while job.ended().is_none() {
        let limits = ReplayLimits { events: Some(100), ..ReplayLimits::default() };
        let batch = pages.outbox.dead().replay_all(&filter, &limits, &audit, |_| {}).await.expect("replays");
        replayed += batch.count;
        tokio::task::yield_now().await;
    }

    assert_eq!((job.ended(), pages.dead().await), (Some(&Ended::Whole), 0));
    assert_eq!(job.done() + replayed, 600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_rests_ends_when_it_is_stopped_and_when_the_outbox_stops() {
    let pages = Dashboard::open().await;
    pages.write("Paid", 3, Status::Dead).await;
    let host = crate::host::Host::new(&pages.outbox, HttpConfig { open: true, ..HttpConfig::default() });
    let jobs = Jobs::default();
    let begin = || {
        let order = Order {
            action: Action::Discard,
            of: String::new(),
            total: 3,
            filter: DeadFilter { event_type: Some("Paid".to_owned()), ..DeadFilter::default() },
            per_second: Some(1),
            audit: Audit { actor: "tester".to_owned(), reason: None },
        };
        jobs.get(jobs.begin(order, host.clone()).expect("there is room")).expect("it has begun")
    };
    let ended = async |job: &Job| {
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
    assert_eq!(ended(&first).await, Some(Ended::Stopped));
    let second = begin();
    while second.done() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    pages.outbox.shutdown().await;
    assert_eq!(ended(&second).await, Some(Ended::Stopped));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_event_is_replayed_and_a_route_paused_from_their_pages() {
    let pages = Dashboard::open().await;
    let ids = pages.write("Paid", 1, Status::Dead).await;
    let route = "aggregate_type=Order&event_type=Paid&reason=the+bank+is+down";
    assert_eq!(pages.get("/routes/pause?aggregate_type=Order&event_type=Paid").await.status, StatusCode::OK);
    assert_eq!(pages.post("/routes/pause", route).await.status, StatusCode::SEE_OTHER);
    assert!(pages.get("/").await.text.contains("Route Order/Paid was paused"));
    assert_eq!(pages.post("/routes/pause", route).await.status, StatusCode::CONFLICT, "it is paused already");

    let replay = format!("/events/{}/replay", ids[0]);
    assert_eq!(pages.get(&replay).await.status, StatusCode::METHOD_NOT_ALLOWED, "nothing changes by looking");
    assert_eq!(pages.post(&replay, "").await.status, StatusCode::UNPROCESSABLE_ENTITY);
    let done = pages.post(&replay, "reason=mended").await;
    assert_eq!(done.headers[header::LOCATION].to_str().unwrap(), format!("../../events/{}?did=replay", ids[0]));
    assert!(pages.get(&format!("/events/{}", ids[0])).await.text.contains("replay by local: mended"));
}
