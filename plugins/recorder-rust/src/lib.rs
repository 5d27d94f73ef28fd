//! Tells the log of the beginning and of the end of every call, as one JSON object each: what the tests prove histories with.
//!
//! `{"event_id":"…","aggregate":{"type":"Account","id":"7"},"sequence":4,"fence":1,"attempt":1}`
//! `{"event_id":"…","fence":1,"ending":"done"}`

use outbox_sdk::prelude::*;
use serde_json::json;

listener! { "Account" / "Changed" => record }

/// How the delivery is to end, as its writer wants it.
#[derive(Deserialize)]
struct Change {
    /// The attempt that succeeds; those before it fail.
    succeeds_on: u32,
    /// How long it takes.
    #[serde(default)]
    takes_ms: u64,
}

/// Tells before it works and before it answers: a host that is killed in between delivers again, and both calls are on record.
fn record(event: &Event, change: Change) -> Answer {
    let (succeeds, fence) = (event.attempt >= change.succeeds_on, fence(event)?);
    let beginning = json!({
        "event_id": event.id,
        "aggregate": event.aggregate_id.as_ref().map(|id| json!({ "type": event.route.aggregate_type, "id": id })),
        "sequence": event.sequence,
        "fence": fence,
        "attempt": event.attempt,
    });
    info!("{beginning}");
    std::thread::sleep(Duration::from_millis(change.takes_ms));
    let end = json!({ "event_id": event.id, "fence": fence, "ending": if succeeds { "done" } else { "failed" } });
    info!("{end}");
    if succeeds { Ok(Done) } else { Err(Failure::retryable(format_args!("attempt {}", event.attempt))) }
}

/// The number of the claim, which stands behind the event's id.
fn fence(event: &Event) -> Result<u64, Failure> {
    let number = event.delivery_id.rsplit(':').next().and_then(|number| number.parse().ok());
    number.ok_or_else(|| Failure::unrecoverable(format_args!("{} is not a delivery id", event.delivery_id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fence_is_the_number_behind_the_id() {
        let mut event = Event::for_test("Account", "Changed");
        event.delivery_id = "a:b:17".to_owned();
        assert_eq!(fence(&event), Ok(17));

        event.delivery_id = "17b".to_owned();
        assert!(fence(&event).is_err());
    }

    #[test]
    fn it_fails_until_the_attempt_that_its_writer_named() {
        let event = |attempt| Event::for_test("Account", "Changed").with_text(r#"{"succeeds_on":2}"#).with_attempt(attempt);

        assert_eq!(ThisPlugin::on_event(&event(1)), Err(Failure::retryable("attempt 1")));
        assert_eq!(ThisPlugin::on_event(&event(2)), Ok(Done));
    }
}
