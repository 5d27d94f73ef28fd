//! Standard output. What it prints, tests/cli sees.

use outbox::sink::SinkError;
use serde_json::json;

use crate::common::{order, sink, to};

#[tokio::test]
async fn every_message_is_confirmed_in_its_order() {
    let answers = sink(json!({"kind": "stdout"})).send(&[order(1), to("any", order(2))]).await;
    assert_eq!(answers, [Ok::<(), SinkError>(()), Ok(())]);
}
