//! Values that writers set by habit in a plain INSERT: the database refuses them by a name that says why, or the event is delivered.
//!
//! Each value is tried alone, and random ones are tried together: `OUTBOX_TEST_CASES=5000` tries so many rows.

use std::collections::BTreeMap;

use outbox::Status;
use outbox::store::{Expectations, Filter, Severity};
use rand::RngExt;
use rand::rngs::StdRng;
use support::{Database, Recorder, Seed, eventually, generated_cases};

use crate::common::{HOUR, ROUTE, outbox};

/// The fate of an INSERT.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// The database refuses it, with an error that contains this.
    Refused(&'static str),
    /// A listener gets it.
    Delivered,
    /// The event is DEAD, with an error that contains this.
    Dead(&'static str),
    /// It is not due for hours, as its writer asked.
    Later,
}

use Fate::{Dead, Delivered, Later, Refused};

/// A column, its value in SQL, and what becomes of the event.
type Case = (&'static str, &'static str, Fate);

const EVERYWHERE: &[Case] = &[
    ("event_id", "'a'", Delivered),
    ("event_id", "'550e8400-e29b-41d4-a716-446655440000'", Delivered),
    ("aggregate_id", "''", Delivered),
    ("aggregate_id", "'ü'", Delivered),
    ("aggregate_id", "' '", Delivered),
    ("tenant_id", "'ü'", Delivered),
    ("headers", "'{}'", Delivered),
    ("headers", "'{\"a\":\"b\"}'", Delivered),
    ("headers", "''", Delivered),
    ("headers", "'null'", Delivered),
    ("headers", "'nul'", Dead("headers")),
    ("headers", "'{\"a\":1}'", Dead("headers")),
    ("headers", "'[]'", Dead("headers")),
    ("content_type", "'text/plain'", Delivered),
    ("content_type", "'ü'", Delivered),
    ("event_type", "''", Dead("event_type")),
    ("aggregate_type", "'*'", Dead("*")),
    ("attempts", "-1", Dead("attempts")),
    ("deferrals", "-1", Delivered),
    ("claims", "-1", Delivered),
    ("starts", "-1", Delivered),
    ("replays", "-1", Delivered),
    ("attempts", "2147483647", Delivered),
    ("deferrals", "2147483647", Delivered),
    ("replays", "2147483647", Delivered),
];

const SQLITE: &[Case] = &[
    ("seq", "-5", Refused("seq_is_positive")),
    ("event_id", "''", Refused("event_id_has_1_to_36_visible_ascii_characters")),
    ("event_id", "'ü'", Refused("event_id_has_1_to_36_visible_ascii_characters")),
    ("event_id", "'a b'", Refused("event_id_has_1_to_36_visible_ascii_characters")),
    ("event_id", "'a' || char(10)", Refused("event_id_has_1_to_36_visible_ascii_characters")),
    ("event_id", "'a' || char(0)", Refused("event_id_has_1_to_36_visible_ascii_characters")),
    ("event_id", "char(0) || 'a'", Refused("event_id_has_1_to_36_visible_ascii_characters")),
    ("event_id", "'550e8400-e29b-41d4-a716-4466554400000'", Refused("event_id_has_1_to_36_visible_ascii_characters")),
    ("event_id", "randomblob(16)", Refused("cannot store BLOB value in TEXT column outbox_event.event_id")),
    ("event_id", "4711", Delivered),
    ("aggregate_id", "randomblob(16)", Refused("cannot store BLOB value in TEXT column outbox_event.aggregate_id")),
    ("aggregate_id", "char(0) || 'a'", Refused("aggregate_id_does_not_begin_with_nul")),
    ("aggregate_id", "'a' || char(0)", Delivered),
    ("aggregate_id", "42", Delivered),
    ("aggregate_id", "1.5", Delivered),
    ("headers", "x'7b7d'", Refused("cannot store BLOB value in TEXT column outbox_event.headers")),
    ("payload", "x'00ff'", Delivered),
    ("payload", "5", Refused("payload_is_a_blob_or_text")),
    ("created_at", "CURRENT_TIMESTAMP", Refused("cannot store TEXT value in INTEGER column outbox_event.created_at")),
    ("created_at", "julianday('now')", Refused("cannot store REAL value in INTEGER column outbox_event.created_at")),
    ("created_at", "unixepoch()", Refused("times_are_in_microseconds")),
    ("created_at", "unixepoch() * 1000", Refused("times_are_in_microseconds")),
    ("created_at", "unixepoch() * 1000000000", Refused("times_are_in_microseconds")),
    ("created_at", "strftime('%s', 'now')", Refused("times_are_in_microseconds")),
    ("created_at", "unixepoch() * 1000000", Delivered),
    ("created_at", "(unixepoch() + 20000) * 1000000", Delivered),
    ("created_at", "0", Delivered),
    ("occurred_at", "CURRENT_TIMESTAMP", Refused("cannot store TEXT value in INTEGER column outbox_event.occurred_at")),
    ("occurred_at", "unixepoch()", Delivered),
    ("occurred_at", "63072000000000", Delivered),
    ("occurred_at", "(unixepoch() + 20000) * 1000000", Delivered),
    ("occurred_at", "-2208988800000000", Delivered),
    (
        "available_at",
        "datetime('now', '+1 hour')",
        Refused("cannot store TEXT value in INTEGER column outbox_event.available_at"),
    ),
    ("available_at", "unixepoch() + 3600", Refused("times_are_in_microseconds")),
    ("available_at", "(unixepoch() + 3600) * 1000", Refused("times_are_in_microseconds")),
    ("available_at", "(unixepoch() + 86400) * 1000000", Later),
    ("available_at", "0", Delivered),
    ("due_at", "NULL", Refused("what_is_unfinished_is_due_or_waits")),
    ("due_at", "CURRENT_TIMESTAMP", Refused("cannot store TEXT value in INTEGER column outbox_event.due_at")),
    ("due_at", "unixepoch()", Refused("times_are_in_microseconds")),
    ("due_at", "0", Delivered),
    ("due_at", "(unixepoch() + 20000) * 1000000", Later),
    ("expires_at", "datetime('now', '+1 hour')", Refused("cannot store TEXT value in INTEGER column outbox_event.expires_at")),
    ("expires_at", "(unixepoch() + 3600) * 1000", Refused("times_are_in_microseconds")),
    ("expires_at", "253402300799999", Refused("times_are_in_microseconds")),
    ("expires_at", "(unixepoch() - 3600) * 1000000", Dead("expired")),
    ("status", "1", Refused("only_unfinished_events_are_due")),
    ("status", "7", Refused("only_unfinished_events_are_due")),
    ("status", "'NEW'", Refused("cannot store TEXT value in INTEGER column outbox_event.status")),
    ("attempts", "'none'", Refused("cannot store TEXT value in INTEGER column outbox_event.attempts")),
    ("attempts", "5000000000", Dead("attempts")),
    ("claim_seq", "-1", Refused("claim_seq_is_below_2_to_the_62")),
    ("claim_seq", "9223372036854775807", Refused("claim_seq_is_below_2_to_the_62")),
    ("claim_seq", "17", Delivered),
    ("locked_by", "'me'", Refused("what_is_held_has_a_lease")),
    ("locked_by, lease_end", "'me', 9223372036854775807", Refused("what_is_held_was_claimed")),
];

const POSTGRES: &[Case] = &[
    ("event_id", "''", Refused("event_id_has_only_visible_ascii_characters")),
    ("event_id", "'ü'", Refused("event_id_has_only_visible_ascii_characters")),
    ("event_id", "'a b'", Refused("event_id_has_only_visible_ascii_characters")),
    ("event_id", "E'a\\n'", Refused("event_id_has_only_visible_ascii_characters")),
    ("event_id", "'550e8400-e29b-41d4-a716-4466554400000'", Refused("value too long for type character varying(36)")),
    ("event_id", "gen_random_uuid()", Delivered),
    ("seq", "5", Refused("cannot insert a non-DEFAULT value into column \"seq\"")),
    ("created_at", "now() + interval '5 hours 30 minutes'", Delivered),
    ("created_at", "now()::timestamp", Delivered),
    ("created_at", "'infinity'", Delivered),
    ("created_at", "'-infinity'", Delivered),
    ("created_at", "'4713-01-01 BC'", Delivered),
    ("created_at", "'294276-12-31'", Delivered),
    ("occurred_at", "now() + interval '5 hours 30 minutes'", Delivered),
    ("occurred_at", "'infinity'", Delivered),
    ("occurred_at", "'-infinity'", Delivered),
    ("occurred_at", "'294276-12-31'", Delivered),
    ("available_at", "now() + interval '1 day'", Later),
    ("available_at", "'infinity'", Later),
    ("available_at", "'-infinity'", Delivered),
    ("due_at", "NULL", Refused("what_is_unfinished_is_due_or_waits")),
    ("due_at", "'-infinity'", Delivered),
    ("expires_at", "now() - interval '1 hour'", Dead("expired")),
    ("expires_at", "'infinity'", Delivered),
    ("expires_at", "'-infinity'", Dead("expired")),
    ("status", "1", Refused("only_unfinished_events_are_due")),
    ("status", "7", Refused("only_unfinished_events_are_due")),
    ("claim_seq", "-1", Refused("claim_seq_is_below_2_to_the_62")),
    ("claim_seq", "9223372036854775807", Refused("claim_seq_is_below_2_to_the_62")),
    ("claim_seq", "17", Delivered),
    ("locked_by", "'me'", Refused("what_is_held_has_a_lease")),
    ("locked_by, lease_end", "'me', 'infinity'", Refused("what_is_held_was_claimed")),
];

const MYSQL: &[Case] = &[
    ("event_id", "''", Refused("outbox_event_id_ascii")),
    ("event_id", "'ü'", Refused("outbox_event_id_ascii")),
    ("event_id", "'a b'", Refused("outbox_event_id_ascii")),
    ("event_id", "CONCAT('a', CHAR(10 USING utf8mb4))", Refused("outbox_event_id_ascii")),
    ("event_id", "CONCAT('a', CHAR(0 USING utf8mb4))", Refused("outbox_event_id_ascii")),
    ("event_id", "'550e8400-e29b-41d4-a716-4466554400000'", Refused("Data too long for column 'event_id'")),
    ("event_id", "x'00ff00ff00ff00ff00ff00ff00ff00ff'", Refused("Incorrect string value")),
    ("event_id", "4711", Delivered),
    ("aggregate_id", "42", Delivered),
    ("payload", "5", Delivered),
    ("seq", "0", Delivered),
    ("seq", "-5", Refused("Out of range value for column 'seq'")),
    ("seq", "9223372036854775818", Delivered),
    ("behind", "-5", Refused("Out of range value for column 'behind'")),
    ("created_at", "UTC_TIMESTAMP(6) + INTERVAL 330 MINUTE", Delivered),
    ("created_at", "'0001-01-01'", Delivered),
    ("created_at", "'9999-12-31 23:59:59.999999'", Delivered),
    ("created_at", "0", Refused("outbox_event_times_valid")),
    ("created_at", "'0000-00-00'", Refused("outbox_event_times_valid")),
    ("created_at", "'2026-11-00'", Refused("outbox_event_times_valid")),
    ("occurred_at", "UTC_TIMESTAMP(6) + INTERVAL 330 MINUTE", Delivered),
    ("occurred_at", "'0000-00-00'", Refused("outbox_event_times_valid")),
    ("available_at", "UTC_TIMESTAMP(6) + INTERVAL 1 DAY", Later),
    ("available_at", "'0000-00-00'", Refused("outbox_event_times_valid")),
    ("due_at", "NULL", Refused("outbox_event_due_or_waiting")),
    ("due_at", "'0000-00-00'", Refused("outbox_event_times_valid")),
    ("due_at", "'2026-00-01'", Refused("outbox_event_times_valid")),
    ("due_at", "'0001-01-01'", Delivered),
    ("due_at", "UTC_TIMESTAMP(6) + INTERVAL 330 MINUTE", Later),
    ("claim_seq, due_at", "1, '0000-00-00'", Refused("outbox_event_times_valid")),
    ("expires_at", "'0000-00-00'", Refused("outbox_event_times_valid")),
    ("expires_at", "UTC_TIMESTAMP(6) - INTERVAL 1 HOUR", Dead("expired")),
    ("status", "1", Refused("outbox_event_due_unfinished")),
    ("status", "7", Refused("outbox_event_due_unfinished")),
    ("claim_seq", "-1", Refused("outbox_event_claim_seq")),
    ("claim_seq", "9223372036854775807", Refused("outbox_event_claim_seq")),
    ("claim_seq", "17", Delivered),
    ("locked_by", "'me'", Refused("outbox_event_held_has_lease")),
    ("locked_by, lease_end", "'me', '9999-12-31'", Refused("outbox_event_held_claimed")),
];

/// How many rows with random values are written.
const ROWS: usize = 40;

/// A row, by the cases that it is made of.
type Row = Vec<Case>;

/// A row of several columns, each with a value of one of these cases. Columns whose checks depend on each other are left out, and values
/// that can be in one row only.
fn random_row(chance: &mut StdRng, cases: &[Case]) -> Row {
    let alone = ["seq", "tenant_id", "status", "claim_seq", "locked_by"];
    let count = chance.random_range(2..=5);
    let mut row = Row::new();
    while row.len() < count {
        let case = cases[chance.random_range(0..cases.len())];
        let (column, _, fate) = case;
        let is_alone = column.contains(',') || alone.contains(&column);
        let is_unique = column == "event_id" && !matches!(fate, Refused(_));
        let is_there = row.iter().any(|(other, ..)| *other == column);
        // Whether an event is dead before its time comes is not said here.
        let of_time = |fate: &Fate| matches!(fate, Later);
        let is_dead = |fate: &Fate| matches!(fate, Dead(_));
        let conflicts = |(_, _, other): &Case| of_time(other) && is_dead(&fate) || is_dead(other) && of_time(&fate);
        if !is_alone && !is_unique && !is_there && !row.iter().any(conflicts) {
            row.push(case);
        }
    }
    row
}

/// Why the database refuses the row; empty if it does not.
fn refusals(row: &[Case]) -> Vec<&'static str> {
    let why = |case: &Case| if let Refused(why) = case.2 { Some(why) } else { None };
    row.iter().filter_map(why).collect()
}

