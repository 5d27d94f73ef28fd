//! The settings of sessions: what statements rely on, whatever the server or `init_connect` says.

use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Executor, Row};

/// How long a transaction of the host itself may stand still, in seconds. The server ends it then: a host that was stopped or
/// cut off in the middle of a claim must not keep its rows from the others, which pass them by for as long as they are locked.
const STANDSTILL_S: u64 = 5;
/// On MySQL, which knows no such thing, how long a session of the host may stand still.
const SESSION_STANDSTILL_S: u64 = 30;
/// The value that disables `sql_select_limit` and `max_join_size`.
const MOST: u64 = u64::MAX;
/// The idle timeout of the host's sessions on MariaDB, in seconds; longer than the pool keeps an idle connection.
const MARIADB_IDLE_S: u64 = 3_600;
/// `wsrep_sync_wait` of the host's sessions on a node of a Galera cluster: statements that read, update, delete or insert wait until the
/// node has applied what was committed before on any node.
pub(super) const WAIT_FOR_NODES: u64 = 7;
/// The memory for a sort, in bytes. Servers allow as little as 1 KiB, with which a sort by names fails; MySQL's default is 256 KiB.
const SORT_BUFFER: u64 = 1 << 20;
/// Strict: a value that does not fit a column is an error, not cut.
const STRICT: &str = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO";

/// The variables that decide which settings a session gets.
const SERVER: &str = "
SHOW VARIABLES WHERE Variable_name IN ('version', 'wsrep_on', 'group_replication_group_name', 'group_replication_consistency')";

/// Ends what `init_connect` may have begun: setting `autocommit` to the value that it has ends no transaction. `completion_type` may say
/// that a ROLLBACK begins another transaction or ends the session.
const END_TRANSACTION: &str = "ROLLBACK AND NO CHAIN NO RELEASE;\nUNLOCK TABLES";

/// READ COMMITTED: without it, claims lock the gaps between rows, and writers wait.
const TRANSACTION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE";

/// The variables that it sets, by the names of MariaDB and of MySQL, as the servers show them.
const TRANSACTION_VARIABLES: [[(&str, &str); 2]; 2] = [
    [("tx_isolation", "READ-COMMITTED"), ("tx_read_only", "OFF")],
    [("transaction_isolation", "READ-COMMITTED"), ("transaction_read_only", "OFF")],
];

/// The origin of a session's statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The host, whose statements follow each other without a pause.
    Host,
    /// The application, which may pause between its statements.
    Callers,
}

/// The kind of a server decides which variables it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerKind {
    is_mariadb: bool,
    /// Whether it is a node of a Galera cluster.
    is_cluster: bool,
    /// `group_replication_consistency` of the host's sessions on a member of a MySQL group: a transaction waits until the member has
    /// applied what was committed before on any member. `None` outside of a group.
    group_consistency: Option<&'static str>,
}

impl ServerKind {
    /// `value` gives the value of a variable; an empty one if there is no such variable.
    pub(super) fn of<'v>(value: impl Fn(&str) -> &'v str) -> Self {
        let group_consistency = match (value("group_replication_group_name"), value("group_replication_consistency")) {
            ("", _) | (_, "") => None,
            // Other sessions of the server may rely on the wait after each commit.
            (_, "AFTER" | "BEFORE_AND_AFTER") => Some("BEFORE_AND_AFTER"),
            _ => Some("BEFORE"),
        };
        Self { is_mariadb: value("version").contains("MariaDB"), is_cluster: value("wsrep_on") == "ON", group_consistency }
    }
}

/// The settings of a session.
#[derive(Clone, Debug)]
pub(super) struct Session {
    whose: Whose,
    lock_timeout_s: u64,
    statement_timeout_ms: u128,
}

impl Session {
    pub(super) fn new(whose: Whose, lock_timeout: Duration, statement_timeout: Duration) -> Self {
        Self { whose, lock_timeout_s: lock_timeout.as_secs().max(1), statement_timeout_ms: statement_timeout.as_millis() }
    }

