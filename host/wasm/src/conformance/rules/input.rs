//! Rules about events that hardly ever come: they come to an answer as well, whichever.

use bytes::Bytes;
use outbox_event::{Event, MAX_PAYLOAD_BYTES};

use super::Checked;
use crate::conformance::ground::{Ground, breakage};
use crate::conformance::report::Finding;
use crate::conformance::subject::{largest_json, of_unknown_type, on_last_attempt, with_many_headers, with_payload};

const NESTED: usize = 1_000;

pub(super) async fn empty_payload(ground: &mut Ground) -> Checked {
    each_route(ground, &[("no payload", &|event| with_payload(event, Bytes::new()))]).await
}

pub(super) async fn large_payload(ground: &mut Ground) -> Checked {
    let text = format!("\"{}\"", "x".repeat(MAX_PAYLOAD_BYTES - 2));
    each_route(
        ground,
        &[
            ("1 MiB of text", &|event| with_payload(event, text.clone())),
            ("1 MiB of records", &|event| with_payload(event, largest_json())),
        ],
    )
    .await
}

pub(super) async fn nested_payload(ground: &mut Ground) -> Checked {
    let lists = format!("{}{}", "[".repeat(NESTED), "]".repeat(NESTED));
    let objects = format!("{}1{}", "{\"a\":".repeat(NESTED), "}".repeat(NESTED));
    each_route(
        ground,
        &[
            ("1,000 lists in each other", &|event| with_payload(event, lists.clone())),
            ("1,000 objects in each other", &|event| with_payload(event, objects.clone())),
        ],
    )
    .await
}

pub(super) async fn invalid_text(ground: &mut Ground) -> Checked {
    each_route(
        ground,
        &[
            ("bytes that are no UTF-8", &|event| with_payload(event, &b"\xff\xfe{\x80\"\xc3(\xed\xa0\x80\"}"[..])),
            ("a NUL", &|event| with_payload(event, &b"{\"a\": \"\0\"}\0"[..])),
        ],
    )
    .await
}

pub(super) async fn unknown_type(ground: &mut Ground) -> Checked {
    each_route(ground, &[("an unknown type", &of_unknown_type)]).await
}

pub(super) async fn many_headers(ground: &mut Ground) -> Checked {
    each_route(ground, &[("1,000 headers", &with_many_headers)]).await
}

pub(super) async fn last_attempt(ground: &mut Ground) -> Checked {
    each_route(ground, &[("the last attempt", &on_last_attempt)]).await
}

type Change<'c> = &'c (dyn Fn(&Event) -> Event + Sync);

/// Changes one event of every route, and calls the plugin with it.
async fn each_route(ground: &mut Ground, changes: &[(&str, Change<'_>)]) -> Checked {
    let mut findings = Vec::new();
    for answered in ground.of_each_route() {
        for (what, change) in changes {
            let subject = answered.subject.with(what, change(&answered.subject.event));
            if let Some(broke) = breakage(&ground.call(&subject).await) {
                let at = format!("{}, {what}", answered.subject.route());
                findings.push(subject.breaks(Finding::new(at, broke)));
            }
        }
    }
    findings.into()
}
