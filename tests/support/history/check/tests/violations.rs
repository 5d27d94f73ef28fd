//! One way after the other to break a history.

use outbox::{EventId, Status};
use proptest::sample::Index;

use super::plan::{CALL, event};
use crate::history::check::Order;
use crate::history::{Delivery, Ended, Ending, Held, Line, Row, Step, Written};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    Vanished,
    LeftUnfinished,
    GhostCall,
    GhostRow,
    Half,
    RenumberedCall,
    RenumberedRow,
    DoneThoughItFailed,
    DoneWithoutCall,
    DeadThoughAttemptsWereLeft,
    DeadWithoutCall,
    AtOnce,
    KeyAtOnce,
    ClaimTwice,
    ClaimBack,
    RowBehindItsCalls,
    AttemptOfACall,
    AttemptsOfTheRow,
    DeferralsOfTheRow,
    EarlyRetry,
    EarlyDeferral,
    EarlyFirst,
    Again,
    AgainWithoutFault,
    AgainUnderAnotherClaim,
    Unended,
    Reordered,
}

use Violation::*;

impl Violation {
    pub(super) const ALL: [Self; 27] = [
        Vanished,
        LeftUnfinished,
        GhostCall,
        GhostRow,
        Half,
        RenumberedCall,
        RenumberedRow,
        DoneThoughItFailed,
        DoneWithoutCall,
        DeadThoughAttemptsWereLeft,
        DeadWithoutCall,
        AtOnce,
        KeyAtOnce,
        ClaimTwice,
        ClaimBack,
        RowBehindItsCalls,
        AttemptOfACall,
        AttemptsOfTheRow,
        DeferralsOfTheRow,
        EarlyRetry,
        EarlyDeferral,
        EarlyFirst,
        Again,
        AgainWithoutFault,
        AgainUnderAnotherClaim,
        Unended,
        Reordered,
    ];

    /// As the report calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Vanished | LeftUnfinished => "lost",
            GhostCall | GhostRow => "rolled back or never written",
            Half => "transactions in part",
            RenumberedCall | RenumberedRow => "renumbered",
            DoneThoughItFailed | DoneWithoutCall => "DONE without a success",
            DeadThoughAttemptsWereLeft | DeadWithoutCall => "DEAD without a listener's word",
            AtOnce => "with two listeners at once",
            KeyAtOnce => "aggregates with two listeners at once",
            ClaimTwice | ClaimBack | RowBehindItsCalls => "claims that go back",
            AttemptOfACall | AttemptsOfTheRow | DeferralsOfTheRow => "miscounted",
            EarlyRetry | EarlyDeferral | EarlyFirst => "early",
            Again | AgainWithoutFault | AgainUnderAnotherClaim => "repeated without a fault",
            Unended => "calls without an end",
            Reordered => "out of order",
        }
    }

    /// The orders that it breaks.
    pub(super) fn orders(self) -> Vec<Order> {
        let all = vec![Order::FailuresMayBeOvertaken, Order::Strict, Order::Total];
        if matches!(self, KeyAtOnce | Reordered) { all } else { [all, vec![Order::Any]].concat() }
    }
}

