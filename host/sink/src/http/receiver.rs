//! Whether the receiver as a whole takes messages, by its last answers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::SinkError;

/// After so many messages in a row that it did not take for no fault of theirs, the receiver is down.
const DOWN_AFTER: u32 = 10;

/// The receiver of all messages of a sink.
pub(super) struct Receiver {
    /// Whether there is but one: otherwise an answer says nothing of the other messages.
    is_one: bool,
    /// Messages in a row that it did not take for no fault of theirs.
    not_taken: AtomicU32,
}

impl Receiver {
    pub(super) fn new(is_one: bool) -> Self {
        Self { is_one, not_taken: AtomicU32::new(0) }
    }

    /// The answer for a message, in view of those before it: a receiver that takes nothing, or asks for a rest, is down.
    pub(super) fn judge(&self, answer: Result<(), SinkError>) -> Result<(), SinkError> {
        let rest = match &answer {
            Err(SinkError::Unavailable { retry_after, .. }) => retry_after.unwrap_or_default(),
            Err(SinkError::Denied { .. }) => Duration::ZERO,
            Err(SinkError::Down { .. }) => return answer,
            // It looked at the message.
            Ok(()) | Err(_) => {
                self.not_taken.store(0, Ordering::Relaxed);
                return answer;
            }
        };
        let not_taken = self.not_taken.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        match answer {
            Err(error) if self.is_one && (not_taken >= DOWN_AFTER || !rest.is_zero()) => {
                Err(SinkError::down_for(rest, error.to_string()))
            }
            answer => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn unavailable() -> Result<(), SinkError> {
        Err(SinkError::unavailable("503"))
    }

    fn denied() -> Result<(), SinkError> {
        Err(SinkError::denied("404"))
    }

    fn is_down(answer: &Result<(), SinkError>) -> bool {
        answer.as_ref().is_err_and(SinkError::is_down)
    }

    #[test]
    fn a_receiver_that_takes_nothing_is_down_until_it_has_looked_at_a_message() {
        let receiver = Receiver::new(true);
        let answers: Vec<_> = (0..12).map(|n| receiver.judge(if n % 2 == 0 { unavailable() } else { denied() })).collect();
        let down: Vec<_> = answers.iter().map(is_down).collect();
        assert_eq!(down, [false, false, false, false, false, false, false, false, false, true, true, true]);

        for looked in [Ok(()), Err(SinkError::rejected("422")), Err(SinkError::Failed { reason: "500".to_owned() })] {
            assert_eq!(receiver.judge(looked.clone()), looked);
            assert_eq!(receiver.judge(denied()), denied(), "after {looked:?}");
        }
    }

    #[test]
    fn a_receiver_that_asks_for_a_rest_is_left_alone_for_it_unless_it_is_one_of_several() {
        let asks = || Err(SinkError::unavailable_for(MINUTE, "429"));
        assert_eq!(Receiver::new(true).judge(asks()), Err(SinkError::down_for(MINUTE, "429")));
        let several = Receiver::new(false);
        assert!((0..30).all(|_| several.judge(asks()) == asks() && several.judge(denied()) == denied()));
    }
}
