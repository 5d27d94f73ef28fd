//! What `outbox doctor` looks at in a server: its settings first, then the table.

use std::collections::HashMap;

use async_trait::async_trait;
use sqlx::mysql::MySqlRow;
use sqlx::{Connection, Row};

use super::health::ACTION;
use super::primary::on_primary;
use super::settings::{ServerKind, WAIT_FOR_NODES};
use super::{MySqlStore, Run, health};
use crate::doctor::{LOOK, READS, clock, index, lease, partitions, reads, schema, session};
use crate::{DoctorStore, Expectations, Finding, Index, SchemaStore, StoreError};

/// Session values where there are some: those that hold for our statements.
const VARIABLES: &str = "SHOW VARIABLES";

const ANSWERED: &str = concat!("SELECT 1 FROM DUAL WHERE ", on_primary!());

/// Below it, a server lacks a construct that the schema or a statement needs.
const OLDEST_MYSQL: (u32, u32, u32) = (8, 0, 16);
const OLDEST_MARIADB: (u32, u32, u32) = (10, 6, 0);
/// How long the pool keeps a connection that nobody uses.
const IDLE_S: u64 = 600;

#[async_trait]
impl DoctorStore for MySqlStore {
    async fn diagnose(&self, expectations: &Expectations) -> Result<Vec<Finding>, StoreError> {
        let variables = variables(self).await?;
        let mut findings = vec![
            Finding::good("connection", format!("connected to {}", self.database)),
            version(variables.text("version")),
            read_only(&variables),
            isolation(&variables),
            flush(&variables),
        ];
        if variables.is_on("log_bin") {
            findings.extend(binlog(&variables));
        }
        findings.extend(cluster(&variables));
        findings.extend(group(&variables));
        let kind = ServerKind::of(|name| variables.text(name));
        findings.push(session(&self.session.lost(kind, |name| variables.0.get(name).map(String::as_str))));
        findings.push(reads(answered_by_primary(self).await)?);
        findings.push(clock(self).await?);
        findings.push(packet(&variables, expectations));
        findings.push(connections(&variables, expectations));
        findings.push(idle(&variables));
        let checked = self.check_schema().await;
        let forbidden = matches!(checked, Err(StoreError::Forbidden { .. }));
        let known = schema(checked)?;
        let there = known.fix.is_none();
        findings.push(known);
        if there {
            findings.push(partitions(self).await?);
            findings.extend(health::check(self).await?);
            // In the mode `ordered` the primary key does the work.
            if expectations.index != Some(Index::Ordered) {
                findings.extend(index(self, expectations).await?);
            }
        } else if forbidden {
            findings.push(health::rights(self).await);
        }
        findings.push(lease(expectations));
        Ok(findings)
    }
}

/// Fails if a standby answers the first read of a new connection.
async fn answered_by_primary(store: &MySqlStore) -> Result<(), StoreError> {
    let asking = async {
        for _read in 0..READS {
            let mut connection = store.connector.connect().await?;
            store.statement(ANSWERED).fetch_one(&mut connection).await?;
            connection.close().await?;
        }
        Ok(())
    };
    asking.await.map_err(|error| store.failed(LOOK, error))
}

/// The server's variables by name.
struct Variables(HashMap<String, String>);

impl Variables {
    fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    fn is_on(&self, name: &str) -> bool {
        matches!(self.text(name), "ON" | "1")
    }
}

async fn variables(store: &MySqlStore) -> Result<Variables, StoreError> {
    let rows = sqlx::raw_sql(VARIABLES).fetch_all(&store.pool).await;
    let value = |row: &MySqlRow| row.try_get_unchecked::<Option<String>, _>(1);
    let variable = |row: &MySqlRow| Ok((row.try_get_unchecked(0)?, value(row)?.unwrap_or_default()));
    let variables = rows.and_then(|rows| rows.iter().map(variable).collect());
    Ok(Variables(variables.map_err(|error| store.failed(ACTION, error))?))
}

