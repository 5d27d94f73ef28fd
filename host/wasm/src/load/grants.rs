//! What a component asks for against what its manifest grants.
//!
//! A component that imports more than it is granted still loads, since toolchains import what a guest never calls. It is refused
//! at the call.

use outbox_event::PluginCapability;

use crate::manifest::Manifest;
use crate::manifest::advice::{at_the_end, at_the_top};

/// Everything that the component asks for or the manifest grants.
pub(crate) fn capabilities(name: &str, imports: &[String], manifest: &Manifest) -> Vec<PluginCapability> {
    let asks = |interfaces: &[&str]| {
        imports.iter().any(|import| import.split('@').next().is_some_and(|import| interfaces.contains(&import)))
    };
    let keys =
        |what: &str, count: usize| (count > 0).then(|| format!("{what} ({count} {})", if count == 1 { "key" } else { "keys" }));
    let state = |state: crate::State| format!("state ({} keys, {})", state.max_keys, state.max_bytes);
    let emit = manifest.emit.as_ref().map(|emit| {
        let routes = emit.routes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let more = [(emit.other_tenants, ", other tenants"), (emit.ids, ", ids of its own")];
        let more: String = more.iter().filter(|(granted, _)| *granted).map(|(_, what)| *what).collect();
        format!("emit ({routes}{more})")
    });
    let http = manifest.http.as_ref().map(|http| match http.allow.as_slice() {
        [] => "http (no origin)".to_owned(),
        allow => format!("http ({})", allow.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    });
    let publish = manifest.publish.as_ref().map(|publish| {
        let names: Vec<&str> = publish.sinks.iter().map(String::as_str).collect();
        format!("publish ({})", names.join(", "))
    });
    let settings = asks(&["outbox:listener/settings"]);
    let requests = asks(&["outbox:listener/http", "wasi:http/outgoing-handler"]);
    let all = [
        ("config", settings, keys("config", manifest.config.len()), None),
        ("secrets", settings, keys("secrets", manifest.secrets.len()), None),
        ("emit", asks(&["outbox:listener/emit"]), emit, Some(at_the_top("emit = true", name))),
        ("state", asks(&["outbox:listener/state"]), manifest.state.map(state), Some(at_the_top("state = true", name))),
        ("publish", asks(&["outbox:listener/publish"]), publish, Some(at_the_end("publish", "sinks = [\"NAME\"]", name))),
        ("http", requests, http, Some(at_the_end("http", "allow = [\"https://…\"]", name))),
    ];
    let capability = |(name, asked, granted, line): (&str, bool, Option<String>, Option<String>)| PluginCapability {
        name: name.to_owned(),
        asked,
        to_add: line.filter(|_| asked && granted.is_none()),
        granted,
    };
    all.into_iter().map(capability).filter(|capability| capability.asked || capability.granted.is_some()).collect()
}

/// What is granted, for people.
pub(crate) fn granted(capabilities: &[PluginCapability]) -> Vec<String> {
    capabilities.iter().filter_map(|capability| capability.granted.clone()).collect()
}

/// What the component asks for and the manifest does not grant, each with the line to add.
pub(crate) fn not_granted(capabilities: &[PluginCapability]) -> Vec<String> {
    let missing = |capability: &PluginCapability| Some(format!("{}: {}", capability.name, capability.to_add.as_ref()?));
    capabilities.iter().filter_map(missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_import_without_its_grant_has_the_line_to_add() {
        let imports =
            ["outbox:listener/emit@0.1.0", "outbox:listener/state@0.1.2", "outbox:listener/log@0.1.0"].map(str::to_owned);
        let manifest: Manifest = toml::from_str("state = true\nconfig.a = \"1\"").unwrap();
        let both = capabilities("mailer", &imports, &manifest);
        assert_eq!(not_granted(&both), ["emit: add `emit = true` at the top of mailer.toml, above the first [table]"]);
        assert_eq!(granted(&both), ["config (1 key)", "state (1000 keys, 1MiB)"]);
        assert_eq!(
            both.iter().map(|one| (one.name.as_str(), one.asked)).collect::<Vec<_>>(),
            [("config", false), ("emit", true), ("state", true)]
        );
        assert_eq!(capabilities("mailer", &imports[2..], &Manifest::default()), []);
    }
}
