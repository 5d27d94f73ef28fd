//! Guests that leave with the host what would not fit into their own memory: behind handles, in streams, in its log. Others pass it
//! arguments that take its time.

use std::sync::Arc;

use bytes::Bytes;
use outbox::listener::{Cause, Outcome};
use outbox::wasm::{Call, HttpStandIn, InstanceUse};
use support::Guest;

use super::calls::Evil;
use super::{LIMITS, called, event, failure, load};

/// What these guests call beside what all call.
const IMPORTS: &str = r#"
    (import "wasi:http/types@0.2.12" "[method]outgoing-request.set-method" (func $set_method (param i32 i32 i32 i32) (result i32)))
    (import "wasi:http/types@0.2.12" "[method]outgoing-request.set-scheme" (func $set_scheme (param i32 i32 i32 i32 i32) (result i32)))
    (import "wasi:http/types@0.2.12" "[method]outgoing-request.set-path-with-query"
        (func $set_path_with_query (param i32 i32 i32 i32) (result i32)))
    (import "wasi:http/types@0.2.12" "[method]outgoing-request.body" (func $body (param i32 i32)))
    (import "wasi:http/types@0.2.12" "[method]outgoing-body.write" (func $body_stream (param i32 i32)))
    (import "wasi:http/types@0.2.12" "[resource-drop]outgoing-body" (func $drop_body (param i32)))
    (import "wasi:http/types@0.2.12" "[static]fields.from-list" (func $fields_of (param i32 i32 i32)))
    (import "wasi:http/types@0.2.12" "[method]fields.append" (func $append (param i32 i32 i32 i32 i32 i32)))
    (import "wasi:http/types@0.2.12" "[method]fields.set" (func $set (param i32 i32 i32 i32 i32 i32)))
    (import "wasi:http/types@0.2.12" "[method]fields.get" (func $get (param i32 i32 i32 i32)))
    (import "wasi:http/types@0.2.12" "[method]fields.has" (func $has (param i32 i32 i32) (result i32)))
    (import "wasi:http/types@0.2.12" "[method]fields.delete" (func $delete (param i32 i32 i32 i32)))
    (import "wasi:http/types@0.2.12" "[method]fields.clone" (func $copy (param i32) (result i32)))
    (import "wasi:http/types@0.2.12" "[resource-drop]fields" (func $drop_fields (param i32)))
    (import "wasi:http/types@0.2.12" "[method]future-incoming-response.get" (func $response (param i32 i32)))
    (import "wasi:http/types@0.2.12" "[method]incoming-response.headers" (func $headers_of (param i32) (result i32)))
    (import "wasi:io/streams@0.2.12" "[method]output-stream.check-write" (func $check_write (param i32 i32)))
    (import "wasi:io/streams@0.2.12" "[method]output-stream.write" (func $write (param i32 i32 i32 i32)))
    (import "wasi:io/streams@0.2.12" "[resource-drop]output-stream" (func $drop_stream (param i32)))
    (import "wasi:cli/stderr@0.2.12" "get-stderr" (func $stderr (result i32)))
    (import "wasi:sockets/instance-network@0.2.12" "instance-network" (func $network (result i32)))
    (import "wasi:sockets/ip-name-lookup@0.2.12" "resolve-addresses" (func $resolve (param i32 i32 i32 i32)))
"#;

/// A guest with two million letters from 131072 on, the first of which is a slash, and the name of a header at 2048.
fn guest(body: &str) -> Guest {
    Guest::new(&format!(
        "(local $r i32) (local $s i32) (local $i i32)
        (memory.fill (i32.const 131072) (i32.const 65) (i32.const 2000000)) (i32.store8 (i32.const 131072) (i32.const 47)) {body}"
    ))
    .imports(IMPORTS)
    .outside("(data (i32.const 2048) \"x\")")
    .pages(40)
}

/// A request with the longest path that it may have, and the longest authority.
const LONG_REQUEST: &str = "(local.set $r (call $request (call $fields)))
    (drop (call $set_path_with_query (local.get $r) (i32.const 1) (i32.const 131072) (i32.const 8192)))
    (drop (call $set_authority (local.get $r) (i32.const 1) (i32.const 131073) (i32.const 8192)))";

