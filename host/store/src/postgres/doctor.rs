//! What `outbox doctor` looks at in a PostgreSQL server: itself, its settings, and the way to it.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use outbox_event::time::system_clock;
use sqlx::{Connection, Row};

use super::address::PostgresServers;
use super::primary::on_primary;
use super::{PostgresStore, Run, health, sequences};
use crate::connector::Servers;
use crate::doctor::{LOOK, READS, clock, index, lease, partitions, reads, schema, session};
use crate::{DoctorStore, Expectations, Finding, LaggingSequence, NotifyStore, SchemaStore, StoreError, TransactionalStore};

/// The settings as a connection of the application has them, in their base units.
const SETTINGS: &str = "
SELECT name, setting FROM pg_settings
WHERE name IN ('server_version', 'server_version_num', 'server_encoding', 'synchronous_commit', 'fsync', 'max_connections',
               'superuser_reserved_connections', 'statement_timeout', 'idle_in_transaction_session_timeout',
               'idle_session_timeout', 'default_transaction_read_only', 'default_transaction_isolation')
UNION ALL SELECT 'in_recovery', pg_is_in_recovery()::text
UNION ALL SELECT 'user', current_user::text
UNION ALL SELECT 'rolconnlimit', rolconnlimit::text FROM pg_roles WHERE rolname = current_user AND NOT rolsuper
UNION ALL SELECT 'datconnlimit', datconnlimit::text FROM pg_database WHERE datname = current_database()
UNION ALL SELECT 'database', current_database()::text";

const ANSWERED: &str = concat!("SELECT 1 WHERE ", on_primary!());

/// A shorter limit of the server's ends what is merely slow, in milliseconds.
const SHORT: i64 = 1_000;
/// How long a wake-up may take.
const PATIENCE: Duration = Duration::from_secs(5);

type Settings = BTreeMap<String, String>;

#[async_trait]
impl DoctorStore for PostgresStore {
    async fn diagnose(&self, expectations: &Expectations) -> Result<Vec<Finding>, StoreError> {
        let settings = settings(self).await?;
        let get = |name: &str| settings.get(name).map_or("", String::as_str);
        let server = PostgresServers::label(&self.connector.current());
        let mut findings = vec![
            Finding::good("connection", format!("connected to {} as {}", self.database, get("user"))),
            version(get("server_version"), number(get("server_version_num"))),
            encoding(get("server_encoding")),
            writable(&server, get("in_recovery") == "true", get("default_transaction_read_only") == "on", get("user")),
            fsync(get("fsync")),
            synchronous_commit(get("synchronous_commit"), get("user")),
            isolation(get("default_transaction_isolation"), get("user")),
            connections(&settings, expectations),
        ];
        findings.extend(timeouts(&settings));
        findings.push(reads(answered_by_primary(self).await)?);
        findings.push(clock(self).await?);
        findings.push(pooler(self).await?);
        if !self.pooler.is_present() {
            findings.push(session(&self.settings.lost(self).await?));
        }
        let checked = self.check_schema().await;
        let forbidden = matches!(checked, Err(StoreError::Forbidden { .. }));
        let known = schema(checked)?;
        let there = known.fix.is_none();
        findings.push(known);
        findings.extend(health::columns(self).await?);
        if there {
            findings.push(partitions(self).await?);
            // Where nobody listens, the finding `pooler` says so.
            if !self.pooler.is_present() {
                findings.push(wake_ups(self).await);
            }
            findings.extend(health::table(self).await?);
            findings.extend(sequences::sequences(self, expectations).await?);
            findings.extend(index(self, expectations).await?);
        } else if forbidden {
            findings.push(health::rights(self).await?);
        }
        findings.extend(health::server(self).await?);
        findings.push(lease(expectations));
        Ok(findings)
    }

    async fn lagging_sequences(&self) -> Result<Vec<LaggingSequence>, StoreError> {
        Ok(sequences::numbered(self).await?.iter().filter_map(sequences::Numbered::lagging).collect())
    }
}

