//! Settings of the server, changed for all sessions. Hosts set what their statements need, so none of them affects deliveries; doctor
//! reports those that affect the application.

use super::fixture::Fixture;
use super::{Fault, Repeats};

pub(super) const POSTGRES: &[Fault] = &[
    Fault {
        name: "default_transaction_isolation is serializable",
        apply: |fixture| alter_system(fixture, "SET default_transaction_isolation = 'serializable'"),
        undo: |fixture| alter_system(fixture, "RESET default_transaction_isolation"),
        doctor: Some(&["isolation: serializable is the default"]),
        overview: None,
        repeats: Repeats::Never,
        is_writable: true,
    },
    Fault {
        name: "idle_session_timeout is a second",
        apply: |fixture| alter_system(fixture, "SET idle_session_timeout = '1s'"),
        undo: |fixture| alter_system(fixture, "RESET idle_session_timeout"),
        doctor: Some(&["timeouts: idle_session_timeout of 1000 ms"]),
        overview: None,
        repeats: Repeats::Never,
        is_writable: true,
    },
];

pub(super) const MARIADB: &[Fault] = &[
    without_harm(
        "autocommit is 0",
        |fixture| set_global(fixture, "autocommit = 0"),
        |fixture| set_global(fixture, "autocommit = 1"),
    ),
    without_harm(
        "sql_safe_updates is 1",
        |fixture| set_global(fixture, "sql_safe_updates = 1"),
        |fixture| set_global(fixture, "sql_safe_updates = 0"),
    ),
    without_harm(
        "sql_mode is ORACLE",
        |fixture| set_global(fixture, "sql_mode = 'ORACLE'"),
        |fixture| set_global(fixture, "sql_mode = DEFAULT"),
    ),
    without_harm(
        "max_join_size is 1000",
        |fixture| set_global(fixture, "max_join_size = 1000"),
        |fixture| set_global(fixture, "max_join_size = DEFAULT"),
    ),
    without_harm(
        "sql_select_limit is 1",
        |fixture| set_global(fixture, "sql_select_limit = 1"),
        |fixture| set_global(fixture, "sql_select_limit = DEFAULT"),
    ),
];

const fn without_harm(name: &'static str, apply: fn(&mut Fixture), undo: fn(&mut Fixture)) -> Fault {
    Fault { name, apply, undo, doctor: None, overview: None, repeats: Repeats::Never, is_writable: true }
}

fn alter_system(fixture: &Fixture, change: &str) {
    fixture.sql(&format!("ALTER SYSTEM {change}"));
    fixture.sql("SELECT pg_reload_conf()");
}

/// The sessions of a host keep the value that they began with: one host starts again.
fn set_global(fixture: &mut Fixture, change: &str) {
    fixture.sql(&format!("SET GLOBAL {change}"));
    fixture.restart_sick();
}