/// Headers of 15 KiB in `$r`: the value has no slash, which is none of theirs to give a meaning.
const LONG_HEADERS: &str = "(local.set $r (call $fields))
    (call $append (local.get $r) (i32.const 2048) (i32.const 1) (i32.const 131072) (i32.const 15360) (i32.const 32768))";

/// Every guest whose call must break.
pub(super) fn all() -> Vec<Evil> {
    [keep(), pass_on()].into_iter().flatten().collect()
}

fn evil(name: &'static str, cause: Cause, body: &str) -> Evil {
    Evil { name, cause, guest: guest(body) }
}

fn for_ever(each: &str) -> String {
    format!("(loop {each} (br 0)) (unreachable)")
}

/// Guests that pass large arguments to functions that keep none of them.
fn pass_on() -> Vec<Evil> {
    let on_fields = |each: &str| format!("(local.set $r (call $fields)) {}", for_ever(each));
    vec![
        evil(
            "reads a header with a long name",
            Cause::HostCalls,
            &on_fields("(call $get (local.get $r) (i32.const 131073) (i32.const 1000000) (i32.const 32768))"),
        ),
        evil(
            "looks for a header with a long name",
            Cause::HostCalls,
            &on_fields("(drop (call $has (local.get $r) (i32.const 131073) (i32.const 1000000)))"),
        ),
        evil(
            "deletes a header with a long name",
            Cause::HostCalls,
            &on_fields("(call $delete (local.get $r) (i32.const 131073) (i32.const 1000000) (i32.const 32768))"),
        ),
        evil(
            "sets a header with a long name to no values",
            Cause::HostCalls,
            &on_fields(
                "(call $set (local.get $r) (i32.const 131073) (i32.const 1000000) (i32.const 0) (i32.const 0) (i32.const 32768))",
            ),
        ),
        evil(
            "resolves a long name",
            Cause::HostCalls,
            &format!(
                "(local.set $r (call $network)) {}",
                for_ever("(call $resolve (local.get $r) (i32.const 131073) (i32.const 1000000) (i32.const 32768))")
            ),
        ),
    ]
}

/// Guests that leave with the host more than one call may exchange with it.
fn keep() -> Vec<Evil> {
    vec![
        evil("keeps requests with the longest addresses", Cause::HostCalls, &for_ever(LONG_REQUEST)),
        evil("keeps long headers", Cause::HostCalls, &for_ever(LONG_HEADERS)),
        evil(
            "keeps long headers that it sets",
            Cause::HostCalls,
            &for_ever(
                "(i32.store (i32.const 32768) (i32.const 131072)) (i32.store (i32.const 32772) (i32.const 15360))
                (call $set (call $fields) (i32.const 2048) (i32.const 1) (i32.const 32768) (i32.const 1) (i32.const 32800))",
            ),
        ),
        evil(
            "keeps long headers that it makes of lists",
            Cause::HostCalls,
            &for_ever(
                "(i32.store (i32.const 32768) (i32.const 2048)) (i32.store (i32.const 32772) (i32.const 1))
                (i32.store (i32.const 32776) (i32.const 131072)) (i32.store (i32.const 32780) (i32.const 15360))
                (call $fields_of (i32.const 32768) (i32.const 1) (i32.const 32800))",
            ),
        ),
        evil(
            "keeps copies of long headers",
            Cause::HostCalls,
            &format!("{LONG_HEADERS} {}", for_ever("(drop (call $copy (local.get $r)))")),
        ),
        evil(
            "leaves bodies in requests that it never sends",
            Cause::HostCalls,
            &for_ever(
                "(call $body (call $request (call $fields)) (i32.const 32768))
                (call $body_stream (i32.load (i32.const 32772)) (i32.const 32776))
                (local.set $s (i32.load (i32.const 32780)))
                (call $check_write (local.get $s) (i32.const 32784))
                (call $write (local.get $s) (i32.const 131072) (i32.const 65536) (i32.const 32784))
                (call $check_write (local.get $s) (i32.const 32784))
                (call $write (local.get $s) (i32.const 131072) (i32.const 65536) (i32.const 32784))
                (call $drop_stream (local.get $s)) (call $drop_body (i32.load (i32.const 32772)))",
            ),
        ),
        evil(
            "reads a large value of its state again and again",
            Cause::HostCalls,
            &format!(
                "(call $state_set (i32.const 131073) (i32.const 1) (i32.const 131073) (i32.const 1000000) (i32.const 32768)) {}",
                for_ever("(call $state_get (i32.const 131073) (i32.const 1) (i32.const 32768))")
            ),
        ),
        evil(
            "writes to its standard error without end",
            Cause::HostCalls,
            &format!(
                "(local.set $s (call $stderr)) {}",
                for_ever("(call $write (local.get $s) (i32.const 131072) (i32.const 65536) (i32.const 32784))")
            ),
        ),
        evil(
            "writes more to its standard error than it may at once",
            Cause::Trap,
            "(call $write (call $stderr) (i32.const 131072) (i32.const 65537) (i32.const 32784)) (call $done)",
        ),
    ]
}

