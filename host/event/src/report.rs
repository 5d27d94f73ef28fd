//! The report of a host to people: JSON in its row of the table of hosts.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{PluginStatus, SinkStatus};

/// The plugins and sinks of a host, as its row lists them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostReport {
    /// Its plugins, by name.
    pub plugins: Vec<PluginStatus>,
    /// Its sinks, by name.
    pub sinks: Vec<SinkStatus>,
    /// The offset of its clock to the database's; negative if its clock is behind, 0 if both agree within a second.
    pub clock_ahead_ms: i64,
}

/// A report as JSON. One plugin or sink that cannot be written or read hides no other.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Entries {
    plugins: Vec<Value>,
    sinks: Vec<Value>,
    clock_ahead_ms: i64,
}

impl HostReport {
    /// A report of these plugins and sinks, each of a bounded size, of a host whose clock agrees with the database's.
    #[must_use]
    pub fn new(plugins: Vec<PluginStatus>, sinks: Vec<SinkStatus>) -> Self {
        Self {
            plugins: plugins.into_iter().map(PluginStatus::shortened).collect(),
            sinks: sinks.into_iter().map(SinkStatus::bounded).collect(),
            clock_ahead_ms: 0,
        }
    }

    /// Reads a report from its JSON; empty if the text is no report. Skips each plugin and sink that cannot be read, because the host
    /// may be of another version.
    #[must_use]
    pub fn read(json: &str) -> Self {
        let Entries { plugins, sinks, clock_ahead_ms } = serde_json::from_str(json).unwrap_or_default();
        Self { plugins: PluginStatus::read(plugins), sinks: SinkStatus::read(sinks), clock_ahead_ms }
    }

    /// The report as JSON; `None` without plugins and sinks, unless the clocks differ.
    #[must_use]
    pub fn to_json(&self) -> Option<String> {
        let plugins: Vec<Value> = self.plugins.iter().filter_map(|plugin| serde_json::to_value(plugin).ok()).collect();
        let sinks: Vec<Value> = self.sinks.iter().filter_map(|sink| serde_json::to_value(sink).ok()).collect();
        if plugins.is_empty() && sinks.is_empty() && self.clock_ahead_ms == 0 {
            return None;
        }
        serde_json::to_string(&Entries { plugins, sinks, clock_ahead_ms: self.clock_ahead_ms }).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SinkState;

    #[test]
    fn an_entry_of_a_later_version_hides_no_other() {
        let report = r#"{
            "plugins": [{ "unnamed": 1 }, { "name": "mailer", "state": "serving" }],
            "sinks": [{ "name": "of a later version" }, { "name": "orders", "state": "down" }],
            "mood": "calm"
        }"#;

        let HostReport { plugins, sinks, .. } = HostReport::read(report);

        assert_eq!(plugins.iter().map(|plugin| plugin.name.as_str()).collect::<Vec<_>>(), ["mailer"]);
        assert_eq!(
            sinks.iter().map(|sink| (sink.name.as_str(), sink.state)).collect::<Vec<_>>(),
            [("orders", SinkState::Down)]
        );
        assert_eq!(HostReport::read("no report"), HostReport::default());
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let written = HostReport::read(r#"{ "plugins": [{ "name": "mailer", "state": "serving" }], "sinks": [] }"#);
        assert_eq!(HostReport::read(&written.to_json().expect("it has a plugin")), written);
        assert_eq!(HostReport::default().to_json(), None);
        let behind = HostReport { clock_ahead_ms: -300_000, ..HostReport::default() };
        assert_eq!(HostReport::read(&behind.to_json().expect("the clocks differ")), behind);
    }
}