fn version(found: &str) -> Finding {
    let mut parts = found.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    let number = (parts.next().unwrap_or(0), parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let (name, oldest) = if found.contains("MariaDB") { ("MariaDB", OLDEST_MARIADB) } else { ("MySQL", OLDEST_MYSQL) };
    if number >= oldest {
        Finding::good("version", format!("{name} {found}"))
    } else {
        let (major, minor, patch) = oldest;
        Finding::fault(
            "version",
            format!("{name} {found} does not know all that the outbox needs"),
            format!("upgrade the server to {name} {major}.{minor}.{patch} or later"),
        )
    }
}

fn read_only(variables: &Variables) -> Finding {
    if variables.is_on("read_only") || variables.is_on("innodb_read_only") {
        Finding::fault(
            "read_only",
            "the server takes no writes: it is a replica, or was set to read_only",
            "point the address at the primary, or run there: SET GLOBAL read_only = OFF",
        )
    } else {
        Finding::good("read_only", "the server takes writes")
    }
}

/// Whether a read on a node of a Galera cluster waits for what other nodes have committed; `None` on a server that is no such node.
fn cluster(variables: &Variables) -> Option<Finding> {
    const CHECK: &str = "wsrep_sync_wait";
    if !variables.is_on("wsrep_on") {
        return None;
    }
    let found = variables.number(CHECK);
    Some(if found & WAIT_FOR_NODES == WAIT_FOR_NODES {
        Finding::good(CHECK, format!("{found}: statements of the host see what every node has committed"))
    } else {
        Finding::fault(
            CHECK,
            format!("{found} in a session of the host: it may see events as they were before another node delivered them"),
            format!("let the proxy in between pass on: SET SESSION wsrep_sync_wait = {WAIT_FOR_NODES}"),
        )
    })
}

/// Whether a read on a member of a MySQL group waits for what other members have committed; `None` outside of a group.
fn group(variables: &Variables) -> Option<Finding> {
    const CHECK: &str = "group_replication_consistency";
    if variables.text("group_replication_group_name").is_empty() {
        return None;
    }
    let found = variables.text(CHECK);
    Some(if matches!(found, "BEFORE" | "BEFORE_AND_AFTER") {
        Finding::good(CHECK, format!("{found}: statements of the host see what every member has committed"))
    } else {
        Finding::fault(
            CHECK,
            format!("{found} in a session of the host: it may see events as they were before another member delivered them"),
            format!("let the proxy in between pass on: SET SESSION {CHECK} = 'BEFORE'"),
        )
    })
}

fn isolation(variables: &Variables) -> Finding {
    let level = match variables.text("transaction_isolation") {
        "" => variables.text("tx_isolation"),
        level => level,
    };
    if level == "READ-COMMITTED" {
        Finding::good("isolation", "sessions of the outbox run at READ COMMITTED")
    } else {
        Finding::warning(
            "isolation",
            format!("a session of the outbox runs at {level}, so claims lock gaps between rows, and writers wait for them"),
            "let the proxy in between pass on: SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        )
    }
}

fn flush(variables: &Variables) -> Finding {
    match variables.number("innodb_flush_log_at_trx_commit") {
        1 => Finding::good("innodb_flush_log_at_trx_commit", "1: a commit survives a power cut"),
        other => Finding::warning(
            "innodb_flush_log_at_trx_commit",
            format!("{other}: a power cut can lose the last second of commits, events and business data alike"),
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and the same in the server's configuration",
        ),
    }
}

fn binlog(variables: &Variables) -> [Finding; 2] {
    let sync = match variables.number("sync_binlog") {
        1 => Finding::good("sync_binlog", "1: replicas never miss a commit that survived a power cut"),
        other => Finding::warning(
            "sync_binlog",
            format!("{other}: after a power cut, replicas can lack events that the primary has"),
            "SET GLOBAL sync_binlog = 1, and the same in the server's configuration",
        ),
    };
    let format = match variables.text("binlog_format") {
        "STATEMENT" => Finding::fault(
            "binlog_format",
            "STATEMENT: the server refuses writes at READ COMMITTED",
            "SET GLOBAL binlog_format = ROW, and the same in the server's configuration",
        ),
        format => Finding::good("binlog_format", format!("{format}: fits READ COMMITTED")),
    };
    [sync, format]
}

fn packet(variables: &Variables, expectations: &Expectations) -> Finding {
    let most = variables.number("max_allowed_packet");
    // A batch of rows is kept to 4 MiB of payloads; one large payload travels alone. Either brings its other columns along.
    let needed = u64::try_from(expectations.max_payload).unwrap_or(u64::MAX).max(4 << 20).saturating_add(2 << 20);
    let found = format!("max_allowed_packet is {} MiB", most >> 20);
    if most >= needed {
        Finding::good("max_allowed_packet", found)
    } else {
        Finding::fault(
            "max_allowed_packet",
            format!("{found}, but an insert may need {} MiB", needed.div_ceil(1 << 20)),
            format!(
                "SET GLOBAL max_allowed_packet = {}, and the same in the server's configuration",
                needed.next_power_of_two()
            ),
        )
    }
}

fn connections(variables: &Variables, expectations: &Expectations) -> Finding {
    let (all, of_user) = (variables.number("max_connections"), variables.number("max_user_connections"));
    let ours = u64::from(expectations.connections);
    // 0 means no limit.
    if of_user > 0 && of_user < ours {
        return Finding::fault(
            "max_connections",
            format!("this user may have {of_user} connections in all, this host may open {ours}"),
            "raise MAX_USER_CONNECTIONS of this user, or let the host open fewer (database.max_connections)",
        );
    }
    let most = if of_user > 0 { all.min(of_user) } else { all };
    let found = format!("the server allows {most} connections, this host may open {ours}");
    if ours <= most / 2 {
        Finding::good("max_connections", found)
    } else {
        Finding::warning(
            "max_connections",
            format!("{found}: a second host or the application may find none left"),
            format!("SET GLOBAL max_connections = {}, or open fewer from this host", ours.saturating_mul(3)),
        )
    }
}

fn idle(variables: &Variables) -> Finding {
    let seconds = variables.number("wait_timeout");
    let found = format!("the server cuts connections that were idle for {seconds} s, the host for {IDLE_S} s");
    if seconds > IDLE_S {
        Finding::good("wait_timeout", found)
    } else {
        Finding::warning("wait_timeout", found, format!("SET GLOBAL wait_timeout = {}", IDLE_S * 4))
    }
}
