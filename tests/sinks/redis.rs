//! Redis streams.

use std::collections::BTreeSet;

use outbox::sink::SinkError;
use redis::streams::StreamRangeReply;
use redis::{AsyncConnectionConfig, Value as Answer};
use serde_json::{Value, json};
use servers::Broker;
use support::eventually;

use crate::broker::{kill, own, resume, shared};
use crate::common::{order, send_all_while, send_one, send_until_confirmed, sink, sinks, to, unique};

/// The answer of a server to a command.
pub(crate) async fn ask<T: redis::FromRedisValue>(url: &str, command: &[&str]) -> T {
    try_ask(url, command).await.expect("answers")
}

async fn try_ask<T: redis::FromRedisValue>(url: &str, command: &[&str]) -> redis::RedisResult<T> {
    let client = redis::Client::open(url).expect("an address");
    let patient = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None); // half a second otherwise
    let mut connection = client.get_multiplexed_async_connection_with_config(&patient).await.expect("connects");
    let mut asked = redis::cmd(command[0]);
    for argument in &command[1..] {
        asked.arg(*argument);
    }
    asked.query_async(&mut connection).await
}

/// The fields of all entries of a stream.
pub(crate) async fn entries(url: &str, stream: &str) -> Vec<std::collections::HashMap<String, Answer>> {
    let range: StreamRangeReply = ask(url, &["XRANGE", stream, "-", "+"]).await;
    range.ids.into_iter().map(|entry| entry.map).collect()
}

pub(crate) fn text(answer: Option<&Answer>) -> String {
    answer.map_or_else(String::new, |answer| redis::from_redis_value(answer.clone()).expect("text"))
}

