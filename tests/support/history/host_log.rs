//! The calls that the plugin `recorder` tells the log of its host.

use outbox::time::Timestamp;
use serde::Deserialize;

use super::step::{Delivery, Ended, Line, Step};

/// What we need of a line of the log.
#[derive(Deserialize)]
struct Logged {
    timestamp: String,
    plugin: String,
    message: String,
}

/// What the plugin says: that a call begins, or how it ends.
#[derive(Deserialize)]
#[serde(untagged)]
enum Told {
    // First: a beginning has no ending.
    Ended(Ended),
    Began(Delivery),
}

/// The step that a line of a host's log tells of; `None` when it tells of something else.
pub(super) fn step(text: &str, node: &str) -> Result<Option<Line>, String> {
    if !text.contains(r#""plugin":"recorder""#) || !text.contains("event_id") {
        return Ok(None);
    }
    let logged: Logged = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if logged.plugin != "recorder" || !logged.message.starts_with('{') {
        return Ok(None);
    }
    let step = match serde_json::from_str(&logged.message).map_err(|error| error.to_string())? {
        Told::Ended(ended) => Step::Ended(ended),
        Told::Began(delivery) => Step::Began(delivery),
    };
    let at = logged.timestamp.parse::<Timestamp>().map_err(|error| error.to_string())?.as_micros();
    Ok(Some(Line { at, node: node.to_owned(), step }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Aggregate, Ending};

    const BEGINNING: &str =
        r#"{\"event_id\":\"e-1\",\"aggregate\":{\"type\":\"Order\",\"id\":\"4 2\"},\"sequence\":7,\"fence\":3,\"attempt\":1}"#;
    const END: &str = r#"{\"event_id\":\"e-1\",\"fence\":3,\"ending\":\"done\"}"#;

    fn logged(message: &str) -> String {
        format!(
            r#"{{"timestamp":"1970-01-01T00:00:02.000001Z","level":"INFO","message":"{message}","plugin":"recorder","digest":"ab","event.id":"e-1","target":"outbox::plugin"}}"#
        )
    }

    #[test]
    fn beginnings_and_ends_are_found_among_the_lines_of_a_host() {
        let found = |message| step(&logged(message), "host-1").unwrap().unwrap();
        let line = |step| Line { at: 2_000_001, node: "host-1".to_owned(), step };

        let aggregate = Some(Aggregate { kind: "Order".to_owned(), id: "4 2".to_owned() });
        let event_id = "e-1".parse().unwrap();
        assert_eq!(found(BEGINNING), line(Step::Began(Delivery { event_id, aggregate, sequence: 7, fence: 3, attempt: 1 })));
        assert_eq!(found(END), line(Step::Ended(Ended { event_id, fence: 3, ending: Ending::Done, after_ms: None })));
    }

    #[test]
    fn what_others_say_is_passed_over_and_half_a_line_is_an_error() {
        let line = logged(BEGINNING);
        assert!(step(&line[..150], "host-1").is_ok_and(|line| line.is_none()), "cut off before the plugin's name");
        assert!(step(&line[..line.len() - 9], "host-1").is_err(), "cut off behind it");
        assert_eq!(step(r#"{"level":"INFO","message":"ready"}"#, "host-1"), Ok(None));
        assert_eq!(step(&logged("event_id is what I say"), "host-1"), Ok(None));
        assert_eq!(step(&logged(BEGINNING).replace("recorder", "another"), "host-1"), Ok(None));
        let quoting = logged(BEGINNING).replace(r#""plugin":"recorder""#, r#""plugin":"other","of":{"plugin":"recorder"}"#);
        assert_eq!(step(&quoting, "host-1"), Ok(None));
    }
}
