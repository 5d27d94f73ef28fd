//! Random settings at once: a setting may do beside others what it does not do alone. `OUTBOX_TEST_CASES=200` tries so many combinations
//! on each server.

use std::collections::BTreeMap;

use outbox::store::SchemaStore;
use outbox::{MySqlStore, PostgresStore};
use rand::RngExt;
use rand::rngs::StdRng;
use servers::{Database as Kind, Durability, Server};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, Row};
use support::{Harness, Postgres, Seed, generated_cases};

use super::{WORST_OF_MARIADB, WORST_OF_POSTGRESQL, delivers_each_event_once, keeps_its_settings, superuser};

/// How many combinations are tried on each server.
const COMBINATIONS: usize = 2;

/// Settings that no session of the host sets: its statements must work with any value.
const OTHERS_OF_MARIADB: [(&str, &str); 19] = [
    ("big_tables", "1"),
    ("collation_server", "'latin1_swedish_ci'"),
    ("default_week_format", "3"),
    ("div_precision_increment", "0"),
    ("eq_range_index_dive_limit", "1"),
    ("foreign_key_checks", "0"),
    ("group_concat_max_len", "4"),
    ("innodb_strict_mode", "0"),
    ("join_buffer_size", "128"),
    ("lc_time_names", "'de_DE'"),
    ("low_priority_updates", "1"),
    ("max_error_count", "0"),
    ("max_heap_table_size", "16384"),
    ("max_sort_length", "64"),
    ("optimizer_search_depth", "1"),
    ("optimizer_switch", "'index_merge=off,mrr=on,materialization=off,derived_merge=off'"),
    ("sql_auto_is_null", "1"),
    ("sql_notes", "0"),
    ("use_stat_tables", "'never'"),
];

/// As [`OTHERS_OF_MARIADB`].
const OTHERS_OF_POSTGRESQL: [(&str, &str); 24] = [
    ("array_nulls", "off"),
    ("backslash_quote", "off"),
    ("bytea_output", "'escape'"),
    ("cursor_tuple_fraction", "0"),
    ("datestyle", "'SQL, DMY'"),
    ("default_statistics_target", "1"),
    ("enable_hashagg", "off"),
    ("enable_incremental_sort", "off"),
    ("enable_material", "off"),
    ("enable_memoize", "off"),
    ("extra_float_digits", "-15"),
    ("from_collapse_limit", "1"),
    ("geqo_threshold", "2"),
    ("intervalstyle", "'iso_8601'"),
    ("join_collapse_limit", "1"),
    ("min_parallel_table_scan_size", "0"),
    ("parallel_setup_cost", "0"),
    ("quote_all_identifiers", "on"),
    ("random_page_cost", "10000"),
    ("standard_conforming_strings", "off"),
    ("synchronous_commit", "off"),
    ("timezone", "'Asia/Kolkata'"),
    ("transform_null_equals", "on"),
    ("work_mem", "'64kB'"),
];

/// Several settings with their values.
type Settings = BTreeMap<&'static str, &'static str>;

/// Draws settings: of these half, of those the other half.
fn combination(
    chance: &mut StdRng,
    worst: &[(&'static str, &'static str)],
    others: &[(&'static str, &'static str)],
) -> Settings {
    let count = chance.random_range(2..=8);
    let mut settings = Settings::new();
    while settings.len() < count {
        let drawn_from = if chance.random_range(0..2) == 0 { worst } else { others };
        let (setting, value) = drawn_from[chance.random_range(0..drawn_from.len())];
        settings.insert(setting, value);
    }
    settings
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_settings_of_postgresql_together_do_not_affect_delivery() {
    let db = Postgres::fresh().await;
    let (user, url) = superuser(&db, "random").await;
    let (witness, seed) = (db.store(), Seed::of_this_run());
    let mut chance = seed.choices_of("settings of PostgreSQL");
    for _ in 0..generated_cases(COMBINATIONS) {
        let settings = combination(&mut chance, &WORST_OF_POSTGRESQL, &OTHERS_OF_POSTGRESQL);
        let title = format!("OUTBOX_TEST_SEED={}: {settings:?}", seed.number());
        for (setting, value) in &settings {
            // Later versions have more.
            if db.number(&format!("SELECT count(*) FROM pg_settings WHERE lower(name) = '{setting}'")).await == 1 {
                db.execute(&format!("ALTER ROLE {user} SET {setting} = {value}")).await;
            }
        }
        let store = PostgresStore::connect(&url).await.unwrap_or_else(|error| panic!("{title}: {error}"));
        keeps_its_settings(&title, &store).await;
        delivers_each_event_once(&title, store, &*witness).await;
        db.execute(&format!("ALTER ROLE {user} RESET ALL")).await;
    }
    db.execute(&format!("DROP ROLE {user}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_settings_of_mariadb_together_do_not_affect_delivery() {
    let server = Server::start(Kind::MariaDb, Durability::Volatile).expect("`cargo xtask test` installs the servers");
    let witness = MySqlStore::connect(&server.url()).await.expect("connects");
    witness.migrate_up().await.expect("migrates");
    let mut admin = MySqlConnection::connect(&server.url()).await.expect("connects");
    let seed = Seed::of_this_run();
    let mut chance = seed.choices_of("settings of MariaDB");
    for _ in 0..generated_cases(COMBINATIONS) {
        let settings = combination(&mut chance, &WORST_OF_MARIADB, &OTHERS_OF_MARIADB);
        let title = format!("OUTBOX_TEST_SEED={}: {settings:?}", seed.number());
        let mut changed = Vec::new();
        for (setting, value) in &settings {
            if has(&mut admin, setting).await {
                let before = format!("SET @before_{setting} = @@GLOBAL.{setting}");
                admin.execute(AssertSqlSafe(before)).await.expect("reads");
                let set = format!("SET GLOBAL {setting} = {value}");
                admin.execute(AssertSqlSafe(set)).await.unwrap_or_else(|error| panic!("{title}: {error}"));
                changed.push(*setting);
            }
        }
        let store = MySqlStore::connect(&server.url()).await.unwrap_or_else(|error| panic!("{title}: {error}"));
        keeps_its_settings(&title, &store).await;
        delivers_each_event_once(&title, store, &witness).await;
        for setting in changed {
            admin.execute(AssertSqlSafe(format!("SET GLOBAL {setting} = @before_{setting}"))).await.expect("sets");
        }
    }
}

/// Whether this version of the server has the variable.
async fn has(admin: &mut MySqlConnection, setting: &str) -> bool {
    let count = format!(
        "SELECT COUNT(*) FROM information_schema.SYSTEM_VARIABLES
         WHERE VARIABLE_NAME = '{setting}' AND GLOBAL_VALUE IS NOT NULL"
    );
    let row = admin.fetch_one(AssertSqlSafe(count)).await.expect("reads");
    row.try_get::<i64, _>(0).expect("a number") == 1
}