/// Fails if a standby answers the first read of a new connection.
async fn answered_by_primary(store: &PostgresStore) -> Result<(), StoreError> {
    let asking = async {
        for _read in 0..READS {
            let mut connection = store.connector.connect().await?;
            // One message: behind a pooler, a prepared statement and its use may come to different sessions.
            sqlx::raw_sql(ANSWERED).fetch_one(&mut connection).await?;
            connection.close().await?;
        }
        Ok(())
    };
    asking.await.map_err(|error| store.failed(LOOK, error))
}

async fn settings(store: &PostgresStore) -> Result<Settings, StoreError> {
    let action = "look at the server's settings";
    let mut transaction = store.begin().await?;
    let rows = store.plain(SETTINGS).fetch_all(&mut *transaction).await.map_err(|error| store.failed(action, error))?;
    PostgresStore::rollback(transaction).await?;
    rows.iter()
        .map(|row| Ok((row.try_get("name")?, row.try_get("setting")?)))
        .collect::<Result<_, sqlx::Error>>()
        .map_err(|error| store.failed(action, error))
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or(0)
}

fn version(found: &str, number: i64) -> Finding {
    let found = format!("PostgreSQL {found}");
    if number >= 130_000 {
        Finding::good("version", found)
    } else {
        Finding::fault("version", format!("{found} is older than 13"), "upgrade the server to PostgreSQL 13 or later")
    }
}

fn encoding(found: &str) -> Finding {
    if found == "UTF8" {
        Finding::good("encoding", "the database keeps text as UTF-8")
    } else {
        Finding::fault(
            "encoding",
            format!("the database keeps text as {found}, so names and errors may not fit into it"),
            "make a database for it: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
        )
    }
}

/// `server` is the host of the address that is in use.
fn writable(server: &str, in_recovery: bool, read_only: bool, user: &str) -> Finding {
    if in_recovery {
        let fix = "let the address lead to the primary, or promote this server: SELECT pg_promote()";
        Finding::fault("writable", format!("the server {server} is a standby and takes no writes"), fix)
    } else if read_only {
        let fix = format!("ALTER ROLE {user} SET default_transaction_read_only = off");
        Finding::fault("writable", format!("transactions of this user on {server} are read-only by default"), fix)
    } else {
        Finding::good("writable", format!("the server {server} takes writes"))
    }
}

fn fsync(found: &str) -> Finding {
    if found == "on" {
        Finding::good("fsync", "on: what was written survives a power cut")
    } else {
        Finding::warning(
            "fsync",
            "off: a crash of the machine can damage the whole database, events and all",
            "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf()",
        )
    }
}

fn synchronous_commit(found: &str, user: &str) -> Finding {
    if found == "off" {
        Finding::warning(
            "synchronous_commit",
            "off: a crash of the server can lose what was committed in the last moments, events and business data alike",
            format!("ALTER ROLE {user} SET synchronous_commit = on"),
        )
    } else {
        Finding::good("synchronous_commit", format!("{found}: a commit that was acknowledged survives a crash"))
    }
}

fn isolation(found: &str, user: &str) -> Finding {
    if found == "read committed" {
        Finding::good("isolation", "read committed is the default")
    } else {
        Finding::warning(
            "isolation",
            format!(
                "{found} is the default: hosts set a level of their own, but transactions of the application that write events may fail \
                 with the code 40001"
            ),
            format!(
                "let the application retry such transactions; if it does not need that level: \
                 ALTER ROLE {user} SET default_transaction_isolation = 'read committed'"
            ),
        )
    }
}

fn connections(settings: &Settings, expectations: &Expectations) -> Finding {
    let setting = |name: &str| settings.get(name).map_or(0, |text| number(text));
    let wanted = i64::from(expectations.connections);
    // -1 means no limit.
    let limits = [
        (setting("max_connections") - setting("superuser_reserved_connections"), "the server gives", "max_connections"),
        (setting("rolconnlimit"), "all sessions of this user may have", "the CONNECTION LIMIT of this user"),
        (setting("datconnlimit"), "this database gives", "the CONNECTION LIMIT of this database"),
    ];
    let is_set = |(most, _, raised): &(i64, &str, &str)| *raised == "max_connections" || *most > 0;
    let least = limits.into_iter().filter(is_set).min_by_key(|(most, ..)| *most);
    let (most, gives, raised) = least.unwrap_or(limits[0]);
    let found = format!("{gives} {most} connections in all, this host may open {wanted}");
    if wanted * 2 <= most {
        Finding::good("connections", found)
    } else if wanted <= most {
        Finding::warning("connections", found, format!("with more than one host, raise {raised} or let each open fewer"))
    } else {
        let fix = format!("let the host open fewer (database.max_connections), or raise {raised} to {}", wanted + 20);
        Finding::fault("connections", found, fix)
    }
}

