//! PostgreSQL bounds what a plain INSERT may say: no row keeps a host, or the events behind it, for ever.

use outbox::store::Settled;
use sqlx::AssertSqlSafe;
use support::{Harness, Postgres};

use crate::common::{claim, dead};

/// Text that cannot be packed: PostgreSQL packs a repeated letter. Each letter has as many bytes as the one that it begins with.
fn noise(letters: usize, first: char) -> String {
    let mut state = 1_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from_u32(u32::from(first) + u32::try_from((state >> 33) % 26).unwrap_or(0)).expect("a letter")
    };
    std::iter::repeat_with(&mut letter).take(letters).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_insert_of_a_text_that_no_host_could_be_done_with_is_refused() {
    let db = Postgres::fresh().await;
    let insert = async |column: &str, text: &str| {
        let insert = format!(
            "INSERT INTO outbox_event ({column}, {}payload) VALUES ($1, {}'x')",
            if column == "event_type" { "" } else { "event_type, " },
            if column == "event_type" { "" } else { "'OrderPlaced', " },
        );
        sqlx::query(AssertSqlSafe(insert)).bind(text).execute(db.other_program()).await.map_err(|error| error.to_string())
    };

    const NAMES: &[&str] = &["event_type", "aggregate_type", "aggregate_id", "tenant_id", "content_type"];
    const REASONS: &[&str] = &["parked", "last_error", "last_cost"];
    for (columns, most, first, why) in [
        (NAMES, 255, '\u{10900}', "value too long for type character varying(255)"),
        (REASONS, 65_535, 'a', "reasons_have_at_most_65535_bytes"),
    ] {
        for column in columns {
            let refused = insert(column, &noise(most + 1, first)).await.expect_err(column);
            assert!(refused.contains(why), "{column}: {refused}");
            insert(column, &noise(most, first)).await.unwrap_or_else(|error| panic!("{column}: {error}"));
        }
    }

    let claimed = claim(&db, 10).await;
    let given_up: Vec<Settled> = claimed.iter().map(|one| Settled::new(one.fence, dead("too long a name"))).collect();
    assert_eq!(given_up.len(), 8, "each was written once, and none that was refused");
    assert_eq!(db.store().settle(&given_up).await.expect("the longest names fit into every index"), 0, "none is lost");
}

/// What a row could say, as columns and values, to stand before all others for ever in one queue of all events; and what refuses it.
const GHOSTS: [(&str, &str, &str); 5] = [
    ("due_at", "NULL", "what_is_unfinished_is_due_or_waits"),
    ("due_at", "'infinity'", "what_nobody_has_claimed_is_due_once_available"),
    ("due_at, available_at", "'infinity', '-infinity'", "what_nobody_has_claimed_is_due_once_available"),
    ("locked_by, lease_end", "'nobody', 'infinity'", "what_is_held_was_claimed"),
    ("status, due_at", "2, NULL", "what_is_unfinished_is_due_or_waits"),
];

fn ghost(columns: &str, values: &str) -> String {
    format!(
        "INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload, {columns}) VALUES ('X', 'Order', '1', 'x', {values})"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_insert_of_an_event_that_would_stand_before_others_for_ever_is_refused() {
    let db = Postgres::fresh().await;
    for (columns, values, constraint) in GHOSTS {
        let refused = sqlx::query(AssertSqlSafe(ghost(columns, values))).execute(db.other_program()).await;
        let refused = refused.map(drop).expect_err(columns).to_string();
        assert!(refused.contains(constraint), "{columns} {values}: {refused}");
    }
    for (columns, values) in [("available_at", "now() + interval '1 day'"), ("available_at, due_at", "'infinity', 'infinity'")]
    {
        db.execute(&ghost(columns, values)).await;
    }
}