#[tokio::test]
async fn arguments_count_even_if_the_host_keeps_none_of_them() {
    for Evil { name, guest, .. } in pass_on() {
        let report = called(&guest, LIMITS).await;
        let failure = failure(&report);
        assert!(failure.message.contains("exchanged more than 4194304 bytes with the host"), "a guest that {name}: {failure}");
        assert!(report.used.host_calls < 20, "a guest that {name}: {:?}", report.used);
    }
}

#[tokio::test]
async fn a_part_of_a_request_that_is_too_long_for_any_is_refused_and_what_is_kept_counts() {
    for (part, before, at, longest) in [
        ("method", "(i32.const 9)", 131_073, 64),
        ("scheme", "(i32.const 1) (i32.const 2)", 131_073, 64),
        ("authority", "(i32.const 1)", 131_073, 8_192),
        ("path_with_query", "(i32.const 1)", 131_072, 8_192),
    ] {
        for (length, refused) in [(longest, false), (longest + 1, true), (1_900_000, true)] {
            let body = format!(
                "(if (call $set_{part} (call $request (call $fields)) {before} (i32.const {at}) (i32.const {length}))
                    (then (return (call $dead (i32.const 131073) (i32.const 3)))))
                (call $done)"
            );
            let report = called(&guest(&body), LIMITS).await;
            let outcome = if refused { Outcome::Dead("AAA".to_owned()) } else { Outcome::Done };
            assert_eq!(report.outcome, outcome, "a {part} of {length} bytes");
            assert!(report.used.host_bytes >= length, "a {part} of {length} bytes: {:?}", report.used);
        }
    }
}

/// An endpoint that says much in the head of its response.
struct LongHead;

const HEAD: usize = 4_000;

#[async_trait::async_trait]
impl HttpStandIn for LongHead {
    async fn send(&self, _: http::Request<Bytes>) -> Result<http::Response<Bytes>, String> {
        Ok(http::Response::builder().header("x-long", "x".repeat(HEAD)).body(Bytes::new()).expect("a good response"))
    }
}

#[tokio::test]
async fn the_headers_of_a_response_count_each_time_that_a_guest_takes_them() {
    const TIMES: usize = 100;
    // A response lies behind an option, a result and a result, each of which has its place in eight bytes.
    let body = format!(
        "(local $r i32) (local $i i32) (local.set $r (call $request (call $fields)))
        (drop (call $set_authority (local.get $r) (i32.const 1) (i32.const 2049) (i32.const 1)))
        (drop (call $set_path_with_query (local.get $r) (i32.const 1) (i32.const 2048) (i32.const 1)))
        (call $handle (local.get $r) (i32.const 0) (i32.const 0) (i32.const 32768))
        (if (i32.load8_u (i32.const 32768)) (then unreachable))
        (local.set $r (i32.load (i32.const 32776)))
        (call $block (call $response_ready (local.get $r)))
        (call $response (local.get $r) (i32.const 32800))
        (if (i32.or (i32.load8_u (i32.const 32808)) (i32.load8_u (i32.const 32816))) (then unreachable))
        (local.set $r (i32.load (i32.const 32824)))
        (loop (call $drop_fields (call $headers_of (local.get $r)))
            (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {TIMES}))))
        (call $done)"
    );
    let guest = Guest::new(&body).imports(IMPORTS).outside("(data (i32.const 2048) \"/a\")");
    let host = load(guest.build(), &format!("{LIMITS}\n[http]\nallow = [\"https://a\"]")).await.expect("it loads");

    let report = host.with_http(Arc::new(LongHead)).call(event("Evil", "Deed")).await;

    assert_eq!(report.outcome, Outcome::Done);
    assert!(report.used.host_bytes > (TIMES * HEAD) as u64, "{:?}", report.used);
}

