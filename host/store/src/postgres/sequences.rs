//! The sequences that number the rows of the tables.

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row};

use super::{PostgresStore, Run};
use crate::row::Named;
use crate::{Expectations, Finding, LaggingSequence, StoreError};

/// The largest number of each table that numbers its rows, and the sequence, quoted: NULL if this user may not read it.
const NUMBERED: &str = "
WITH numbered AS (
  SELECT 'outbox_event' AS name, 'seq' AS number, (SELECT max(seq) FROM outbox_event) AS largest,
         pg_get_serial_sequence('outbox_event', 'seq')::regclass AS sequence
  UNION ALL
  SELECT 'outbox_event_audit', 'id', (SELECT max(id) FROM outbox_event_audit),
         pg_get_serial_sequence('outbox_event_audit', 'id')::regclass)
SELECT name, number, coalesce(largest, 0) AS largest,
       CASE WHEN has_sequence_privilege(sequence, 'SELECT') THEN sequence::text END AS sequence,
       seqcache AS cache, seqincrement AS increment, seqmax AS most
FROM numbered JOIN pg_sequence ON seqrelid = sequence";

/// A sequence that gives fewer numbers than this is near its end.
const FEW_NUMBERS: i64 = 1_000_000;

/// A table that numbers its rows by a sequence.
pub(super) struct Numbered {
    table: String,
    column: String,
    /// The largest number in the table; 0 if it is empty.
    largest: i64,
    /// The sequence; `None` if this user may not read it.
    sequence: Option<Sequence>,
}

struct Sequence {
    /// Quoted, as a statement names it.
    name: String,
    /// The number that it gives next.
    next: i64,
    /// How many numbers a session takes at once.
    cache: i64,
    increment: i64,
    /// The largest number that it gives.
    most: i64,
}

/// The tables that number their rows; empty if this user may not read them, which the finding `grants` says.
pub(super) async fn numbered(store: &PostgresStore) -> Result<Vec<Numbered>, StoreError> {
    const ACTION: &str = "look at the sequences";
    let numbered = |row: &PgRow| {
        let name: Option<String> = row.try_get("sequence")?;
        let [cache, increment, most] = [row.try_get("cache")?, row.try_get("increment")?, row.try_get("most")?];
        Ok(Numbered {
            table: row.string("name")?,
            column: row.string("number")?,
            largest: row.try_get("largest")?,
            sequence: name.map(|name| Sequence { name, next: 0, cache, increment, most }),
        })
    };
    let mut all = match store.read_all(ACTION, store.statement(NUMBERED), numbered).await {
        Err(StoreError::Forbidden { .. }) => return Ok(Vec::new()),
        found => found?,
    };
    for sequence in all.iter_mut().filter_map(|one| one.sequence.as_mut()) {
        // The functions that take a sequence as a value do not tell the next number of one that has given none since a restart.
        let next = format!(
            "SELECT CASE WHEN is_called THEN last_value::numeric + {} ELSE last_value END AS next FROM {}",
            sequence.increment, sequence.name
        );
        let bounded = format!("SELECT least(next, 9223372036854775807)::bigint AS next FROM ({next}) AS given");
        let statement = sqlx::query(AssertSqlSafe(bounded)).persistent(false);
        sequence.next = store.one(ACTION, statement).await?.try_get("next").map_err(|error| store.failed(ACTION, error))?;
    }
    Ok(all)
}

impl Numbered {
    /// `None` if the sequence is not behind its table, or this user may not read it.
    pub(super) fn lagging(&self) -> Option<LaggingSequence> {
        let next = self.sequence.as_ref()?.next;
        let Self { table, column, largest, .. } = self;
        (next <= *largest).then(|| LaggingSequence { table: table.clone(), column: column.clone(), largest: *largest, next })
    }

    /// The fault of the sequence, if any. `is_ordered`: whether events are delivered in the order of their numbers.
    fn finding(&self, is_ordered: bool) -> Option<Finding> {
        const CHECK: &str = "sequences";
        let Self { table, column, .. } = self;
        let Sequence { name, next, cache, increment, most } = self.sequence.as_ref()?;
        let fault =
            |found: String, fix: String| Some(Finding::fault(CHECK, format!("the sequence of {table}.{column} {found}"), fix));
        if *increment < 1 {
            return fault(
                format!("counts down (INCREMENT {increment}), so later events get smaller numbers"),
                format!("ALTER SEQUENCE {name} INCREMENT BY 1, then: {}", LaggingSequence::move_up(table, column)),
            );
        }
        if let Some(lagging) = self.lagging() {
            return Some(Finding::fault(CHECK, lagging.to_string(), lagging.fix()));
        }
        if most.saturating_sub(*next) < FEW_NUMBERS {
            return fault(
                format!("is near its end: it gives {next} next and ends at {most}; then each INSERT fails"),
                format!("ALTER SEQUENCE {name} AS bigint MAXVALUE 9223372036854775807 NO CYCLE"),
            );
        }
        if *cache > 1 && is_ordered {
            return fault(
                format!(
                    "gives each session {cache} numbers at once (CACHE), so an event may get a smaller number than one that was written \
                     before it, and is then delivered first"
                ),
                format!("ALTER SEQUENCE {name} CACHE 1"),
            );
        }
        None
    }
}

/// Looks at each sequence, for `outbox doctor`.
pub(super) async fn sequences(store: &PostgresStore, expectations: &Expectations) -> Result<Vec<Finding>, StoreError> {
    const CHECK: &str = "sequences";
    let numbered = numbered(store).await?;
    let is_known = !numbered.is_empty() && numbered.iter().all(|one| one.sequence.is_some());
    let is_ordered = expectations.index.is_some();
    let findings: Vec<Finding> = numbered.iter().filter_map(|one| one.finding(is_ordered && one.column == "seq")).collect();
    Ok(if !findings.is_empty() {
        findings
    } else if is_known {
        vec![Finding::good(CHECK, "no sequence is behind its table")]
    } else {
        vec![Finding::good(CHECK, "not compared with their tables, as this user may not read them")]
    })
}
