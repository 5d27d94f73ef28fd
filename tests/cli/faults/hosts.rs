//! One host is disturbed, the others are not.

use super::load::LONG_CALL;
use super::{Fault, Repeats, SICK};

pub(super) const POSTGRES: &[Fault] = &[
    Fault {
        name: "the password of one host is rotated",
        apply: |fixture| {
            fixture.sql("ALTER ROLE host_0 PASSWORD 'second'");
            fixture.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'host_0'");
        },
        undo: |fixture| fixture.set_login(SICK, "second"),
        doctor: Some(&["nodes: ", "{host}"]),
        overview: Some(&["{host}"]),
        repeats: Repeats::OfSickHost,
        is_writable: true,
    },
    Fault {
        name: "one host cannot read the table",
        apply: |fixture| fixture.sql("REVOKE SELECT ON outbox_event FROM host_0"),
        undo: |fixture| fixture.sql("GRANT SELECT ON outbox_event TO host_0"),
        doctor: Some(&["nodes: ", "{host}", "stands aside", "cannot read the table"]),
        overview: Some(&["{host}", "stands aside", "cannot read the table"]),
        repeats: Repeats::OfSickHost,
        is_writable: true,
    },
    Fault {
        name: "one host cannot store outcomes",
        apply: |fixture| fixture.sql("REVOKE UPDATE ON outbox_event FROM host_0"),
        undo: |fixture| fixture.sql("GRANT UPDATE ON outbox_event TO host_0"),
        doctor: Some(&["nodes: ", "{host}", "stands aside", "cannot store outcomes"]),
        overview: Some(&["may not store outcomes"]),
        repeats: Repeats::OfSickHost,
        is_writable: true,
    },
];

pub(super) const MARIADB: &[Fault] = &[
    Fault {
        name: "one host cannot reach a sink",
        apply: |fixture| fixture.receiver().set_cut_off(SICK, true),
        undo: |fixture| fixture.receiver().set_cut_off(SICK, false),
        doctor: Some(&["nodes: ", "{host}", "stands aside", "the sink rough is down"]),
        overview: Some(&["{host}", "stands aside", "the sink rough is down"]),
        repeats: Repeats::Never,
        is_writable: true,
    },
    Fault {
        name: "one host stands still",
        apply: |fixture| fixture.sick().signal("STOP"),
        undo: |fixture| fixture.sick().signal("CONT"),
        doctor: Some(&["nodes: ", "{host}"]),
        overview: Some(&["{host}"]),
        repeats: Repeats::OfSickHost,
        is_writable: true,
    },
    Fault {
        name: "some calls take long",
        apply: |fixture| {
            fixture.choose_odd();
            fixture.write_odd_call(LONG_CALL);
            fixture.load().set_long_calls(true);
        },
        undo: |fixture| fixture.load().set_long_calls(false),
        doctor: None,
        overview: None,
        repeats: Repeats::Never,
        is_writable: true,
    },
];