/// Why the event is dead; empty if it is not.
fn deaths(row: &[Case]) -> Vec<&'static str> {
    let why = |case: &Case| if let Dead(why) = case.2 { Some(why) } else { None };
    row.iter().filter_map(why).collect()
}

fn is_later(row: &[Case]) -> bool {
    row.iter().any(|case| matches!(case.2, Later))
}

/// The statement of a row. The tenant tells the rows apart.
fn insert(tenant: usize, row: &[Case]) -> String {
    let mut all: Vec<(&str, String)> = row.iter().map(|(columns, values, _)| (*columns, (*values).to_owned())).collect();
    let defaults = [
        ("event_type", "'OrderPlaced'".to_owned()),
        ("aggregate_type", "'Order'".to_owned()),
        ("payload", "'1'".to_owned()),
        ("tenant_id", format!("'case {tenant}'")),
    ];
    for (column, value) in defaults {
        if row.iter().all(|(columns, ..)| *columns != column) {
            all.push((column, value));
        }
    }
    let (columns, values): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    format!("INSERT INTO outbox_event ({}) VALUES ({})", columns.join(", "), values.join(", "))
}

pub(crate) async fn whatever_a_plain_insert_says_is_refused_by_name_or_delivered<D: Database>(db: &D) {
    let of_this_database = match db.store().kind() {
        "sqlite" => SQLITE,
        "postgres" => POSTGRES,
        _ => MYSQL,
    };
    if db.store().kind() == "mysql" {
        db.execute("SET SESSION sql_mode = 'STRICT_TRANS_TABLES,ALLOW_INVALID_DATES'").await;
    }
    let seed = Seed::of_this_run();
    let mut chance = seed.choices_of("rows of a plain insert");
    let cases: Vec<Case> = EVERYWHERE.iter().chain(of_this_database).copied().collect();
    let mut rows: Vec<Row> = cases.iter().map(|case| vec![*case]).collect();
    rows.extend((0..generated_cases(ROWS)).map(|_| random_row(&mut chance, &cases)));
    let again = format!("OUTBOX_TEST_SEED={}", seed.number());
    let mut wrong = Vec::new();
    let mut accepted = BTreeMap::new();
    for (tenant, row) in rows.iter().enumerate() {
        let refusals = refusals(row);
        match db.try_execute(&insert(tenant, row)).await {
            Err(error) if refusals.iter().any(|why| error.to_string().contains(why)) => {}
            Ok(_) if refusals.is_empty() => {
                let names_tenant = row.iter().any(|(columns, ..)| *columns == "tenant_id");
                accepted.insert(if names_tenant { "ü".to_owned() } else { format!("case {tenant}") }, row);
            }
            result => wrong.push(format!("{row:?}: {result:?}")),
        }
    }
    assert!(wrong.is_empty(), "{again}: {wrong:#?}");

    let recorder = Recorder::done();
    let host = outbox(db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let store = db.store();
    let list = async || store.list(&Filter::default(), 10_000).await.expect("all rows can be listed");
    let late = accepted.values().filter(|row| is_later(row)).count();
    let open = |status: Status| matches!(status, Status::New | Status::Retry);
    eventually(&format!("{again}: only what is due later is left"), async || {
        list().await.iter().filter(|row| open(row.status)).count() == late
    })
    .await;

    let stored = list().await;
    assert_eq!(stored.len(), accepted.len(), "{again}");
    let mut delivered = 0;
    for record in stored {
        assert_eq!(record.unreadable, None, "{again}: {record:?}");
        let row = accepted[record.tenant_id.as_deref().expect("each row has one")];
        let deaths = deaths(row);
        let is_as_said = if is_later(row) {
            record.status == Status::New
        } else if deaths.is_empty() {
            delivered += 1;
            record.status == Status::Done
        } else {
            let error = record.last_error.as_deref().unwrap_or_default();
            record.status == Status::Dead && deaths.iter().any(|why| error.contains(why))
        };
        assert!(is_as_said, "{again}: {row:?}: {record:#?}");
        assert!(store.get(record.event_id).await.expect("can be read").is_some());
    }
    assert_eq!(recorder.count(), delivered, "{again}: each that is DONE was with the listener, once");
    let stats = store.stats().await.expect("counts");
    assert_eq!(usize::try_from(stats.new + stats.retry).expect("few"), late);
    let host_is = Expectations { lease: HOUR, deadline: HOUR / 2, max_payload: 1 << 20, connections: 5, index: None };
    let findings = store.diagnose(&host_is).await.expect("diagnoses");
    assert!(findings.iter().all(|finding| finding.severity != Severity::Fault), "{findings:#?}");
    host.shutdown().await;
}
