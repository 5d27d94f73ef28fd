//! Answers `{{aggregate_type}}/{{event_type}}`.

use outbox_sdk::prelude::*;

listener! {
    "{{aggregate_type}}" / "{{event_type}}" => on_event,
}

/// What the writer puts into the payload, as JSON. More fields do no harm.
#[derive(Deserialize)]
struct Payload {
    message: String,
}

fn on_event(event: &Event, payload: Payload) -> Answer {
    if payload.message.is_empty() {
        return Ok(dead("the message is empty"));
    }
    info!(attempt = event.attempt; "{}: {}", event.route.event_type, payload.message);

    // Where the manifest names an endpoint, it gets the event. It may get it again: the host sends the event's id along as the key
    // against doing a thing twice.
    if let Some(endpoint) = config::get("endpoint") {
        http::post(endpoint).bytes(&event.content_type, event.payload.clone()).send()?.require_ok()?;
    }
    Ok(Done)
}

#[cfg(test)]
mod tests {
    use outbox_sdk::testing;

    use super::*;

    fn delivered(payload: &str) -> Answer {
        ThisPlugin::on_event(&Event::for_test("{{aggregate_type}}", "{{event_type}}").with_text(payload))
    }

    #[test]
    fn a_message_is_taken() {
        assert_eq!(delivered(r#"{ "message": "hello" }"#), Ok(Done));
        assert!(testing::log()[0].contains("hello"));
    }

    #[test]
    fn an_empty_message_is_never_delivered_again() {
        assert_eq!(delivered(r#"{ "message": "" }"#), Ok(dead("the message is empty")));
    }

    #[test]
    fn what_is_no_message_is_never_delivered_again() {
        assert_eq!(delivered("{}").unwrap_err().kind, FailureKind::Unrecoverable);
    }

    #[test]
    fn an_endpoint_gets_the_event() {
        testing::set_config("endpoint", "https://hooks.example.com/");
        testing::respond(http::Response::new(204));

        assert_eq!(delivered(r#"{ "message": "hello" }"#), Ok(Done));
        assert_eq!(testing::requests()[0].url, "https://hooks.example.com/");
    }
}
