//! The column `last_cost`.

use outbox_event::AttemptCost;

/// Writes a cost as one line of JSON: fewer than 300 characters.
pub(super) fn to_column(cost: &AttemptCost) -> String {
    serde_json::to_string(cost).expect("figures are JSON")
}

/// Reads the column. `None` if it is empty or holds anything but a cost.
pub(super) fn from_column(text: Option<&str>) -> Option<AttemptCost> {
    serde_json::from_str(text?).ok()
}
