//! Emits events, keeps state, publishes, makes requests and reads settings, as each event says: what effects are tested with.

use outbox_sdk::log;
use outbox_sdk::prelude::*;
use serde_json::json;

listener! {
    check: ask_outside,
    "Effects" / "Do" => perform,
    "Effects" / "Emitted" => |_: &Event| Ok(Done),
    "Effects" / "Tell" => tell,
    batches: { "Effects" / "Do" => perform_all },
}

/// What the listener is to do, and how it is to end.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deed {
    /// This many events, whose aggregate is the event that they follow.
    #[serde(default)]
    emit: u32,
    /// The type of what is emitted, for a wrong one.
    emit_type: Option<String>,
    /// The tenant of what is emitted, for another one.
    emit_tenant: Option<String>,
    /// The id of what is emitted.
    emit_id: Option<String>,
    /// A number in the state to which one is added.
    count: Option<String>,
    /// A key to set, and how many bytes.
    set: Option<(String, usize)>,
    /// Whether what is emitted has this payload, and is done by this plugin again.
    #[serde(default)]
    emit_itself: bool,
    /// A key to remove.
    delete: Option<String>,
    /// This many keys to remove.
    #[serde(default)]
    delete_many: u32,
    /// Sinks, for a message to each.
    #[serde(default)]
    publish: Vec<String>,
    /// Methods and URLs, for a request each, with the number of the request as its body.
    #[serde(default)]
    ask: Vec<(String, String)>,
    then: Then,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Then {
    Done,
    Dead,
    Later,
    Fail,
    Trap,
    /// Is dead with the responses.
    Tell,
    /// Fails on the first attempt.
    FailOnce,
}

fn perform(event: &Event, deed: Deed) -> Answer {
    for number in 0..deed.emit {
        let event_type = deed.emit_type.as_deref().unwrap_or("Emitted");
        let mut follow_up = NewEvent::new("Effects", event_type).aggregate_id(&event.id);
        if let Some(tenant) = &deed.emit_tenant {
            follow_up = follow_up.tenant(tenant);
        }
        if let Some(id) = &deed.emit_id {
            follow_up = follow_up.id(id);
        }
        let payload = if deed.emit_itself { event.payload.clone() } else { number.to_string().into_bytes() };
        follow_up.bytes("application/json", payload).emit()?;
    }
    if let Some(key) = &deed.count {
        let count: u64 = state::get_json(key)?.unwrap_or_default();
        state::set_json(key, &(count + 1))?;
        let written: Option<u64> = state::get_json(key)?;
        assert_eq!(written, Some(count + 1), "a call sees what it wrote");
    }
    // What is removed makes room for what is set.
    if let Some(key) = &deed.delete {
        state::delete(key)?;
    }
    for number in 0..deed.delete_many {
        state::delete(&number.to_string())?;
    }
    if let Some((key, bytes)) = &deed.set {
        state::set(key, &vec![b'x'; *bytes])?;
    }
    for (number, sink) in deed.publish.iter().enumerate() {
        let message = Message::new("subject").key("k").header("attempt", event.attempt.to_string());
        message.json(&json!({ "number": number, "of": deed.publish.len() }))?.send(sink)?;
    }
    let mut responses = Vec::new();
    for (number, (method, url)) in deed.ask.iter().enumerate() {
        let request = http::Request::new(method, url).with_header("X-Number", number.to_string());
        let response = request.json(&json!({ "number": number }))?.send()?;
        let content_type = response.header("content-type").unwrap_or("nothing").to_owned();
        responses.push(format!("{} {content_type} {}", response.status, String::from_utf8_lossy(&response.body)));
    }
    match deed.then {
        Then::Tell => Ok(dead(responses.join(", "))),
        Then::Done => Ok(Done),
        Then::Dead => Ok(dead("as asked")),
        Then::Later if event.attribute("deferrals") == Some("0") => Ok(retry_after(Duration::from_millis(100))),
        Then::FailOnce if event.attempt == 1 => Err(Failure::retryable("the first attempt")),
        Then::Later | Then::FailOnce => Ok(Done),
        Then::Fail => Err(Failure::unrecoverable("as asked")),
        Then::Trap => panic!("as asked"),
    }
}

/// Publishes what the events of one call ask for, each message for its own event, and tells how many they are.
fn perform_all(events: &[Event]) -> Vec<Answer> {
    let publish = |event: &Event| {
        let deed: Deed = event.json()?;
        for (number, sink) in deed.publish.iter().enumerate() {
            let message = Message::new("subject").json(&json!({ "number": number, "together": events.len() }))?;
            message.for_event(event).send(sink)?;
        }
        Ok(dead(format_args!("one of {}", events.len())))
    };
    events.iter().map(publish).collect()
}

/// Looks at its settings; where these name a sink and a URL, it tries to use them, which nobody may do at the load.
fn ask_outside() -> Result<(), Failure> {
    if let Some(sink) = config::get("sink_at_load")
        && Message::new("subject").send(&sink).is_ok()
    {
        return Err(Failure::unrecoverable("the message was sent"));
    }
    if let Some(url) = config::get("url_at_load")
        && http::get(url).send().is_ok()
    {
        return Err(Failure::unrecoverable("the request was answered"));
    }
    Ok(())
}

/// Tells what it was told, the secret as well; in a panic when the event says so.
fn tell(event: &Event) -> Answer {
    let told = json!({
        "setting": config::get("greeting"),
        "all": config::all(),
        "absent": config::get("absent"),
        "no_secret": config::secret("absent"),
        // In whole seconds: conformance calls two instances, and compares their answers.
        "remaining_ms": call::remaining().as_millis().div_ceil(1_000) * 1_000,
        "debug_is_kept": log::is_kept(log::Level::Trace),
        "error_is_kept": log::is_kept(log::Level::Error),
        "attributes": event.attributes,
    });
    let token = config::require_secret("token")?;
    info!(token = token; "the token is {token}");
    if event.payload == b"\"panic\"" {
        panic!("with the token {token}");
    }
    Err(Failure::unrecoverable(format_args!("{told} {token}")).code("told-you").detail("token", token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outbox_sdk::testing;

    #[test]
    fn a_deed_is_done_as_it_is_written() {
        let event = Event::for_test("Effects", "Do").with_text(r#"{"emit":2,"count":"n","set":["k",3],"then":"done"}"#);

        assert_eq!(ThisPlugin::on_event(&event), Ok(Done));

        assert_eq!(
            (testing::emitted().len(), testing::state("n"), testing::state("k")),
            (2, Some(b"1".to_vec()), Some(b"xxx".to_vec()))
        );
    }
}