pub(crate) fn config(url: &str, stream: &str) -> Value {
    json!({"kind": "redis", "url": url, "stream": stream, "timeout": "2s"})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_message_is_an_entry_with_its_id_its_event_and_its_bytes() {
    let (url, stream) = (shared(Broker::Redis), unique("orders:"));
    let mut message = order(7);
    message.body = vec![0, 0xff, b'\n'].into();
    assert_eq!(send_one(&*sink(config(&url, &stream)), message.clone()).await, Ok(()));
    let entries = entries(&url, &stream).await;
    assert_eq!(entries.len(), 1);
    let field = |name: &str| text(entries[0].get(name));
    assert_eq!((field("id"), field("event-id")), (message.id.clone(), message.event_id.to_string()));
    assert_eq!((field("key").as_str(), field("event-type").as_str()), ("7", "OrderPlaced"));
    assert!(field("headers").contains("traceparent"));
    assert_eq!(entries[0]["body"], Answer::BulkString(vec![0, 0xff, b'\n']));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_key_that_is_no_stream_wait_and_no_others_do() {
    let (url, stream, taken) = (shared(Broker::Redis), unique("orders:"), unique("taken:"));
    let _: Answer = ask(&url, &["SET", &taken, "1"]).await;
    let answers = sink(config(&url, &stream)).send(&[order(1), to(&taken, order(2)), order(3)]).await;
    assert_eq!((&answers[0], &answers[2]), (&Ok(()), &Ok(())));
    assert!(matches!(&answers[1], Err(SinkError::Closed { reason }) if reason.contains("WRONGTYPE")), "{answers:?}");
    assert_eq!(entries(&url, &stream).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_stream_that_this_user_may_not_write_to_wait_until_it_may() {
    let server = own(Broker::Redis);
    let url = server.url();
    let _: Answer = ask(&url, &["ACL", "SETUSER", "limited", "on", ">pw", "~allowed", "+@all"]).await;
    let mut config = config(&format!("redis://127.0.0.1:{}", server.port()), "allowed");
    config["user"] = json!("limited");
    config["password"] = json!("pw");
    let sink = sink(config);

    let answers = sink.send(&[order(1), to("denied", order(2))]).await;

    assert_eq!(answers[0], Ok(()));
    assert!(matches!(&answers[1], Err(SinkError::Closed { reason }) if reason.contains("no permissions")), "{answers:?}");
    let _: Answer = ask(&url, &["ACL", "SETUSER", "limited", "~denied"]).await;
    assert_eq!(send_one(&*sink, to("denied", order(2))).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_wait_while_a_script_keeps_the_server_busy() {
    let server = own(Broker::Redis);
    let url = server.url();
    let _: Answer = ask(&url, &["CONFIG", "SET", "lua-time-limit", "1"]).await;
    let sink = sink(config(&url, "orders"));
    let at = url.clone();
    let script = tokio::spawn(async move { try_ask::<Answer>(&at, &["EVAL", "while true do end", "0"]).await });
    eventually("the sink is down", async || match send_one(&*sink, order(1)).await {
        Ok(()) => false,
        Err(SinkError::Down { reason, .. }) => reason.contains("BUSY"),
        Err(other) => panic!("{other:?}"),
    })
    .await;

    let _: Answer = ask(&url, &["SCRIPT", "KILL"]).await;

    send_until_confirmed(&*sink, order(2)).await;
    assert!(script.await.expect("no panic").is_err(), "the script was killed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_chooses_no_key_of_the_database_unless_it_was_allowed() {
    let (url, stream) = (shared(Broker::Redis), unique("orders:"));
    let elsewhere = outbox::sink::Message { trusts_subject: false, ..to(&stream, order(1)) };
    let refused = send_one(&*sink(config(&url, "own")), elsewhere.clone()).await;
    assert!(matches!(&refused, Err(SinkError::Rejected { reason }) if reason.contains("sinks.tested.subjects")), "{refused:?}");
    let mut allowing = config(&url, "own");
    allowing["subjects"] = json!(["orders:*"]);
    assert_eq!(send_one(&*sink(allowing), elsewhere).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_keeps_about_as_many_entries_as_it_may() {
    let (url, stream) = (shared(Broker::Redis), unique("orders:"));
    let mut config = config(&url, &stream);
    config["maxlen"] = json!(100);
    let messages: Vec<_> = (0..2_000).map(order).collect();
    let answers = sink(config).send(&messages).await;
    assert!(answers.iter().all(Result::is_ok));
    let left = entries(&url, &stream).await.len();
    assert!((100..1_000).contains(&left), "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_told_without_it() {
    let url = shared(Broker::Redis);
    let mut config = config(&url, "a");
    config["password"] = json!("s3cret");
    let refused = send_one(&*sink(config), order(1)).await;
    assert!(matches!(&refused, Err(SinkError::Down { .. })), "{refused:?}");
    assert!(!format!("{refused:?}").contains("s3cret"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_given_the_changed_password_confirms_what_waited() {
    let server = own(Broker::Redis);
    let url = server.url();
    let (login, place) = url.split_once('@').expect("the address has an account");
    let (_, first) = login.rsplit_once(':').expect("the account has a password");
    let with = |password: &str| {
        let mut config = config(&format!("redis://{place}"), "orders");
        config["password"] = json!(password);
        config
    };
    let sinks = sinks(with(first));
    let sink = sinks.get("tested").expect("it is there");
    assert_eq!(send_one(&*sink, order(1)).await, Ok(()));
    let _: Answer = ask(&url, &["CONFIG", "SET", "requirepass", "second"]).await;
    let url = format!("redis://:second@{place}");
    let _: Answer = ask(&url, &["CLIENT", "KILL", "TYPE", "normal"]).await;
    eventually("the first password is refused", async || {
        matches!(send_one(&*sink, order(2)).await, Err(SinkError::Down { .. }))
    })
    .await;

    let changed = serde_json::from_value(with("second")).expect("a good configuration");
    sinks.update("tested", &changed).await.expect("good settings");

    send_until_confirmed(&*sink, order(2)).await;
    let bodies: BTreeSet<String> = entries(&url, "orders").await.iter().map(|entry| text(entry.get("body"))).collect();
    assert_eq!(bodies, BTreeSet::from(["1", "2"].map(str::to_owned)));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_thousand_messages_none_is_lost_when_the_server_is_killed_in_the_middle() {
    let mut server = own(Broker::Redis);
    let url = server.url();
    let sink = sink(config(&url, "orders"));
    send_all_while(sink.clone(), (0..1_000).map(order).collect(), async {
        kill(&mut server);
        let down = send_one(&*sink, order(0)).await;
        assert!(matches!(down, Err(SinkError::Down { .. })), "{down:?}");
        resume(&mut server);
        send_until_confirmed(&*sink, order(0)).await;
    })
    .await;
    let bodies: BTreeSet<String> = entries(&url, "orders").await.iter().map(|entry| text(entry.get("body"))).collect();
    assert_eq!(bodies, (0..1_000).map(|number| number.to_string()).collect());
}
