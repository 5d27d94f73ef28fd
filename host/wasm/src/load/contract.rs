//! What a component imports and exports, compared with what this host offers and calls, in words a plugin's author can act on.

use outbox_event::text::keepable;
use wasmtime::component::Component;

/// The interface that a plugin exports.
const HANDLER: &str = "outbox:listener/handler";
/// How many names, and how much of each, stand in one message: a hostile file has a million.
const MAX_NAMED: usize = 20;
const MAX_NAME_BYTES: usize = 200;
/// What this host offers: the interface, and how the version must begin.
const OFFERED: &[(&str, &str)] = &[
    ("outbox:listener/", "0.1."),
    ("wasi:io/", "0.2."),
    ("wasi:cli/", "0.2."),
    ("wasi:clocks/", "0.2."),
    ("wasi:random/", "0.2."),
    ("wasi:filesystem/", "0.2."),
    ("wasi:sockets/", "0.2."),
    ("wasi:http/outgoing-handler", "0.2."),
    ("wasi:http/types", "0.2."),
];

/// The names that a component imports, sorted.
pub(crate) fn imports(component: &Component) -> Vec<String> {
    let mut names: Vec<String> =
        component.component_type().imports(component.engine()).map(|(name, _)| name.to_owned()).collect();
    names.sort();
    names
}

/// Every way in which a component differs from what this host can run; empty when names and versions fit.
pub(crate) fn differences(component: &Component) -> Vec<String> {
    let exports: Vec<String> =
        component.component_type().exports(component.engine()).map(|(name, _)| name.to_owned()).collect();
    differences_of(&imports(component), &exports)
}

/// [`differences`] of these names.
pub(crate) fn differences_of(imports: &[String], exports: &[String]) -> Vec<String> {
    let mut differences: Vec<String> = missing_handler(exports).into_iter().collect();
    differences.extend(imports.iter().filter_map(|import| not_offered(import)));
    let more = differences.len().saturating_sub(MAX_NAMED);
    differences.truncate(MAX_NAMED);
    if more > 0 {
        differences.push(format!("and {more} more"));
    }
    differences
}

/// Which version of the contract these names were built for, and whether this host speaks it.
pub(crate) fn world(imports: &[String], exports: &[String]) -> String {
    const OURS: &str = "outbox:listener/";
    let handler = exports.iter().map(|name| split(name)).find(|(interface, _)| *interface == HANDLER);
    let import = imports.iter().map(|name| split(name)).find(|(interface, _)| interface.starts_with(OURS));
    match handler.or(import) {
        None => "no listener of this host: it neither exports nor imports anything of outbox:listener".to_owned(),
        Some((_, version)) if version.starts_with("0.1.") => format!("outbox:listener@{version}, which this host speaks"),
        Some((_, version)) => format!("built for outbox:listener@{}, this host speaks 0.1", keepable(version, 64)),
    }
}

/// The first of these names, and how many more there are.
fn named(names: &[String]) -> String {
    let mut listed: Vec<String> = names.iter().take(MAX_NAMED).map(|name| keepable(name, MAX_NAME_BYTES)).collect();
    if names.len() > MAX_NAMED {
        listed.push(format!("and {} more", names.len() - MAX_NAMED));
    }
    listed.join(", ")
}

fn split(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, ""))
}

fn missing_handler(exports: &[String]) -> Option<String> {
    let found = exports.iter().map(|export| split(export)).find(|(interface, _)| *interface == HANDLER);
    match found {
        Some((_, version)) if version.starts_with("0.1.") => None,
        Some((_, version)) => {
            let version = keepable(version, 64);
            Some(format!(
                "it exports {HANDLER}@{version}, another version of the contract (built for outbox:listener@{version}, and this host \
                 speaks 0.1): rebuild it with an outbox-sdk for 0.1"
            ))
        }
        None if exports.is_empty() => {
            Some(format!("it exports nothing, and must export {HANDLER}@0.1.0 (was it copied completely?)"))
        }
        None => Some(format!(
            "it exports {}, but not {HANDLER}@0.1.0: build it for the world `listener` of outbox:listener@0.1.0",
            named(exports)
        )),
    }
}

fn not_offered(import: &str) -> Option<String> {
    let (interface, version) = split(import);
    let shown = keepable(import, MAX_NAME_BYTES);
    let mut other_version = None;
    for (offered, prefix) in OFFERED {
        let same = if offered.ends_with('/') { interface.starts_with(offered) } else { interface == *offered };
        if same && version.starts_with(prefix) {
            return None;
        }
        if same {
            other_version = Some(prefix.trim_end_matches('.'));
        }
    }
    Some(match other_version {
        Some(offered) => format!("it imports {shown}, but this host offers version {offered}"),
        None => format!("it imports {shown}, which this host does not offer"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_says_what_was_found_and_what_is_wanted() {
        let exports = |names: &[&str]| missing_handler(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(exports(&["outbox:listener/handler@0.1.7"]), None);
        assert!(exports(&["outbox:listener/handler@0.2.0"]).unwrap().contains("another version"));
        assert!(
            exports(&["wasi:cli/run@0.2.6"]).unwrap().contains("wasi:cli/run@0.2.6, but not outbox:listener/handler@0.1.0")
        );
        assert!(exports(&[]).unwrap().contains("copied completely"));
        assert!(exports(&["outbox:listener/handler@0.2.0"]).unwrap().contains("built for outbox:listener@0.2.0"));
    }

    #[test]
    fn a_message_holds_a_few_names_and_nothing_that_moves_a_cursor() {
        let many: Vec<String> = (0..1_000).map(|number| format!("name-{number}\u{202e}{}", "x".repeat(1_000))).collect();
        let told = differences_of(&many, &many).join("; ");
        assert!(told.len() < 20_000 && !told.contains('\u{202e}'), "{} bytes", told.len());
        assert!(told.contains("and 980 more") && told.contains("and 981 more"), "{told}");
    }

    #[test]
    fn what_is_linked_is_offered_and_nothing_else() {
        for fine in ["outbox:listener/log@0.1.0", "wasi:io/poll@0.2.12", "wasi:http/types@0.2.4", "outbox:listener/state@0.1.3"]
        {
            assert_eq!(not_offered(fine), None, "{fine}");
        }
        assert!(not_offered("wasi:cli/run@0.3.0").unwrap().contains("offers version 0.2"));
        assert!(not_offered("wasi:keyvalue/store@0.2.0-draft").unwrap().contains("does not offer"));
        assert!(not_offered("env").unwrap().contains("does not offer"));
    }
}
