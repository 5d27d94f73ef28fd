//! Many events in one call: what a host with `isolation = "batch"` asks instead of one call for each.

use crate::{Answer, Event, Failure, Route};

/// A plugin that takes many events in one call. [`listener!`](crate::listener!) implements it for `ThisPlugin` where it has
/// `batches`.
pub trait BatchPlugin {
    /// One answer for each event, in order.
    fn on_events(events: &[Event]) -> Vec<Answer>;
}

/// A function that answers many events of one route: `fn(&[Event]) -> Vec<Answer>`, or
/// `fn(&[Event]) -> Result<Vec<Answer>, Failure>`, whose failure is the answer to each of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot answer many events of a route",
    label = "not a batch function",
    note = "a batch function is `fn(&[Event]) -> Vec<Answer>` or `fn(&[Event]) -> Result<Vec<Answer>, Failure>`"
)]
pub trait BatchHandler<Shape> {
    /// Answers events of one route, in order.
    ///
    /// # Errors
    /// What all of them fail with.
    fn handle_all(&self, events: &[Event]) -> Result<Vec<Answer>, Failure>;
}

impl<F> BatchHandler<()> for F
where
    F: Fn(&[Event]) -> Vec<Answer>,
{
    fn handle_all(&self, events: &[Event]) -> Result<Vec<Answer>, Failure> {
        Ok(self(events))
    }
}

impl<F> BatchHandler<((),)> for F
where
    F: Fn(&[Event]) -> Result<Vec<Answer>, Failure>,
{
    fn handle_all(&self, events: &[Event]) -> Result<Vec<Answer>, Failure> {
        self(events)
    }
}

/// Answers events that came together: those of one route that follow each other by `together`, where that has a function for
/// it, and the others one by one. Only neighbours go together: events of one aggregate may have different routes, and keep
/// their order.
#[doc(hidden)]
pub fn answer_all(
    events: &[Event],
    together: impl Fn(&[Event]) -> Option<Result<Vec<Answer>, Failure>>,
    alone: impl Fn(&Event) -> Answer,
) -> Vec<Answer> {
    let mut answers = Vec::with_capacity(events.len());
    for neighbours in events.chunk_by(|one, next| one.route == next.route) {
        match together(neighbours) {
            None => answers.extend(neighbours.iter().map(&alone)),
            Some(Ok(given)) if given.len() == neighbours.len() => answers.extend(given),
            Some(Ok(given)) => answers.extend(failed(neighbours, &miscounted(neighbours, given.len()))),
            Some(Err(failure)) => answers.extend(failed(neighbours, &failure)),
        }
    }
    answers
}

fn failed(events: &[Event], failure: &Failure) -> impl Iterator<Item = Answer> {
    std::iter::repeat_n(failure.clone(), events.len()).map(Err)
}

fn miscounted(events: &[Event], answers: usize) -> Failure {
    let Route { aggregate_type, event_type } = &events[0].route;
    Failure::retryable(format_args!(
        "the batch function of {aggregate_type}/{event_type} got {} events and returned {answers} answers; it must return one for each",
        events.len()
    ))
}

/// Whether each batch's route is among the routes that are answered one by one, as events are after a call that broke off.
#[doc(hidden)]
#[must_use]
pub const fn all_listed(batches: &[(&str, &str)], routes: &[(&str, &str)]) -> bool {
    let mut index = 0;
    while index < batches.len() {
        let mut other = 0;
        while other < routes.len() && !(same(batches[index].0, routes[other].0) && same(batches[index].1, routes[other].1)) {
            other += 1;
        }
        if other == routes.len() {
            return false;
        }
        index += 1;
    }
    true
}

/// `==` of texts is no constant function yet.
const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use crate::prelude::*;

    listener! {
        "Note" / "Kept" => alone,
        "Note" / "Counted" => alone,
        "Note" / "Short" => alone,
        "Note" / "Down" => alone,
        batches: {
            "Note" / "Counted" => counted,
            "Note" / "Short" => |events: &[Event]| events.iter().skip(1).map(|_| Ok(Done)).collect::<Vec<_>>(),
            "Note" / "Down" => down,
        },
    }

    fn alone(_: &Event) -> Answer {
        Ok(dead("alone"))
    }

    fn counted(events: &[Event]) -> Vec<Answer> {
        let of = events.len();
        let answer = |event: &Event| {
            if event.attempt > 1 { Err(Failure::unrecoverable("no")) } else { Ok(dead(format_args!("one of {of}"))) }
        };
        events.iter().map(answer).collect()
    }

    fn down(events: &[Event]) -> Result<Vec<Answer>, Failure> {
        let number: u32 = events[0].text()?.parse()?;
        Ok(events.iter().map(|_| Ok(dead(number.to_string()))).collect())
    }

    fn events(types: &[&str]) -> Vec<Event> {
        types.iter().map(|event_type| Event::for_test("Note", event_type)).collect()
    }

    #[test]
    fn neighbours_of_one_route_go_together_and_the_others_alone_and_every_answer_stands_where_its_event_did() {
        let mut events = events(&["Counted", "Counted", "Kept", "Kept", "Counted", "Unheard"]);
        events[1].attempt = 2;

        let answers = ThisPlugin::on_events(&events);

        let one_of = |count: u32| Ok(dead(format!("one of {count}")));
        assert_eq!(
            answers[..5],
            [one_of(2), Err(Failure::unrecoverable("no")), Ok(dead("alone")), Ok(dead("alone")), one_of(1)]
        );
        assert!(answers[5].as_ref().unwrap_err().message.contains("does not answer Note/Unheard"));
        assert_eq!(ThisPlugin::on_events(&[]), []);
    }

    #[test]
    fn a_batch_function_that_fails_or_returns_too_few_answers_fails_its_own_events_and_no_other() {
        let answers = ThisPlugin::on_events(&events(&["Short", "Short", "Kept", "Down", "Down"]));

        let message = |index: usize| answers[index].as_ref().unwrap_err().message.clone();
        assert_eq!(
            message(0),
            "the batch function of Note/Short got 2 events and returned 1 answers; it must return one for each"
        );
        assert_eq!((message(1), &answers[2]), (message(0), &Ok(dead("alone"))));
        assert!(message(3).contains("invalid digit") && message(3) == message(4), "{}", message(3));
        let fine = Event::for_test("Note", "Down").with_text("7");
        assert_eq!(ThisPlugin::on_events(&[fine.clone(), fine]), [Ok(dead("7")), Ok(dead("7"))]);
    }

    #[test]
    fn a_batch_of_a_route_that_nobody_answers_alone_is_found() {
        const ROUTES: &[(&str, &str)] = &[("Order", "Placed"), ("Order", "Paid")];

        assert!(super::all_listed(&[("Order", "Paid"), ("Order", "Placed")], ROUTES));
        assert!(!super::all_listed(&[("Order", "Paid"), ("Orders", "Placed")], ROUTES));
        assert!(!super::all_listed(&[("Order", "Paix")], ROUTES));
        assert!(super::all_listed(&[], ROUTES));
    }
}
