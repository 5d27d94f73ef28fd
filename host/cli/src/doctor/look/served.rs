//! Plugins that do not load in this shell, although a host serves them or no event waits for them.

use std::collections::BTreeSet;
use std::path::Path;

use outbox::store::{Finding, NodeRecord, RouteRecord};
use outbox::why::failed_plugin_severity;

use super::plugins::cannot_serve;
use crate::output::argument;
use crate::plugins::{PluginState, PluginStatus};

/// Lowers the severity of plugins that do not load while no event waits for a listener, unless a host requires them.
pub(in crate::doctor) fn lower_plugin_severities(
    findings: &mut [Finding],
    failed: &[PluginStatus],
    required: &BTreeSet<String>,
    routes: &[RouteRecord],
) {
    let severity = failed_plugin_severity(routes);
    for plugin in failed.iter().filter(|plugin| !required.contains(&plugin.name)) {
        let said = cannot_serve(plugin).found;
        if let Some(finding) = findings.iter_mut().find(|finding| finding.found == said) {
            (finding.severity, finding.events) = (severity, 0);
        }
    }
}

/// A host may have what is missing here, such as an environment variable: where it serves this very file, that is no fault.
pub(in crate::doctor) fn served_by_hosts(findings: &mut [Finding], failed: &[PluginStatus], nodes: &[NodeRecord]) {
    for plugin in failed {
        let Some(host) = nodes.iter().find(|node| node.alive && serves(node, plugin)) else { continue };
        let said = cannot_serve(plugin).found;
        if let Some(finding) = findings.iter_mut().find(|finding| finding.found == said) {
            *finding = unchecked(plugin, &host.label);
        }
    }
}

fn unchecked(plugin: &PluginStatus, host: &str) -> Finding {
    let (name, why) = (&plugin.name, plugin.error.as_deref().unwrap_or("it could not be loaded"));
    let what = format!("{name} cannot be checked from this shell: {why}; the host {host} serves this very file");
    let fix = format!(
        "to check it here, give this shell what the host has: outbox plugin check {}",
        argument(&plugin.file.to_string_lossy())
    );
    Finding::warning("plugins", what, fix)
}

/// Whether the host serves this file as it is now.
fn serves(node: &NodeRecord, plugin: &PluginStatus) -> bool {
    outbox::node::plugins(node).iter().any(|served| {
        served.state == PluginState::Serving
            && served.name == plugin.name
            && served.digest.is_some()
            && served.digest == plugin.digest
            && is_same(&plugin.file, &served.file)
    })
}

/// Whether our path and that of a host name one file. A host started in another directory may tell only the end of it.
fn is_same(ours: &Path, of_host: &Path) -> bool {
    ours == of_host
        || ours.canonicalize().is_ok_and(|ours| match of_host.canonicalize() {
            Ok(of_host) => ours == of_host,
            Err(_) => of_host.is_relative() && ours.ends_with(of_host),
        })
}

#[cfg(test)]
mod tests {
    use outbox::event::OwnerId;
    use outbox::store::{Node, Severity};
    use outbox::time::Timestamp;

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_795_249_980_000_000);

    /// A host that tells of one plugin.
    fn node(alive: bool, name: &str, digest: &str, state: &str, file: &str) -> NodeRecord {
        let owner = OwnerId::generate("shop-1");
        let plugin = format!(r#"{{"name":"{name}","digest":"{digest}","state":"{state}","routes":[],"file":"{file}"}}"#);
        let report = format!(r#"{{"plugins":[{plugin}]}}"#);
        let node = Node { report: Some(report), ..Node::new(owner, "shop-1", "multi_node", "1.0.0") };
        let mut node = NodeRecord::new(&node, NOW);
        node.alive = alive;
        node
    }

    fn found(node: NodeRecord) -> Finding {
        let failed = PluginStatus {
            name: "webhook".to_owned(),
            version: None,
            digest: Some("ab12".to_owned()),
            state: PluginState::Failed,
            routes: Vec::new(),
            more_routes: 0,
            error: Some("the environment variable OUTBOX_PLUGIN_TOKEN is not set".to_owned()),
            file: "served/webhook.wasm".into(),
            details: Default::default(),
        };
        let mut findings = [Finding::good("plugins", "another"), cannot_serve(&failed)];
        served_by_hosts(&mut findings, &[failed], &[node]);
        assert_eq!(findings[0].found, "another");
        let [_, found] = findings;
        found
    }

    #[test]
    fn a_plugin_that_lacks_something_in_this_shell_alone_is_no_fault() {
        let found = found(node(true, "webhook", "ab12", "serving", "served/webhook.wasm"));

        assert_eq!(found.severity, Severity::Warning);
        assert_eq!(
            found.found,
            "webhook cannot be checked from this shell: the environment variable OUTBOX_PLUGIN_TOKEN is not set; the host shop-1 \
             serves this very file"
        );
    }

    #[test]
    fn a_plugin_that_no_live_host_serves_as_it_is_now_stays_a_fault() {
        for node in [
            node(false, "webhook", "ab12", "serving", "served/webhook.wasm"),
            node(true, "webhook", "cd34", "serving", "served/webhook.wasm"),
            node(true, "webhook", "ab12", "serving_older", "served/webhook.wasm"),
            node(true, "mailer", "ab12", "serving", "served/webhook.wasm"),
            node(true, "webhook", "ab12", "serving", "/elsewhere/webhook.wasm"),
        ] {
            let told = format!("{node:?}");
            assert_eq!(found(node).severity, Severity::Fault, "{told}");
        }
    }
}
