//! Tables and sequences that were changed by hand.

use super::fixture::Fixture;
use super::{Fault, Repeats};

const SEQUENCE: &str = "pg_get_serial_sequence('outbox_event', 'seq')";

pub(super) const POSTGRES: &[Fault] = &[
    Fault {
        name: "the sequence is behind its table",
        apply: |fixture| set_sequence(fixture, "1"),
        undo: |fixture| set_sequence(fixture, "(SELECT max(seq) FROM outbox_event)"),
        doctor: Some(&["sequences: outbox_event.seq goes up to "]),
        overview: Some(&["sequence"]),
        repeats: Repeats::Never,
        is_writable: false,
    },
    Fault {
        name: "the table is truncated and its numbers begin anew",
        apply: |fixture| fixture.truncate(),
        undo: |_| {},
        doctor: None,
        overview: None,
        repeats: Repeats::Never,
        is_writable: true,
    },
];

pub(super) const MARIADB: &[Fault] = &[Fault {
    name: "the partition table is emptied",
    apply: |fixture| fixture.sql("DELETE FROM outbox_event_partition"),
    undo: |_| {},
    doctor: None,
    overview: None,
    repeats: Repeats::OfAny,
    is_writable: true,
}];

fn set_sequence(fixture: &Fixture, last: &str) {
    fixture.sql(&format!("SELECT setval({SEQUENCE}, {last})"));
}