/// Breaks it, at a place of chance. The first aggregate has something of everything, see [`plan`](super::plan::plan).
pub(super) fn break_in(lines: &mut Vec<Line>, violation: Violation, place: Index) {
    let any = *place.get(&events(lines));
    let committed = *place.get(&committed(lines));
    let done = *place.get(&with_status(lines, Status::Done));
    let [plain, retried, deferred, unstored, delayed] = [0, 1, 2, 3, 7].map(|number| event(0, number));
    match violation {
        Vanished => {
            forget_calls(lines, committed);
            rows(lines).retain(|row| row.event_id != committed);
        }
        LeftUnfinished => row(lines, any).status = Status::New,
        GhostCall => add_call(lines, call_of_nobody(), (i64::MAX - 2, i64::MAX - 1), Ending::Done),
        GhostRow => {
            let (event_id, sequence) = (event(0, 10), 77_777);
            rows(lines).push(Row { event_id, sequence, status: Status::New, attempts: 0, deferrals: 0, fence: 0 });
        }
        Half => {
            forget_calls(lines, event(0, 9));
            rows(lines).retain(|row| row.event_id != event(0, 9));
        }
        RenumberedCall => last_beginning(lines, any).1.sequence = 99_999,
        RenumberedRow => row(lines, any).sequence = 99_999,
        DoneThoughItFailed => last_end(lines, done).1.ending = Ending::Failed,
        DoneWithoutCall => forget_calls(lines, done),
        DeadThoughAttemptsWereLeft => {
            last_end(lines, done).1.ending = Ending::Failed;
            let row = row(lines, done);
            (row.status, row.attempts) = (Status::Dead, row.attempts + 1);
        }
        DeadWithoutCall => {
            forget_calls(lines, done);
            row(lines, done).status = Status::Dead;
        }
        AtOnce => call_again(lines, any, 2 - CALL),
        KeyAtOnce => {
            let end = last_end(lines, plain).0;
            *first_beginning(lines, retried) = end - CALL / 2;
        }
        ClaimTwice => change_last_claim(lines, retried, |before| before),
        ClaimBack => change_last_claim(lines, retried, |before| before - 1),
        RowBehindItsCalls => row(lines, any).fence -= 1,
        AttemptOfACall => last_beginning(lines, any).1.attempt += 2,
        AttemptsOfTheRow => row(lines, any).attempts += 1,
        DeferralsOfTheRow => row(lines, any).deferrals += 1,
        EarlyRetry | EarlyDeferral => {
            let early = if violation == EarlyRetry { retried } else { deferred };
            let before = ends(lines, early).len() - 2;
            let end = ends(lines, early)[before].0;
            *last_beginning(lines, early).0 = end + 1;
        }
        EarlyFirst => {
            let began = *first_beginning(lines, delayed);
            written(lines, delayed).not_before = Some(began + 1);
        }
        Again => call_again(lines, any, 0),
        AgainWithoutFault => lines.retain(|line| !holds(line, unstored)),
        AgainUnderAnotherClaim => {
            for line in lines.iter_mut().filter(|line| holds(line, unstored)) {
                let Step::Fault(fault) = &mut line.step else { continue };
                fault.held = Held::Claims(vec![(unstored, 2)]);
            }
        }
        Unended => {
            let first = lines.iter().position(|line| matches!(&line.step, Step::Ended(end) if end.event_id == retried));
            lines.remove(first.expect("it ended"));
        }
        Reordered => {
            for line in lines {
                match &mut line.step {
                    Step::Intent { events, .. } if events[0].event_id == plain => {
                        let (first, second) = events.split_at_mut(1);
                        std::mem::swap(&mut first[0].event_id, &mut second[0].event_id);
                    }
                    Step::Committed { transaction, sequences } if transaction == "t-0-0" => sequences.swap(0, 1),
                    _ => {}
                }
            }
        }
    }
}

fn events(lines: &mut [Line]) -> Vec<EventId> {
    rows(lines).iter().map(|row| row.event_id).collect()
}

fn with_status(lines: &mut [Line], status: Status) -> Vec<EventId> {
    rows(lines).iter().filter(|row| row.status == status).map(|row| row.event_id).collect()
}

fn committed(lines: &[Line]) -> Vec<EventId> {
    let is_committed = |name: &String| {
        lines.iter().any(|line| matches!(&line.step, Step::Committed { transaction, .. } if transaction == name))
    };
    let intents = lines.iter().filter_map(|line| match &line.step {
        Step::Intent { transaction, events } if is_committed(transaction) => Some(events),
        _ => None,
    });
    intents.flatten().map(|event| event.event_id).collect()
}

