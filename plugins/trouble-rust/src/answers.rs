//! Trouble that the contract has a word for: the listener answers, and says what should follow.

use std::sync::atomic::{AtomicU64, Ordering};

use outbox_sdk::prelude::*;

const REASON: &str = "as asked";

#[derive(Deserialize)]
pub(crate) struct Delay {
    ms: u64,
}

#[derive(Deserialize)]
pub(crate) struct Until {
    attempt: u32,
}

pub(crate) fn finish(_: &Event) -> Answer {
    Ok(Done)
}

pub(crate) fn ask_for_later(_: &Event, delay: Delay) -> Answer {
    Ok(retry_after(Duration::from_millis(delay.ms)))
}

pub(crate) fn give_up(_: &Event) -> Answer {
    Ok(dead(REASON))
}

pub(crate) fn fail(_: &Event) -> Answer {
    Err(Failure::retryable(REASON))
}

pub(crate) fn fail_until_later(_: &Event, delay: Delay) -> Answer {
    Err(Failure::retryable_after(Duration::from_millis(delay.ms), REASON))
}

pub(crate) fn fail_for_good(_: &Event) -> Answer {
    Err(Failure::unrecoverable(REASON))
}

pub(crate) fn fail_until_attempt(event: &Event, until: Until) -> Answer {
    if event.attempt < until.attempt {
        return Err(Failure::retryable(format_args!("attempt {} of {}", event.attempt, until.attempt)));
    }
    Ok(Done)
}

/// Shows whether an instance was fresh: what it keeps in its memory is gone with it.
pub(crate) fn count(_: &Event) -> Answer {
    static COUNT: AtomicU64 = AtomicU64::new(0);

    let count = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    info!(count = count; "count {count}");
    Ok(dead(format_args!("count {count}")))
}

#[cfg(test)]
mod tests {
    use crate::ThisPlugin;
    use outbox_sdk::prelude::*;

    fn trouble(event_type: &str, payload: &str, attempt: u32) -> Answer {
        ThisPlugin::on_event(&Event::for_test("Trouble", event_type).with_text(payload).with_attempt(attempt))
    }

    #[test]
    fn a_delay_is_the_one_in_the_payload() {
        let delay = Duration::from_millis(250);

        assert_eq!(trouble("RetryAfter", r#"{"ms": 250}"#, 1), Ok(retry_after(delay)));
        assert_eq!(trouble("RetryableAfter", r#"{"ms": 250}"#, 1), Err(Failure::retryable_after(delay, "as asked")));
    }

    #[test]
    fn a_flaky_event_is_done_on_the_attempt_in_the_payload() {
        let until_three = r#"{"attempt": 3}"#;

        assert_eq!(trouble("FlakyUntil", until_three, 2), Err(Failure::retryable("attempt 2 of 3")));
        assert_eq!(trouble("FlakyUntil", until_three, 3), Ok(Done));
    }

    #[test]
    fn a_kept_instance_counts_on() {
        assert_eq!(trouble("Counter", "null", 1), Ok(dead("count 1")));
        assert_eq!(trouble("Counter", "null", 1), Ok(dead("count 2")));
    }
}