fn timeouts(settings: &Settings) -> Vec<Finding> {
    let hurts = [
        ("statement_timeout", SHORT, "ends statements of the application's transactions"),
        ("idle_in_transaction_session_timeout", SHORT, "ends transactions of the application that rest for a moment"),
        ("idle_session_timeout", i64::MAX, "ends connections that rest, the one that listens first of all"),
    ];
    let findings: Vec<Finding> = hurts
        .iter()
        .filter_map(|(name, bound, what)| {
            let found = settings.get(*name).map_or(0, |text| number(text));
            let user = settings.get("user").map_or("", String::as_str);
            (found > 0 && found < *bound).then(|| {
                Finding::warning(
                    "timeouts",
                    format!("{name} of {found} ms {what}"),
                    format!("ALTER ROLE {user} SET {name} = 0"),
                )
            })
        })
        .collect();
    if findings.is_empty() { vec![Finding::good("timeouts", "no server timeout is too short")] } else { findings }
}

/// One that deals out transactions takes from the host what a session would tell the others.
async fn pooler(store: &PostgresStore) -> Result<Finding, StoreError> {
    Ok(if store.is_pooled("look for a pooler").await? {
        Finding::warning(
            "pooler",
            "a pooler in transaction mode is between, so sessions and wake-ups do not work: a host that dies is replaced only when its \
             lease ends, events of other programs wait for the next poll, and each statement costs a transaction",
            "let the host connect to the server itself, or set pool_mode = session for it in PgBouncer",
        )
    } else {
        Finding::good("pooler", "each connection keeps its backend")
    })
}

/// Sends a wake-up and waits for it.
async fn wake_ups(store: &PostgresStore) -> Finding {
    let lost = |why: String| {
        let fix = "the host finds events by polling alone; let it connect to the server itself, without a pooler";
        Finding::warning("notify", why, fix)
    };
    let round = async {
        let mut wake_ups = super::notify::listen(store).await?;
        let clock = system_clock();
        let before = clock.now();
        store.send_test_wake_up().await?;
        // The wait is for a channel of this process, so it may be given up.
        Ok::<_, StoreError>(match tokio::time::timeout(PATIENCE, wake_ups.next()).await {
            Ok(heard) => heard.map(|_| Some(clock.now().since(before)))?,
            Err(_) => None,
        })
    };
    match round.await {
        Ok(Some(took)) => Finding::good("notify", format!("a wake-up came back after {} ms", took.as_millis())),
        Ok(None) => lost(format!("a wake-up did not come back within {PATIENCE:?}")),
        Err(error) => lost(format!("wake-ups cannot be heard: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;

    #[test]
    fn least_limit_of_connections_counts() {
        let expectations = Expectations {
            lease: Duration::from_secs(30),
            deadline: Duration::from_secs(10),
            max_payload: 1 << 20,
            connections: 21,
            index: None,
        };
        let of = |user: &str, database: &str| {
            let settings = [
                ("max_connections", "100"),
                ("superuser_reserved_connections", "3"),
                ("rolconnlimit", user),
                ("datconnlimit", database),
            ];
            let settings = settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let finding = connections(&settings, &expectations);
            (finding.severity, finding.found)
        };

        assert_eq!(
            of("-1", "-1"),
            (Severity::Good, "the server gives 97 connections in all, this host may open 21".to_owned())
        );
        let of_user = "all sessions of this user may have 12 connections in all, this host may open 21".to_owned();
        assert_eq!(of("12", "50"), (Severity::Fault, of_user));
        assert_eq!(
            of("-1", "30"),
            (Severity::Warning, "this database gives 30 connections in all, this host may open 21".to_owned())
        );
    }
}