#[tokio::test]
async fn an_instance_that_leaves_much_with_the_host_is_called_once() {
    let forty = |each: &str| {
        format!(
            "(loop {each} (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 40)))) (call $done)"
        )
    };
    let line = "(call $write (call $stderr) (i32.const 131072) (i32.const 1) (i32.const 32784)) (call $done)";
    for (what, body, second) in [
        ("requests", forty(LONG_REQUEST), InstanceUse::Fresh),
        ("headers", forty(LONG_HEADERS), InstanceUse::Fresh),
        ("many handles", forty("(drop (call $stderr))").replace("40", "300"), InstanceUse::Fresh),
        ("its standard error", line.to_owned(), InstanceUse::Kept),
    ] {
        let host = load(guest(&body).build(), LIMITS).await.expect("it loads");
        for instance in [InstanceUse::Fresh, second] {
            let report = host.call(Call::from(event("Evil", "Deed")).kept()).await;
            assert_eq!((report.outcome, report.instance), (Outcome::Done, instance), "one that leaves {what}");
        }
    }
}

#[tokio::test]
async fn what_describe_leaves_with_the_host_counts() {
    let describe =
        format!("(local $r i32) (loop {LONG_REQUEST} (br_if 0 (i32.lt_u (local.get $r) (i32.const 400)))) (i32.const 1024)");
    let refused = load(guest("(call $done)").describe(&describe).build(), LIMITS).await.expect_err("it keeps too much");
    assert!(refused.to_string().contains("exchanged more than 4194304 bytes with the host"), "{refused}");
}

#[tokio::test]
async fn a_request_to_nowhere_is_refused_before_wasmtime_warns_of_it() {
    // An error has its number at 8.
    let handle = "(call $handle (local.get $r) (i32.const 0) (i32.const 0) (i32.const 32768))
        (if (i32.eqz (i32.load8_u (i32.const 32768))) (then (return (call $done))))
        (call $later (i32.mul (i32.const 1000) (i32.load8_u (i32.const 32776))))";
    let path = "(drop (call $set_path_with_query (local.get $r) (i32.const 1) (i32.const 131072) (i32.const 1)))";
    let authority = "(drop (call $set_authority (local.get $r) (i32.const 1) (i32.const 131073) (i32.const 1)))";
    const URI_INVALID: u64 = 19;
    let invalid = || Outcome::RetryAfter(std::time::Duration::from_secs(URI_INVALID));
    for (parts, outcome) in [
        (String::new(), invalid()),
        (path.to_owned(), invalid()),
        (authority.to_owned(), invalid()),
        (format!("{path} {authority}"), Outcome::Done),
    ] {
        let report = called(&guest(&format!("(local.set $r (call $request (call $fields))) {parts} {handle}")), LIMITS).await;
        assert_eq!(report.outcome, outcome, "{parts}");
    }
}

#[tokio::test]
async fn lines_beyond_the_budget_cost_next_to_nothing_however_many_secrets_there_are() {
    // A million lines, by 64 KiB.
    let body = "(local.set $s (call $stderr))
        (loop (i32.store16 (i32.add (i32.const 131072) (local.get $i)) (i32.const 0x0a78))
            (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 2))) (i32.const 65536))))
        (local.set $i (i32.const 0))
        (loop (call $write (local.get $s) (i32.const 131072) (i32.const 65536) (i32.const 32784))
            (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 30))))
        (call $done)";
    let key: String = (0..64).map(|line| format!("{line:064}\\n")).collect();
    let manifest = format!("[secrets]\nkey = \"{key}\"\n[limits]\ndeadline = \"5s\"");
    let report = called(&guest(body), &manifest).await;
    assert_eq!(report.outcome, Outcome::Done, "in {:?}", report.took);
    assert_eq!((report.lines.len(), report.lines_dropped), (100, 30 * 32_768 - 100));
}
