//! Throttles a repeated log line.

use std::time::Duration;

use tokio::time::Instant;

const EVERY: Duration = Duration::from_secs(10);

/// Throttles a repeated log line to one every ten seconds.
#[derive(Debug, Default)]
#[doc(hidden)] // for the host
pub struct Reminder(Option<Instant>);

impl Reminder {
    /// Whether the line is due. If it is, it counts as logged.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = !self.is_fresh(now);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }

    /// Whether the line was logged in the last ten seconds.
    pub fn is_fresh(&self, now: Instant) -> bool {
        self.0.is_some_and(|said| now.saturating_duration_since(said) < EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_at_first_and_again_after_a_while() {
        let (mut reminder, now) = (Reminder::default(), Instant::now());
        assert!(reminder.is_due(now) && !reminder.is_due(now) && !reminder.is_due(now + EVERY - Duration::from_millis(1)));
        assert!(reminder.is_due(now + EVERY) && !reminder.is_due(now + EVERY));
    }
}