fn rows(lines: &mut [Line]) -> &mut Vec<Row> {
    let table = lines.iter_mut().find_map(|line| match &mut line.step {
        Step::Table { rows } => Some(rows),
        _ => None,
    });
    table.expect("every plan ends with its table")
}

fn row(lines: &mut [Line], id: EventId) -> &mut Row {
    rows(lines).iter_mut().find(|row| row.event_id == id).expect("it has a row")
}

fn written(lines: &mut [Line], id: EventId) -> &mut Written {
    let intents = lines.iter_mut().filter_map(|line| match &mut line.step {
        Step::Intent { events, .. } => Some(events),
        _ => None,
    });
    intents.flatten().find(|event| event.event_id == id).expect("it was written")
}

fn beginnings(lines: &mut [Line], id: EventId) -> Vec<(&mut i64, &mut Delivery)> {
    let calls = lines.iter_mut().filter_map(|line| match &mut line.step {
        Step::Began(delivery) if delivery.event_id == id => Some((&mut line.at, delivery)),
        _ => None,
    });
    calls.collect()
}

fn first_beginning(lines: &mut [Line], id: EventId) -> &mut i64 {
    beginnings(lines, id).swap_remove(0).0
}

fn last_beginning(lines: &mut [Line], id: EventId) -> (&mut i64, &mut Delivery) {
    beginnings(lines, id).pop().expect("it was called")
}

fn ends(lines: &mut [Line], id: EventId) -> Vec<(i64, &mut Ended)> {
    let ends = lines.iter_mut().filter_map(|line| match &mut line.step {
        Step::Ended(ended) if ended.event_id == id => Some((line.at, ended)),
        _ => None,
    });
    ends.collect()
}

/// The end of the call that began last: a host that slept may end a call after it.
fn last_end(lines: &mut [Line], id: EventId) -> (i64, &mut Ended) {
    let fence = last_beginning(lines, id).1.fence;
    ends(lines, id).into_iter().find(|(_, end)| end.fence == fence).expect("the last call ended")
}

fn forget_calls(lines: &mut Vec<Line>, id: EventId) {
    lines.retain(|line| match &line.step {
        Step::Began(delivery) => delivery.event_id != id,
        Step::Ended(ended) => ended.event_id != id,
        _ => true,
    });
}

fn holds(line: &Line, id: EventId) -> bool {
    matches!(&line.step, Step::Fault(fault) if matches!(&fault.held, Held::Claims(claims) if claims[0].0 == id))
}

fn call_of_nobody() -> Delivery {
    Delivery { event_id: "nobody-s".parse().expect("an id"), aggregate: None, sequence: 0, fence: 1, attempt: 1 }
}

fn add_call(lines: &mut Vec<Line>, delivery: Delivery, (from, to): (i64, i64), ending: Ending) {
    let (event_id, fence) = (delivery.event_id, delivery.fence);
    let line = |at, step| Line { at, node: "host".to_owned(), step };
    lines.push(line(from, Step::Began(delivery)));
    lines.push(line(to, Step::Ended(Ended { event_id, fence, ending, after_ms: None })));
}

/// Calls once more what has come to its end, under the next claim, this long after that end.
fn call_again(lines: &mut Vec<Line>, id: EventId, after: i64) {
    let (end, ended) = last_end(lines, id);
    let ending = ended.ending;
    let again = last_beginning(lines, id).1;
    let again = Delivery { fence: again.fence + 1, ..again.clone() };
    row(lines, id).fence = again.fence;
    add_call(lines, again, (end + after, end + after + 1), ending);
}

fn change_last_claim(lines: &mut [Line], id: EventId, to: impl Fn(u64) -> u64) {
    let calls = beginnings(lines, id);
    let claim = to(calls[calls.len() - 2].1.fence);
    last_end(lines, id).1.fence = claim;
    last_beginning(lines, id).1.fence = claim;
    row(lines, id).fence = claim;
}
