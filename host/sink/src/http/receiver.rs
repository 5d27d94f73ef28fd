//! Whether the receiver as a whole takes messages, by its last answers.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::SinkError;

/// The longest rest of all messages that a receiver is granted; one message rests for as long as it was asked to.
const LONGEST_REST: Duration = Duration::from_secs(60);
/// After so many messages in a row that it did not take for no fault of theirs, the receiver is down.
const DOWN_AFTER: u32 = 10;

/// The receiver of all messages of a sink.
pub(super) struct Receiver {
    /// Whether there is but one: otherwise an answer says nothing of the other messages.
    is_one: bool,
    /// Messages in a row that it did not take for no fault of theirs, and the id of the last one: a message that comes again says
    /// nothing of the others.
    not_taken: Mutex<(u32, String)>,
}

impl Receiver {
    pub(super) fn new(is_one: bool) -> Self {
        Self { is_one, not_taken: Mutex::default() }
    }

    /// The answer for a message, in view of those before it: a receiver that takes nothing is down. `shown` is its address, with which
    /// every error begins.
    pub(super) fn judge(&self, answer: Result<(), SinkError>, id: &str, shown: &str) -> Result<(), SinkError> {
        let mut not_taken = self.not_taken.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = match &answer {
            Err(SinkError::Unavailable { retry_after, .. }) => retry_after.unwrap_or_default(),
            Err(SinkError::Denied { .. }) => Duration::ZERO,
            Err(SinkError::Down { .. }) => return answer,
            // It looked at the message.
            Ok(()) | Err(_) => {
                not_taken.0 = 0;
                return answer;
            }
        };
        if not_taken.0 == 0 || not_taken.1 != id {
            *not_taken = (not_taken.0.saturating_add(1), id.to_owned());
        }
        match answer {
            Err(error) if self.is_one && not_taken.0 >= DOWN_AFTER => {
                Err(SinkError::down_for(rest.min(LONGEST_REST), without_body(&error.to_string(), shown)))
            }
            answer => answer,
        }
    }
}

/// A reason without the response's body, which may repeat the message: events of other messages store it too.
fn without_body(reason: &str, shown: &str) -> String {
    let status = reason.strip_prefix(shown).and_then(|said| said.strip_prefix(" answered "));
    match status.and_then(|said| said.split([':', ' ']).next()) {
        Some(status) => format!("{shown} answered {status}"),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://a";
    const HOUR: Duration = Duration::from_secs(3_600);

    fn unavailable() -> Result<(), SinkError> {
        Err(SinkError::unavailable("https://a answered 503: card 4711"))
    }

    fn denied() -> Result<(), SinkError> {
        Err(SinkError::denied("https://a answered 404: card 4711"))
    }

    fn is_down(answer: &Result<(), SinkError>) -> bool {
        answer.as_ref().is_err_and(SinkError::is_down)
    }

    #[test]
    fn a_receiver_that_takes_nothing_is_down_until_it_has_looked_at_a_message() {
        let receiver = Receiver::new(true);
        let answers: Vec<_> = (0..12)
            .map(|n: u32| receiver.judge(if n.is_multiple_of(2) { unavailable() } else { denied() }, &n.to_string(), URL))
            .collect();
        let down: Vec<_> = answers.iter().map(is_down).collect();
        assert_eq!(down, [false, false, false, false, false, false, false, false, false, true, true, true]);

        for looked in [Ok(()), Err(SinkError::rejected("422")), Err(SinkError::Failed { reason: "500".to_owned() })] {
            assert_eq!(receiver.judge(looked.clone(), "looked", URL), looked);
            assert_eq!(receiver.judge(denied(), "next", URL), denied(), "after {looked:?}");
        }
    }

    #[test]
    fn one_message_that_is_refused_again_and_again_is_no_reason_to_send_no_other() {
        let receiver = Receiver::new(true);
        assert!((0..30).all(|_| receiver.judge(denied(), "7", URL) == denied()));
    }

    #[test]
    fn what_a_receiver_says_of_one_message_is_not_told_of_others() {
        let receiver = Receiver::new(true);
        let last = (0..10).map(|n: u32| receiver.judge(unavailable(), &n.to_string(), URL)).last();
        assert_eq!(last, Some(Err(SinkError::down("https://a answered 503"))));
        assert_eq!(without_body("https://a: connection reset", URL), "https://a: connection reset");
    }

    #[test]
    fn a_rest_that_a_receiver_asks_for_is_that_of_its_message_and_bounded_for_all_others() {
        let asks = || Err(SinkError::unavailable_for(HOUR, "https://a answered 429"));
        let one = Receiver::new(true);
        assert!((1..10).all(|n: u32| one.judge(asks(), &n.to_string(), URL) == asks()));
        assert_eq!(one.judge(asks(), "10", URL), Err(SinkError::down_for(LONGEST_REST, "https://a answered 429")));
        let several = Receiver::new(false);
        assert!((0..30).all(|n: u32| several.judge(asks(), &n.to_string(), URL) == asks()));
    }
}
