//! What an attempt cost, as people read it.

use std::time::Duration;

use outbox::event::{Cost, ShortDigest};
use outbox::store::{AttemptCost, AttemptEnd};

use crate::output::{count, grouped, shown, size};

/// `attempt 2, which failed: 12.3ms, 1,200,000 fuel, 1.1 MiB of memory, 5 calls of the host with 2.0 KiB, by 0123456789ab`. The
/// component has its name where it is known.
pub(crate) fn cost_text(kept: &AttemptCost, plugin: Option<&str>) -> String {
    let AttemptCost { attempt, outcome, cost } = kept;
    let came_to = match outcome {
        AttemptEnd::Done => "which was done",
        AttemptEnd::Deferred => "which asked for later",
        AttemptEnd::Retry => "which failed",
        AttemptEnd::Dead => "after which it was given up",
    };
    format!("attempt {attempt}, {came_to}: {}", figures(cost, plugin))
}

fn figures(cost: &Cost, plugin: Option<&str>) -> String {
    let took = Duration::from_micros(u64::try_from(cost.took.as_micros()).unwrap_or(u64::MAX));
    let mut text = match &cost.guest {
        None => format!("{took:?}"),
        Some(guest) => format!(
            "{took:?}, {} fuel, {} of memory, {} of the host with {}, by {}",
            grouped(guest.fuel),
            size(guest.memory_bytes),
            count(guest.host_calls.into(), "call"),
            size(guest.host_bytes),
            component(guest.digest, plugin),
        ),
    };
    if cost.events > 1 {
        text.push_str(&format!("; its share of one call for {} events, but for the memory", cost.events));
    }
    text
}

/// `order-mailer 1.0.0 (0123456789ab)`, or the digest alone where the plugin's name is not known.
fn component(digest: ShortDigest, plugin: Option<&str>) -> String {
    plugin.map_or_else(|| digest.to_string(), |plugin| format!("{} ({digest})", shown(plugin)))
}

#[cfg(test)]
mod tests {
    use outbox::event::GuestCost;

    use super::*;

    const DIGEST: &str = "0123456789ab";

    fn guest() -> Cost {
        let digest = DIGEST.parse().expect("hex");
        let guest = GuestCost { digest, fuel: 1_200_000, memory_bytes: 1_179_648, host_calls: 5, host_bytes: 2_048 };
        Cost { guest: Some(guest), ..Cost::of_time(Duration::from_nanos(12_345_678)) }
    }

    #[test]
    fn it_says_what_was_used_and_by_which_component() {
        let kept = AttemptCost { attempt: 2, outcome: AttemptEnd::Retry, cost: guest() };

        assert_eq!(
            cost_text(&kept, None),
            "attempt 2, which failed: 12.345ms, 1,200,000 fuel, 1.1 MiB of memory, 5 calls of the host with 2.0 KiB, by 0123456789ab"
        );
        let named = cost_text(&kept, Some("mailer 1.4.0"));
        assert!(named.ends_with(", by mailer 1.4.0 (0123456789ab)"), "{named}");
    }

    #[test]
    fn a_share_of_a_call_says_so_and_native_code_has_a_time_only() {
        let share = AttemptCost { attempt: 1, outcome: AttemptEnd::Done, cost: guest().share(0, 40) };
        let native = AttemptCost { attempt: 3, outcome: AttemptEnd::Dead, cost: Cost::of_time(Duration::from_millis(250)) };

        assert!(cost_text(&share, None).ends_with("; its share of one call for 40 events, but for the memory"));
        assert_eq!(cost_text(&native, None), "attempt 3, after which it was given up: 250ms");
    }
}
