//! The contract as it was released: `released/` holds it, and is never changed. A component that was built for it and uses all of
//! it is loaded by this host.

use std::path::Path;

use outbox::wasm::{LoadError, PluginsConfig, check};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{Function, Resolve, WorldId, WorldItem, WorldKey};

use crate::common::Directory;

/// Named `r`, of version `1`, with the route `A/B`: pointers and lengths, then the route, then the texts.
const DESCRIPTION: &str = r#"
    (data (i32.const 1024) "\80\04\00\00\01\00\00\00\81\04\00\00\01\00\00\00\40\04\00\00\01\00\00\00\00\00\00\00\00\00\00\00")
    (data (i32.const 1088) "\82\04\00\00\01\00\00\00\83\04\00\00\01\00\00\00")
    (data (i32.const 1152) "r1AB")"#;

/// A component that imports and exports everything of a released world: it says what it is, and traps at every other call.
fn component(world: &str) -> Vec<u8> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut resolve = Resolve::default();
    // WASI's packages have versions of their own, and nobody here changes them.
    for package in ["io", "clocks", "http"] {
        resolve.push_path(here.join("../wit/0.1.0/deps").join(package)).expect("the package is there");
    }
    let (released, _) = resolve.push_path(here.join("sandbox/released/0.1.0")).expect("it was released");
    let world = resolve.select_world(&[released], Some(world)).expect("it was released");
    let mut core = wat::parse_str(module(&resolve, world)).expect("a good module");
    embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8).expect("it can be embedded");
    let encoder = ComponentEncoder::default().validate(true).module(&core).expect("it is a module of this world");
    { encoder }.encode().expect("it makes a component")
}

fn module(resolve: &Resolve, world: WorldId) -> String {
    let world = &resolve.worlds[world];
    let import = |module: &str, function: &Function| {
        let signature = signature(resolve, AbiVariant::GuestImport, function);
        format!("(import \"{module}\" \"{}\" (func {signature}))\n", function.name)
    };
    let export = |module: &str, function: &Function| {
        let signature = signature(resolve, AbiVariant::GuestExport, function);
        let body = if function.name == "describe" { "i32.const 1024" } else { "unreachable" };
        format!("(func (export \"{module}#{}\") {signature} {body})\n", function.name)
    };
    let imports = functions(resolve, &world.imports).map(|(module, function)| import(&module, function));
    let exports = functions(resolve, &world.exports).map(|(module, function)| export(&module, function));
    let functions: String = imports.chain(exports).collect();
    format!(
        r#"(module {functions} (memory (export "memory") 1)
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
            {DESCRIPTION})"#
    )
}

/// The functions of some interfaces, each with the name of its interface.
fn functions<'r>(
    resolve: &'r Resolve,
    items: impl IntoIterator<Item = (&'r WorldKey, &'r WorldItem)>,
) -> impl Iterator<Item = (String, &'r Function)> {
    items.into_iter().flat_map(|(key, item)| {
        let WorldItem::Interface { id, .. } = item else { panic!("this world has something that is no interface: {item:?}") };
        let name = resolve.name_world_key(key);
        resolve.interfaces[*id].functions.values().map(move |function| (name.clone(), function))
    })
}

fn signature(resolve: &Resolve, variant: AbiVariant, function: &Function) -> String {
    let signature = resolve.wasm_signature(variant, function);
    let of = |word: &str, types: &[WasmType]| -> String { types.iter().map(|of| format!("({word} {})", core(*of))).collect() };
    format!("{} {}", of("param", &signature.params), of("result", &signature.results))
}

fn core(of: WasmType) -> &'static str {
    match of {
        WasmType::I32 | WasmType::Pointer | WasmType::Length => "i32",
        WasmType::I64 | WasmType::PointerOrI64 => "i64",
        WasmType::F32 => "f32",
        WasmType::F64 => "f64",
    }
}

#[tokio::test]
async fn a_component_of_the_released_contract_finds_every_type_and_function_as_they_were() {
    for world in ["listener", "http-listener", "batch-listener", "full-listener"] {
        let directory = Directory::new();
        directory.put("released.wasm", &component(world));

        let checked = check(&directory.path().join("released.wasm"), PluginsConfig::default(), 1).await;

        match (world, checked) {
            // The one world whose settings are checked at the load, by a call.
            ("full-listener", Err(LoadError::Settings { reason, .. })) => assert!(reason.contains("unreachable"), "{reason}"),
            ("full-listener", other) => panic!("{other:?}"),
            (_, Ok(report)) => assert_eq!(report.routes.len(), 1, "{world}"),
            (_, Err(error)) => panic!("{world}: {error}"),
        }
    }
}