    /// Sets all of them.
    pub(super) async fn begin(&self, connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        let mut shown = Vec::new();
        for row in sqlx::raw_sql(SERVER).fetch_all(&mut *connection).await? {
            let variable: (String, String) = (row.try_get_unchecked(0)?, row.try_get_unchecked(1)?);
            shown.push(variable);
        }
        let value = |name: &str| shown.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str());
        let variables = self.variables(ServerKind::of(value));
        let set: Vec<String> = variables.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        // Safe: only numbers and our own constants are put in.
        let text = format!("{END_TRANSACTION};\nSET {};\n{TRANSACTION}", set.join(", "));
        connection.execute(sqlx::raw_sql(AssertSqlSafe(text))).await?;
        Ok(())
    }

    /// The variables beside those of [`TRANSACTION`], with their values as SQL. UTC, so that times in a transaction of the caller mean what
    /// they mean in the table. Autocommit, without a chain of transactions: a statement outside of a transaction is one by itself. The
    /// host's own sessions get everything else that its statements rely on.
    fn variables(&self, server: ServerKind) -> Vec<(&'static str, String)> {
        let Self { whose, lock_timeout_s, statement_timeout_ms: milliseconds } = self;
        let mut variables =
            vec![("autocommit", "1".to_owned()), ("completion_type", "0".to_owned()), ("time_zone", "'+00:00'".to_owned())];
        if *whose == Whose::Callers {
            // The server's own limits and SQL mode apply to the application's transactions.
            variables.push(("sql_mode", format!("CONCAT(@@sql_mode, ',{STRICT}')")));
            return variables;
        }
        variables.extend([
            ("sql_mode", format!("'{STRICT},NO_ENGINE_SUBSTITUTION'")),
            ("sql_safe_updates", "0".to_owned()),
            ("sql_select_limit", MOST.to_string()),
            ("max_join_size", MOST.to_string()),
            ("sql_big_selects", "1".to_owned()),
            ("unique_checks", "1".to_owned()),
            ("sort_buffer_size", SORT_BUFFER.to_string()),
            ("innodb_lock_wait_timeout", lock_timeout_s.to_string()),
            ("lock_wait_timeout", lock_timeout_s.to_string()),
        ]);
        // The two servers have different names for the longest statement, in different units.
        if server.is_mariadb {
            variables.extend([
                ("max_statement_time", format!("{}.{:03}", milliseconds / 1_000, milliseconds % 1_000)),
                ("idle_transaction_timeout", STANDSTILL_S.to_string()),
                ("wait_timeout", MARIADB_IDLE_S.to_string()),
            ]);
        } else {
            variables
                .extend([("max_execution_time", milliseconds.to_string()), ("wait_timeout", SESSION_STANDSTILL_S.to_string())]);
        }
        if server.is_cluster {
            variables.push(("wsrep_sync_wait", WAIT_FOR_NODES.to_string()));
        }
        if let Some(consistency) = server.group_consistency {
            variables.push(("group_replication_consistency", format!("'{consistency}'")));
        }
        variables
    }

    /// The settings that a session has lost, each with its value. `shown` gives the value that the server shows there; `None` for a
    /// variable that it does not have.
    pub(super) fn lost<'v>(&self, server: ServerKind, shown: impl Fn(&str) -> Option<&'v str>) -> Vec<String> {
        let of_transactions = TRANSACTION_VARIABLES.iter().flatten().map(|(name, value)| (*name, (*value).to_owned()));
        let variables = self.variables(server).into_iter().chain(of_transactions);
        let lost = variables.filter_map(|(name, wanted)| {
            let shown = shown(name).filter(|shown| !is_same(shown, &wanted))?;
            Some(format!("{name} is {shown}"))
        });
        lost.collect()
    }
}

