//! CloudEvents that another language's SDK writes; `cloud_events.py` is the program.

use std::path::Path;

use serde_json::{Value, json};
use support::python;

use crate::http::{ask, listening};
use crate::program::{Ended, Place};

#[test]
fn a_host_takes_what_the_sdk_of_another_language_writes() {
    let place = Place::migrated();
    let (_host, address) = listening(&place, &[]);
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cli/cloud_events.py");
    let mut command = python();
    command.arg(program).arg(format!("http://{address}/v1/events"));

    let ended = Ended::of(command);

    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let ids: Vec<&str> =
        ended.stdout.lines().flat_map(|line| line.strip_prefix("201 ").expect("it is written").split(' ')).collect();
    assert_eq!(ids.len(), 7, "{}", ended.stdout);
    let row = |number: usize| {
        let answer = ask(&address, &format!("GET /v1/events/{}", ids[number - 1]), "", "");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str::<Value>(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    };
    for number in 1..=7 {
        let row = row(number);
        assert_eq!((&row["aggregate_type"], &row["aggregate_id"]), (&json!("Order"), &json!(format!("4{number}"))), "{row}");
        assert_eq!(
            (&row["tenant_id"], &row["occurred_at"]),
            (&json!("shop a"), &json!("2026-11-21T08:30:00.000000Z")),
            "{row}"
        );
        assert_eq!(
            (&row["event_type"], &row["headers"]["ce-source"]),
            (&json!("OrderPlaced"), &json!("https://shop.example/ünï"))
        );
        assert_eq!(row["headers"]["ce-id"], json!(format!("sdk-{number}")), "{row}");
    }
    for number in [1, 2] {
        assert_eq!(row(number)["payload"], json!({ "order_id": number, "note": "☃ \" \\ %" }));
    }
    let bytes: Vec<u8> = (0..=255).collect();
    for number in [3, 4] {
        let row = row(number);
        assert_eq!(row["payload_base64"], json!(data_encoding::BASE64.encode(&bytes)), "{row}");
        assert_eq!(row["content_type"], "application/octet-stream");
    }
    assert_eq!((&row(5)["payload"], &row(5)["content_type"]), (&json!("plain ☃"), &json!("text/plain")));
    assert_eq!((&row(6)["payload"], &row(7)["payload"]), (&json!({ "order_id": 6 }), &json!({ "order_id": 7 })));
}
