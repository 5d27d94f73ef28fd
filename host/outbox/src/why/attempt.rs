//! What an attempt came to and what it cost, in words.

use super::{Counters, Explanation};
use crate::deceptive::shown;
use crate::event::{Cost, ShortDigest};
use crate::listener::is_unroutable;
use crate::store::{AttemptCost, AttemptEnd, failures};
use crate::units::{count, number, size, span};

/// `attempt 2 (failed): 12 ms, 1,200,000 fuel, 1.1 MiB of memory, 5 host calls carrying 2.0 KiB, by 0123456789ab`; safe for a
/// terminal. `plugin` is the name of the component, where it is known.
#[must_use]
pub fn attempt(kept: &AttemptCost, plugin: Option<&str>) -> String {
    let AttemptCost { attempt, outcome, cost } = kept;
    let came_to = match outcome {
        AttemptEnd::Done => "done",
        AttemptEnd::Deferred => "deferred by its listener",
        AttemptEnd::Retry => "failed",
        AttemptEnd::Dead => "the event was given up",
    };
    format!("attempt {attempt} ({came_to}): {}", figures(cost, plugin))
}

fn figures(cost: &Cost, plugin: Option<&str>) -> String {
    let mut text = span(cost.took);
    if let Some(guest) = &cost.guest {
        text.push_str(&format!(
            ", {} fuel, {} of memory, {} carrying {}, by {}",
            number(guest.fuel),
            size(guest.memory_bytes),
            count(guest.host_calls.into(), "host call"),
            size(guest.host_bytes),
            component(guest.digest, plugin),
        ));
    }
    if cost.events > 1 {
        text.push_str(&format!("; its share of one call for {} events (the memory is that of the whole call)", cost.events));
    }
    text
}

/// `order-mailer 1.0.0 (0123456789ab)`, or the digest alone where the plugin's name is not known.
fn component(digest: ShortDigest, plugin: Option<&str>) -> String {
    plugin.map_or_else(|| digest.to_string(), |plugin| format!("{} ({digest})", shown(plugin)))
}

impl Explanation {
    /// How many attempts failed: those that are counted, and the one at which its listener gave the event up, which is not.
    #[must_use]
    pub fn failures(&self) -> u32 {
        let Counters { status, attempts, .. } = self.counters;
        failures(status, attempts, self.last_error.as_deref(), self.last_cost.as_ref())
    }

    /// How often what happened: `3 failed attempts, 1 deferral, 1 claim without an outcome`. What never happened is left out.
    #[must_use]
    pub fn counted(&self) -> String {
        let Counters { deferrals, claims, starts, claim_seq, replays, .. } = self.counters;
        let all = [
            (self.failures(), "failed attempt", ""),
            (deferrals, "deferral", ""),
            (claims, "claim", " without an outcome"),
            (replays, "replay", ""),
            // Two hosts were gone while they held it, so it is delivered with no other event beside it.
            (starts, "start", " alone without an outcome"),
        ];
        let some = all.iter().filter(|(times, ..)| *times > 0);
        let counted: Vec<String> = some.map(|(times, what, how)| format!("{}{how}", count(u64::from(*times), what))).collect();
        match (counted.is_empty(), claim_seq) {
            (true, 0) => "no outcome yet".to_owned(),
            // What a host did with it was no attempt, though the log numbers it as the first delivery.
            (true, _) if self.last_error.as_deref().is_some_and(is_unroutable) => {
                "no attempt: no listener was called".to_owned()
            }
            (true, _) => "no failed attempt".to_owned(),
            (false, _) => counted.join(", "),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::GuestCost;

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
            attempt(&kept, None),
            "attempt 2 (failed): 12 ms, 1,200,000 fuel, 1.1 MiB of memory, 5 host calls carrying 2.0 KiB, by 0123456789ab"
        );
        let named = attempt(&kept, Some("mailer 1.4.0"));
        assert!(named.ends_with(", by mailer 1.4.0 (0123456789ab)"), "{named}");
    }

    #[test]
    fn a_share_of_a_call_says_so_and_native_code_has_a_time_only() {
        let share = AttemptCost { attempt: 1, outcome: AttemptEnd::Done, cost: guest().share(0, 40) };
        let native = AttemptCost { attempt: 3, outcome: AttemptEnd::Dead, cost: Cost::of_time(Duration::from_millis(250)) };

        assert!(
            attempt(&share, None).ends_with("; its share of one call for 40 events (the memory is that of the whole call)")
        );
        assert_eq!(attempt(&native, None), "attempt 3 (the event was given up): 250 ms");
    }
}
