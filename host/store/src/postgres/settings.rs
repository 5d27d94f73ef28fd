//! The settings of the host's own sessions.

use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::{PgConnection, PgRow};

use super::{PostgresStore, Run};
use crate::StoreError;
use crate::row::Named;

/// The settings that a transaction behind a pooler sets as well; every server has them.
///
/// Every statement of the host lives on an index. A planner whose statistics are old, as those of a queue always are, must not read or
/// sort all that is due (measured without statistics, 100,000 due: 250 ms for one claim, 9 to 27 ms by its index). A host that was stopped
/// or cut off in the middle of a transaction must not keep its rows from the others: the server ends it.
const OF_TRANSACTIONS: [(&str, &str); 11] = [
    // With another value every error has a context, as those of triggers have.
    ("log_parameter_max_length_on_error", "0"),
    ("idle_in_transaction_session_timeout", "5000"),
    ("jit", "off"),
    ("enable_indexscan", "on"),
    ("enable_indexonlyscan", "on"),
    ("enable_nestloop", "on"),
    ("enable_sort", "on"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
];

/// The settings of sessions alone. Plans are made anew for each execution, since one that was made for an empty table would stay in use
/// while it fills. Stricter isolation would cause serialisation failures between the host and the application. A statement that the host
/// has given up, such as a COMMIT whose deferred trigger hangs, must not keep its locks: the server looks every 5 s whether the host is
/// connected. Only some platforms of the server can: on others it refuses every value but 0.
const OF_SESSIONS: [(&str, &str); 6] = [
    ("client_connection_check_interval", "5000"),
    ("idle_session_timeout", "0"),
    ("transaction_timeout", "0"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_deferrable", "off"),
    ("plan_cache_mode", "force_custom_plan"),
];

/// `DEFAULT` is the `search_path` with which the server began the session.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; SET LOCAL search_path TO DEFAULT";

/// The longest statement and the longest wait for a lock, in milliseconds.
const LIMITS: [&str; 2] = ["statement_timeout", "lock_timeout"];

/// Skips settings that this version of the server lacks, or its platform. Reads no view: its rows may not fit into the memory and
/// temporary files that this user may use. $1 names, $2 values.
const SET: &str = "
SELECT set_config(wanted.name, wanted.value, false) FROM unnest($1::text[], $2::text[]) AS wanted (name, value)
WHERE current_setting(wanted.name, true) IS NOT NULL
  AND (wanted.name <> 'client_connection_check_interval' OR version() LIKE '%linux%')";

/// The settings that have another value in this session. $1 names, $2 values.
const LOST: &str = "
SELECT known.name AS name, known.setting AS setting FROM unnest($1::text[], $2::text[]) AS wanted (name, value)
JOIN pg_catalog.pg_settings AS known ON known.name = wanted.name
WHERE known.setting <> wanted.value AND (known.name <> 'client_connection_check_interval' OR version() LIKE '%linux%')";

/// The settings of the host's own sessions.
#[derive(Debug)]
pub(super) struct Settings {
    limits: [String; 2],
}

impl Settings {
    pub(super) fn new(statement_timeout: Duration, lock_timeout: Duration) -> Self {
        Self { limits: [statement_timeout, lock_timeout].map(|span| span.as_millis().to_string()) }
    }

    fn of_transactions(&self) -> impl Iterator<Item = (&'static str, &str)> {
        LIMITS.into_iter().zip(self.limits.iter().map(String::as_str)).chain(OF_TRANSACTIONS)
    }

    /// The longest statement and the longest wait for a lock under a limit, in milliseconds. None is longer than usual. The wait ends
    /// first: its error says that rows are locked.
    pub(super) fn limits_within(&self, limit: Duration) -> [String; 2] {
        let limits = [limit, limit / 2].map(|limit| limit.as_millis().max(1));
        // Zero is no limit.
        let usual = self.limits.each_ref().map(|usual| usual.parse::<u128>().ok().filter(|usual| *usual > 0));
        [0, 1].map(|one| usual[one].map_or(limits[one], |usual| usual.min(limits[one])).to_string())
    }

    /// Names and values.
    fn all(&self) -> (Vec<&'static str>, Vec<&str>) {
        self.of_transactions().chain(OF_SESSIONS).unzip()
    }

    /// Sets all of them for a session.
    pub(super) async fn set(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let (names, values) = self.all();
        connection.execute(sqlx::query(SET).bind(names).bind(values)).await?;
        Ok(())
    }

    /// The statements that begin a transaction behind a pooler with the settings that matter there. Other clients may have left a session
    /// read-only, or with their own `search_path`.
    pub(super) fn begin(&self) -> String {
        let settings = self.of_transactions().map(|(name, value)| format!("; SET LOCAL {name} = '{value}'"));
        std::iter::once(BEGIN.to_owned()).chain(settings).collect()
    }

    /// The settings that a session of the host has lost, each with its value.
    pub(super) async fn lost(&self, store: &PostgresStore) -> Result<Vec<String>, StoreError> {
        let (names, values) = self.all();
        let lost = |row: &PgRow| Ok(format!("{} is {}", row.string("name")?, row.string("setting")?));
        store.read_all("look at the settings of a session", sqlx::query(LOST).bind(names).bind(values), lost).await
    }
}

/// The names of the settings that each session of the host has, whatever the server says.
#[must_use]
pub fn session_settings() -> Vec<&'static str> {
    Settings::new(Duration::ZERO, Duration::ZERO).all().0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_a_statement_is_no_longer_than_that_of_every_statement() {
        let limits = |usual: [u64; 2]| {
            let [statement, lock] = usual.map(Duration::from_secs);
            Settings::new(statement, lock).limits_within(Duration::from_secs(5))
        };
        let within = [[0, 0], [2, 1], [30, 20]].map(limits);
        assert_eq!(within, [["5000", "2500"], ["2000", "1000"], ["5000", "2500"]]);
    }

    #[test]
    fn a_transaction_behind_a_pooler_begins_with_settings_that_every_server_has() {
        let begin = Settings::new(Duration::from_secs(30), Duration::from_secs(2)).begin();

        let start = "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; SET LOCAL search_path TO DEFAULT; ";
        assert!(begin.starts_with(start), "{begin}");
        assert!(begin.contains("; SET LOCAL statement_timeout = '30000'; SET LOCAL lock_timeout = '2000'; "), "{begin}");
        assert!(begin.contains("; SET LOCAL enable_sort = 'on'; ") && !begin.contains("transaction_timeout = '0'"), "{begin}");
    }
}
