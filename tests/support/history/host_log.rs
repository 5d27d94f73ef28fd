//! The deliveries that the plugin `recorder` tells the log of its host.

use outbox::time::Timestamp;
use serde::Deserialize;

use super::step::{Delivery, Line, Step};

/// What we need of a line of the log.
#[derive(Deserialize)]
struct Logged {
    timestamp: String,
    plugin: String,
    message: String,
}

/// The delivery that a line of a host's log tells of; `None` when it tells of something else.
pub(super) fn delivery(text: &str, node: &str) -> Result<Option<Line>, String> {
    if !text.contains(r#""plugin":"recorder""#) || !text.contains("event_id") {
        return Ok(None);
    }
    let logged: Logged = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if logged.plugin != "recorder" || !logged.message.starts_with('{') {
        return Ok(None);
    }
    let delivery: Delivery = serde_json::from_str(&logged.message).map_err(|error| error.to_string())?;
    let at = logged.timestamp.parse::<Timestamp>().map_err(|error| error.to_string())?.as_micros();
    Ok(Some(Line { at, node: node.to_owned(), step: Step::Delivered(delivery) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Aggregate, Ending};

    #[test]
    fn a_delivery_is_found_among_the_lines_of_a_host() {
        let line = r#"{"timestamp":"1970-01-01T00:00:02.000001Z","level":"INFO","message":"{\"event_id\":\"e-1\",\"aggregate\":{\"type\":\"Order\",\"id\":\"4 2\"},\"sequence\":7,\"fence\":3,\"attempt\":1,\"ending\":\"done\"}","plugin":"recorder","digest":"ab","event.id":"e-1","target":"outbox::plugin"}"#;

        let found = delivery(line, "host-1").unwrap().unwrap();

        let aggregate = Some(Aggregate { kind: "Order".to_owned(), id: "4 2".to_owned() });
        let event_id = "e-1".parse().unwrap();
        let told = Delivery { event_id, aggregate, sequence: 7, fence: 3, attempt: 1, ending: Ending::Done };
        assert_eq!(found, Line { at: 2_000_001, node: "host-1".to_owned(), step: Step::Delivered(told) });
        assert!(delivery(&line[..200], "host-1").is_ok_and(|line| line.is_none()), "cut off before the plugin's name");
        assert_eq!(delivery(r#"{"level":"INFO","message":"ready"}"#, "host-1"), Ok(None));
    }
}
