//! Events that are dead, wait or are overdue.

use outbox::purge::Overdue;
use outbox_event::units::relative_to;
use outbox_event::{EventId, Route, Status};
use outbox_store::{PurgeRow, WaitReason};

use super::*;

/// Each of another route.
fn different(number: usize, error: &str) -> Vec<Record> {
    let one = |number| dead(1, &format!("Type{number}"), &error.replace("ROUTE", &format!("Order/Type{number}"))).remove(0);
    (0..number).map(one).collect()
}

#[test]
fn dead_events_that_no_listener_answers_are_told_by_that_and_not_by_one_of_their_routes() {
    let stats = |dead| changed!(Stats { dead, ..Stats::default() });
    let nobody = || different(140, "no listener answers ROUTE (2 routes are answered)");
    let all = Snapshot { stats: stats(167), dead: [dead(27, "Placed", "x"), nobody()].concat(), ..snapshot() };
    assert_eq!(said(all), ["167 events are dead, 140 of them because no listener answers their 140 routes."]);
    let many = Snapshot { stats: stats(10_000), dead: [dead(27, "Placed", "x"), nobody()].concat(), ..snapshot() };
    assert_eq!(said(many), ["10,000 events are dead, most of the newest because no listener answers their 140 routes."]);
    let few = Snapshot { stats: stats(300), dead: [dead(160, "Placed", "x"), nobody()].concat(), ..snapshot() };
    assert_eq!(said(few), ["300 events are dead, 160 of them of Order/Placed, the first of these 160 since 14:02:00 UTC: x"]);
}

#[test]
fn dead_events_are_told_with_their_route_and_what_went_wrong() {
    let stats = |dead| changed!(Stats { dead, ..Stats::default() });
    let all_of_one = Snapshot { stats: stats(17), dead: dead(17, "Paid", "deadline"), ..snapshot() };
    assert_eq!(said(all_of_one), ["17 events are dead, all of Order/Paid, the first since 14:02:00 UTC: deadline"]);
    let mixed = Snapshot { stats: stats(5), dead: [dead(2, "Paid", "x"), dead(3, "Placed", "y")].concat(), ..snapshot() };
    assert_eq!(said(mixed), ["5 events are dead, 3 of them of Order/Placed, the first of these 3 since 14:02:00 UTC: y"]);
    let many = Snapshot { stats: stats(10_000), dead: dead(500, "Paid", "deadline"), ..snapshot() };
    assert_eq!(said(many), ["10,000 events are dead, the newest mostly of Order/Paid: deadline"]);
    let some =
        Snapshot { stats: stats(10_000), dead: [dead(25, "Paid", "x"), different(475, "timeout")].concat(), ..snapshot() };
    assert_eq!(said(some), ["10,000 events are dead, the newest most often of Order/Paid: x"], "5 % are not most of them");
    let one = Snapshot { stats: stats(1), dead: dead(1, "Paid", "deadline"), ..snapshot() };
    assert_eq!(said(one), ["1 event of Order/Paid has been dead since 14:02:00 UTC: deadline"]);
}

#[test]
fn number_time_and_error_of_dead_events_are_those_of_the_route_that_is_named() {
    let stats = |dead| changed!(Stats { dead, ..Stats::default() });
    let at = |time: &str, records: Vec<Record>| {
        let done_at = Some(format!("2026-11-21T{time}Z").parse().unwrap());
        records.into_iter().map(|record| changed!(Record { done_at, ..record })).collect::<Vec<_>>()
    };
    let lost = || at("14:05:00", dead(1, "Lost", "no listener"));
    let earlier = || at("13:55:00", dead(1, "Paid", "timeout"));
    let two = Snapshot { stats: stats(2), dead: [lost(), earlier()].concat(), ..snapshot() };
    assert_eq!(said(two), ["2 events are dead, 1 of them of Order/Lost since 14:05:00 UTC: no listener"]);
    let more = Snapshot { stats: stats(3), dead: [lost(), lost(), earlier()].concat(), ..snapshot() };
    assert_eq!(
        said(more),
        ["3 events are dead, 2 of them of Order/Lost, the first of these 2 since 14:05:00 UTC: no listener"]
    );

    let scattered = [lost(), dead(1, "Paid", "timeout"), dead(1, "Paid", "no stock")].concat();
    let said_of = said(Snapshot { stats: stats(3), dead: scattered, ..snapshot() });
    assert!(said_of[0].starts_with("3 events are dead, 2 of them of Order/Paid"), "as many errors as events: {said_of:?}");

    let placed = || [dead(3, "Placed", "y"), at("14:01:00", dead(1, "Placed", "z"))].concat();
    let of_route = Snapshot { stats: stats(4), dead: placed(), ..snapshot() };
    assert_eq!(said(of_route), ["4 events are dead, all of Order/Placed, the first since 14:01:00 UTC, most often: y"]);
    let share = Snapshot { stats: stats(5), dead: [placed(), earlier()].concat(), ..snapshot() };
    assert_eq!(
        said(share),
        ["5 events are dead, 4 of them of Order/Placed, the first of these 4 since 14:01:00 UTC, most often: y"]
    );
    let many = Snapshot { stats: stats(10_000), dead: placed(), ..snapshot() };
    assert_eq!(said(many), ["10,000 events are dead, the newest mostly of Order/Placed, most often: y"]);
}

#[test]
fn events_that_wait_are_told_with_the_reason_that_their_host_noted() {
    let since = now().minus(Duration::from_secs(240));
    let wait =
        |event_type, reason: &str, events| WaitReason::new(&Route::new("Order", event_type).unwrap(), reason, events, since);
    let down = "the sink orders is down: connection refused";
    let waits =
        vec![wait("OrderPaid", down, 400), wait("OrderLost", "no listener answers Order/OrderLost (1 route is answered)", 1)];
    assert_eq!(
        said(Snapshot { waits, ..snapshot() }),
        [
            format!("400 events of Order/OrderPaid are waiting, the first for 4 min: {down}"),
            "1 event of Order/OrderLost is waiting, the first for 4 min: no listener answers Order/OrderLost (1 route is answered)"
                .to_owned()
        ]
    );
}

#[test]
fn the_oldest_event_that_purges_do_not_delete_is_named() {
    let row = |event_id| PurgeRow { seq: 7, event_id, at: now().minus(Duration::from_secs(30 * 86_400)) };
    let id: EventId = "order-7".parse().unwrap();
    let of = |status, oldest| Overdue { status, finished_before: now(), oldest };
    let overdue = vec![of(Status::Done, row(Some(id))), of(Status::Dead, row(None))];
    assert_eq!(
        said(Snapshot { overdue, ..snapshot() }),
        [
            format!(
                "Purges do not delete old events: the oldest, order-7, finished {}, and purge.retention is shorter. `outbox purge` \
                 names the reason.",
                relative_to(row(None).at, now())
            ),
            format!(
                "Purges do not delete old events: the oldest, seq 7, finished {}, and purge.dead_retention is shorter. `outbox purge \
                 --dead` names the reason.",
                relative_to(row(None).at, now())
            ),
        ]
    );
}