/// Whether a server shows a value in this way. A list of modes may contain more, and in another order.
fn is_same(shown: &str, wanted: &str) -> bool {
    let (shown, wanted) = (canonical(shown), canonical(wanted.trim_matches('\'')));
    match (shown.parse::<f64>(), wanted.parse::<f64>()) {
        (Ok(shown), Ok(wanted)) => (shown - wanted).abs() < 0.001,
        _ => wanted.split(',').all(|wanted| shown.split(',').any(|shown| shown == wanted)),
    }
}

fn canonical(value: &str) -> &str {
    match value {
        "ON" => "1",
        "OFF" | "NO_CHAIN" => "0",
        other => other,
    }
}

/// The names of the variables that each session of the host has set, whatever a server without a cluster says.
#[must_use]
pub fn session_settings(is_mariadb: bool) -> Vec<&'static str> {
    let session = Session::new(Whose::Host, Duration::ZERO, Duration::ZERO);
    let variables = session.variables(ServerKind { is_mariadb, is_cluster: false, group_consistency: None });
    let of_transactions = TRANSACTION_VARIABLES[usize::from(!is_mariadb)];
    variables.into_iter().map(|(name, _)| name).chain(of_transactions.map(|(name, _)| name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_setting_is_named_and_a_value_may_be_shown_in_another_form() {
        let session = Session::new(Whose::Host, Duration::from_secs(2), Duration::from_secs(60));
        let mariadb = ServerKind { is_mariadb: true, is_cluster: false, group_consistency: None };
        let kept = [
            ("autocommit", "ON"),
            ("completion_type", "NO_CHAIN"),
            ("time_zone", "+00:00"),
            ("sql_mode", "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO"),
            ("sql_safe_updates", "OFF"),
            ("sql_select_limit", "18446744073709551615"),
            ("max_statement_time", "60.000000"),
            ("tx_isolation", "READ-COMMITTED"),
        ];
        let shown = |name: &str| kept.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);

        assert_eq!(session.lost(mariadb, shown), Vec::<String>::new());
        let lost = session.lost(mariadb, |name| match name {
            "autocommit" => Some("OFF"),
            "tx_isolation" => Some("REPEATABLE-READ"),
            name => shown(name),
        });
        assert_eq!(lost, ["autocommit is OFF", "tx_isolation is REPEATABLE-READ"]);
    }

    #[test]
    fn a_session_on_a_member_of_a_mysql_group_waits_for_the_other_members() {
        const CONSISTENCY: &str = "group_replication_consistency";
        let session = Session::new(Whose::Host, Duration::from_secs(2), Duration::from_secs(60));
        for (found, wanted) in [
            ("EVENTUAL", "'BEFORE'"),
            ("BEFORE_ON_PRIMARY_FAILOVER", "'BEFORE'"),
            ("BEFORE", "'BEFORE'"),
            ("AFTER", "'BEFORE_AND_AFTER'"),
            ("BEFORE_AND_AFTER", "'BEFORE_AND_AFTER'"),
        ] {
            let value = |name: &str| match name {
                "version" => "8.4.3",
                "group_replication_group_name" => "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa",
                CONSISTENCY => found,
                _ => "",
            };
            let member = ServerKind::of(value);

            let variables = session.variables(member);
            let set: Vec<_> =
                variables.iter().filter(|(name, _)| *name == CONSISTENCY).map(|(_, value)| value.as_str()).collect();
            assert_eq!(set, [wanted], "{found}");
            let lost = session.lost(member, |name| (name == CONSISTENCY).then_some(found));
            assert_eq!(lost.is_empty(), wanted.trim_matches('\'') == found, "{lost:?}");
        }
        let alone = ServerKind::of(|name| if name == CONSISTENCY { "EVENTUAL" } else { "" });
        assert!(session.variables(alone).iter().all(|(name, _)| *name != CONSISTENCY), "it is no member");
    }
}
