//! From a core module, as compilers make it, to a component of the listener contract.

use wasmparser::{Encoding, Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::output::short;
use crate::wit;

/// The module that a compiler for WASI preview 1 imports.
const PREVIEW1: &str = "wasi_snapshot_preview1";
const ADAPTER: &[u8] = wasi_preview1_component_adapter_provider::WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER;

/// The most characters of the reason why a module makes no component.
const MAX_REASON: usize = 500;

/// What a listener may export beside the handler.
const OPTIONAL: [&str; 2] = ["settings-check", "batch-handler"];

/// Makes a component. A module that does not say which world it is of gets the world `listener`, with the exports that it has
/// beside those of every listener; one that was compiled for WASI preview 1 gets the adapter to WASI 0.2.
///
/// # Errors
/// Why not, at most [`MAX_REASON`] characters and safe for a terminal: it may name what the module imports and exports, which
/// is text of whoever made it.
pub(crate) fn componentize(core: Vec<u8>) -> Result<Vec<u8>, String> {
    encode(core).map_err(|reason| short(&reason, MAX_REASON))
}

fn encode(mut core: Vec<u8>) -> Result<Vec<u8>, String> {
    let needs = Needs::of(&core)?;
    if !needs.has_world {
        let mut resolve = contract()?;
        let package = resolve.push_str("plugin.wit", &needs.world()).map_err(|error| format!("{error:#}"))?;
        let world = resolve.select_world(&[package], Some("plugin")).map_err(|error| format!("{error:#}"))?;
        embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8).map_err(|error| format!("{error:#}"))?;
    }
    let made = || {
        let encoder = ComponentEncoder::default().validate(true).module(&core)?;
        let mut encoder = if needs.adapter { encoder.adapter(PREVIEW1, ADAPTER)? } else { encoder };
        encoder.encode()
    };
    made().map_err(|error| format!("{error:#}"))
}

/// What a module needs to become a component.
struct Needs {
    has_world: bool,
    adapter: bool,
    /// Of [`OPTIONAL`], what the module exports.
    exports: Vec<&'static str>,
}

impl Needs {
    fn of(core: &[u8]) -> Result<Self, String> {
        let mut needs = Self { has_world: false, adapter: false, exports: Vec::new() };
        for (index, payload) in Parser::new(0).parse_all(core).enumerate() {
            match payload.map_err(|error| format!("it is not WebAssembly: {error}"))? {
                Payload::Version { encoding: Encoding::Component, .. } if index == 0 => {
                    return Err("it is a component already".to_owned());
                }
                Payload::CustomSection(section) => needs.has_world |= section.name().starts_with("component-type"),
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        needs.adapter |= import.map_err(|error| error.to_string())?.module == PREVIEW1;
                    }
                }
                Payload::ExportSection(exports) => {
                    for export in exports {
                        let name = export.map_err(|error| error.to_string())?.name;
                        let starts = |optional: &&str| name.starts_with(&format!("outbox:listener/{optional}@"));
                        needs.exports.extend(OPTIONAL.into_iter().find(starts));
                    }
                }
                _ => {}
            }
        }
        Ok(needs)
    }

    /// A world of exactly what the module exports.
    fn world(&self) -> String {
        let exports: String = self.exports.iter().map(|export| format!("  export outbox:listener/{export}@0.1.0;\n")).collect();
        format!("package outbox:plugin;\n\nworld plugin {{\n  include outbox:listener/listener@0.1.0;\n{exports}}}\n")
    }
}

/// The contract that this program was built with.
fn contract() -> Result<Resolve, String> {
    let mut resolve = Resolve::default();
    // What others depend on comes first; the listener's own package last.
    for (name, text) in wit::FILES.iter().rev() {
        resolve.push_str(name, text).map_err(|error| format!("{error:#}"))?;
    }
    Ok(resolve)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_without_a_world_gets_ours_and_what_it_lacks_is_said() {
        let error = componentize(wat::parse_str("(module)").unwrap()).unwrap_err();
        assert!(error.contains("outbox:listener/handler@0.1.0"), "{error}");
        assert_eq!(componentize(wat::parse_str("(component)").unwrap()).unwrap_err(), "it is a component already");
        assert!(componentize(b"text".to_vec()).unwrap_err().starts_with("it is not WebAssembly"));
    }

    #[test]
    fn a_reason_that_names_what_the_module_imports_is_short_and_cannot_steer_the_terminal() {
        let import = |module: &str| wat::parse_str(format!(r#"(module (import "{module}" "f\1b]0;x\07" (func)))"#)).unwrap();

        let hostile = componentize(import("ev\\1b[31mil\\n")).unwrap_err();
        let long = componentize(import(&"x".repeat(100_000))).unwrap_err();

        assert!(hostile.contains("ev\\u{1b}[31mil"), "{hostile}");
        assert!(!hostile.chars().any(char::is_control), "{hostile:?}");
        assert_eq!(long.chars().count(), MAX_REASON);
    }

    #[test]
    fn what_a_module_exports_beside_the_handler_stands_in_its_world() {
        let check =
            r#"(module (memory (export "memory") 1) (func (export "outbox:listener/settings-check@0.1.0#check-settings")))"#;

        let needs = Needs::of(&wat::parse_str(check).unwrap()).unwrap();

        assert_eq!(needs.exports, ["settings-check"]);
        assert!(needs.world().contains("export outbox:listener/settings-check@0.1.0;"), "{}", needs.world());
        assert!(Needs::of(&wat::parse_str("(module)").unwrap()).unwrap().exports.is_empty());
    }
}
