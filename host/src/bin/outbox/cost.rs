//! What an attempt cost, as people read it.

use std::time::Duration;

use outbox::event::{Cost, ShortDigest};
use outbox::store::{AttemptCost, AttemptEnd, NodeRecord};

use crate::output::{count, grouped, shown, size};
use crate::plugins::{self, PluginStatus};

/// `attempt 2, which failed: 12.3ms, 1,200,000 fuel, 1.1 MiB of memory, 5 calls of the host with 2.0 KiB, by 0123456789ab`. The
/// component has its name while a running host lists it.
pub(crate) fn cost_text(kept: &AttemptCost, nodes: &[NodeRecord]) -> String {
    let AttemptCost { attempt, outcome, cost } = kept;
    let came_to = match outcome {
        AttemptEnd::Done => "which was done",
        AttemptEnd::Deferred => "which asked for later",
        AttemptEnd::Retry => "which failed",
        AttemptEnd::Dead => "after which it was given up",
    };
    format!("attempt {attempt}, {came_to}: {}", figures(cost, nodes))
}

fn figures(cost: &Cost, nodes: &[NodeRecord]) -> String {
    let took = Duration::from_micros(u64::try_from(cost.took.as_micros()).unwrap_or(u64::MAX));
    let mut text = match &cost.guest {
        None => format!("{took:?}"),
        Some(guest) => format!(
            "{took:?}, {} fuel, {} of memory, {} of the host with {}, by {}",
            grouped(guest.fuel),
            size(guest.memory_bytes),
            count(guest.host_calls.into(), "call"),
            size(guest.host_bytes),
            component(guest.digest, nodes),
        ),
    };
    if cost.events > 1 {
        text.push_str(&format!("; its share of one call for {} events, but for the memory", cost.events));
    }
    text
}

/// `order-mailer 1.0.0 (0123456789ab)`, or the digest alone when no running host lists it.
fn component(digest: ShortDigest, nodes: &[NodeRecord]) -> String {
    let digest = digest.to_string();
    let is_it = |plugin: &PluginStatus| plugin.digest.as_deref().is_some_and(|whole| whole.starts_with(&digest));
    match nodes.iter().flat_map(plugins::of_node).find(is_it) {
        Some(PluginStatus { name, version: Some(version), .. }) => format!("{} {} ({digest})", shown(&name), shown(&version)),
        Some(PluginStatus { name, .. }) => format!("{} ({digest})", shown(&name)),
        None => digest,
    }
}

#[cfg(test)]
mod tests {
    use outbox::event::GuestCost;
    use outbox::time::Timestamp;

    use super::*;

    const DIGEST: &str = "0123456789ab";

    fn guest() -> Cost {
        let digest = DIGEST.parse().expect("hex");
        let guest = GuestCost { digest, fuel: 1_200_000, memory_bytes: 1_179_648, host_calls: 5, host_bytes: 2_048 };
        Cost { guest: Some(guest), ..Cost::of_time(Duration::from_nanos(12_345_678)) }
    }

    fn node(plugins: &str) -> NodeRecord {
        let at = Timestamp::from_micros(0);
        NodeRecord {
            owner: "host-1".to_owned(),
            label: "shop 1".to_owned(),
            mode: "multi_node".to_owned(),
            version: "0.1.0".to_owned(),
            started_at: at,
            alive_until: at,
            alive: true,
            partitions: 0,
            plugins: Some(plugins.to_owned()),
        }
    }

    #[test]
    fn it_says_what_was_used_and_by_which_component() {
        let kept = AttemptCost { attempt: 2, outcome: AttemptEnd::Retry, cost: guest() };

        assert_eq!(
            cost_text(&kept, &[]),
            "attempt 2, which failed: 12.345ms, 1,200,000 fuel, 1.1 MiB of memory, 5 calls of the host with 2.0 KiB, by 0123456789ab"
        );
        let told = format!(
            r#"[{{"name":"mailer","version":"1.4.0","digest":"{DIGEST}ffff","state":"serving","routes":[],"error":null,"file":"mailer.wasm"}}]"#
        );
        let nodes = [node("no list"), node(&told)];
        assert!(cost_text(&kept, &nodes).ends_with(", by mailer 1.4.0 (0123456789ab)"), "{}", cost_text(&kept, &nodes));
    }

    #[test]
    fn a_share_of_a_call_says_so_and_native_code_has_a_time_only() {
        let share = AttemptCost { attempt: 1, outcome: AttemptEnd::Done, cost: guest().share(0, 40) };
        let native = AttemptCost { attempt: 3, outcome: AttemptEnd::Dead, cost: Cost::of_time(Duration::from_millis(250)) };

        assert!(cost_text(&share, &[]).ends_with("; its share of one call for 40 events, but for the memory"));
        assert_eq!(cost_text(&native, &[]), "attempt 3, after which it was given up: 250ms");
    }
}
