//! What a component asks for against what its manifest grants.
//!
//! A component that imports more than it is granted still loads, since toolchains import what a guest never calls. It is refused
//! at the call.

use crate::wasm::manifest::Manifest;
use crate::wasm::manifest::advice::{at_the_end, at_the_top};

/// What the manifest grants, for people.
pub(in crate::wasm) fn granted(manifest: &Manifest) -> Vec<String> {
    let keys =
        |what: &str, count: usize| (count > 0).then(|| format!("{what} ({count} {})", if count == 1 { "key" } else { "keys" }));
    let state = |state: crate::wasm::State| format!("state ({} keys, {})", state.max_keys, state.max_bytes);
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
    let (config, secrets) = (keys("config", manifest.config.len()), keys("secrets", manifest.secrets.len()));
    let publish = manifest.publish.as_ref().map(|publish| {
        let names: Vec<&str> = publish.sinks.iter().map(String::as_str).collect();
        format!("publish ({})", names.join(", "))
    });
    [config, secrets, emit, manifest.state.map(state), publish, http].into_iter().flatten().collect()
}

/// What the component imports and the manifest does not grant, each with the line to add.
pub(in crate::wasm) fn not_granted(name: &str, imports: &[String], manifest: &Manifest) -> Vec<String> {
    let asks = |interface: &str| imports.iter().any(|import| import.split('@').next() == Some(interface));
    let mut missing = Vec::new();
    if asks("outbox:listener/emit") && manifest.emit.is_none() {
        missing.push(format!("emit: {}", at_the_top("emit = true", name)));
    }
    if asks("outbox:listener/state") && manifest.state.is_none() {
        missing.push(format!("state: {}", at_the_top("state = true", name)));
    }
    if asks("outbox:listener/publish") && manifest.publish.is_none() {
        missing.push(format!("publish: {}", at_the_end("publish", "sinks = [\"NAME\"]", name)));
    }
    if (asks("outbox:listener/http") || asks("wasi:http/outgoing-handler")) && manifest.http.is_none() {
        missing.push(format!("http: {}", at_the_end("http", "allow = [\"https://…\"]", name)));
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_import_without_its_grant_has_the_line_to_add() {
        let imports =
            ["outbox:listener/emit@0.1.0", "outbox:listener/state@0.1.2", "outbox:listener/log@0.1.0"].map(str::to_owned);
        let manifest: Manifest = toml::from_str("state = true\nconfig.a = \"1\"").unwrap();
        assert_eq!(
            not_granted("mailer", &imports, &manifest),
            ["emit: add `emit = true` at the top of mailer.toml, above the first [table]"]
        );
        assert_eq!(granted(&manifest), ["config (1 key)", "state (1000 keys, 1MiB)"]);
        assert_eq!(not_granted("mailer", &imports[2..], &Manifest::default()), [] as [&str; 0]);
    }
}
