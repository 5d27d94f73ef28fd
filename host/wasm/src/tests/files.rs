//! What may lie in a plugins directory, and what is said of it.

use std::os::unix::fs::symlink;

use wit_parser::Resolve;

use super::{Guest, component, put, refused};
use crate::{Engine, LoadError, Manifest, PagemapScan, PluginsConfig, check, load_listener};

#[tokio::test]
async fn every_kind_of_wrong_file_has_its_own_message() {
    let dir = tempfile::tempdir().unwrap();
    let whole = Guest::new("(call $done)").build();
    let core = wat::parse_str("(module)").unwrap();
    let precompiled = Engine::new(1, PagemapScan::Off).unwrap().wasm.precompile_component(&whole).unwrap();
    let cases: [(&str, &[u8], &str); 9] = [
        ("empty", b"", "it is empty"),
        ("short", b"\0asm", "ends within its header"),
        ("header", &whole[..8], "holds a header and nothing else"),
        ("half", &whole[..whole.len() / 2], "damaged or not complete"),
        ("text", b"(component)\n", "it is text"),
        ("zip", b"PK\x03\x04\xff\xfe\x00\x01", "another kind of file"),
        ("core", &core, "it is a core module"),
        ("compiled", &precompiled, "it is precompiled"),
        (
            "bare",
            &wat::parse_str("(component (core module))").unwrap(),
            "exports nothing, and must export outbox:listener/handler@0.1.0",
        ),
    ];
    for (name, bytes, expected) in cases {
        let error = refused(&put(dir.path(), &format!("{name}.wasm"), bytes)).await.to_string();
        assert!(error.contains(expected) && error.contains(name), "{name}: {error}");
    }
    let error = refused(&dir.path().join("absent.wasm")).await;
    assert!(matches!(error, LoadError::Read { .. }), "{error}");
    std::fs::create_dir(dir.path().join("folder.wasm")).unwrap();
    let error = refused(&dir.path().join("folder.wasm")).await;
    assert!(matches!(error, LoadError::NotAFile { .. }), "{error}");
}

#[tokio::test]
async fn no_part_of_a_component_loads() {
    let dir = tempfile::tempdir().unwrap();
    let whole = Guest::new("(call $done)").build();
    let engine = Engine::new(1, PagemapScan::Off).unwrap();
    for end in (0..whole.len()).step_by(97) {
        let file = put(dir.path(), "part.wasm", &whole[..end]);
        assert!(load_listener(&engine, &file, Manifest::default()).await.is_err(), "cut at {end}");
    }
}

#[tokio::test]
async fn a_link_may_stay_inside_and_must_not_lead_out() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let outside = Guest::new("(call $done)").write(elsewhere.path(), "guest");
    symlink(&outside, dir.path().join("out.wasm")).unwrap();
    let error = refused(&dir.path().join("out.wasm")).await;
    assert!(matches!(error, LoadError::Outside { .. }), "{error}");
    std::fs::create_dir(dir.path().join("v1")).unwrap();
    Guest::new("(call $done)").write(&dir.path().join("v1"), "guest");
    symlink("v1/guest.wasm", dir.path().join("in.wasm")).unwrap();
    let engine = Engine::new(1, PagemapScan::Off).unwrap();
    assert!(load_listener(&engine, &dir.path().join("in.wasm"), Manifest::default()).await.is_ok());
}

/// A component of another world: its interface exported by an empty function.
fn of_world(wit: &str, core: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("other.wit", wit).unwrap();
    component(wat::parse_str(core).unwrap(), &resolve, package)
}

#[tokio::test]
async fn another_world_is_told_from_ours_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let other = of_world(
        "package outbox:listener@0.2.0; interface handler { f: func(); } world w { export handler; }",
        "(module (func (export \"outbox:listener/handler@0.2.0#f\")) (memory (export \"memory\") 1))",
    );
    let error = refused(&put(dir.path(), "next.wasm", &other)).await.to_string();
    assert!(error.contains("outbox:listener/handler@0.2.0, another version"), "{error}");
    let wit = "package a:b; interface kv { get: func(); } interface run { f: func(); } world w { import kv; export run; }";
    let core =
        "(module (import \"a:b/kv\" \"get\" (func)) (func (export \"a:b/run#f\") call 0) (memory (export \"memory\") 1))";
    let error = refused(&put(dir.path(), "kv.wasm", &of_world(wit, core))).await.to_string();
    assert!(error.contains("it exports a:b/run, but not outbox:listener/handler@0.1.0"), "{error}");
    assert!(error.contains("it imports a:b/kv, which this host does not offer"), "{error}");
}

#[tokio::test]
async fn types_of_another_shape_are_found_by_the_dry_run() {
    let dir = tempfile::tempdir().unwrap();
    let wit = "package outbox:listener@0.1.0;
        interface types { record route { aggregate-type: string, event-type: string, more: u32 }
            record description { name: string, version: string, routes: list<route> } }
        interface handler { use types.{description}; describe: func() -> description; on-event: func() -> u32; }
        world w { export handler; }";
    let core = "(module (func (export \"outbox:listener/handler@0.1.0#describe\") (result i32) i32.const 0)
        (func (export \"outbox:listener/handler@0.1.0#on-event\") (result i32) i32.const 0) (memory (export \"memory\") 1))";
    let error = refused(&put(dir.path(), "shape.wasm", &of_world(wit, core))).await;
    assert!(matches!(error, LoadError::Link { .. }), "{error}");
    assert!(error.to_string().contains("rebuild it with an outbox-sdk"), "{error}");
}

#[tokio::test]
async fn a_description_must_hold_routes_that_can_be() {
    let dir = tempfile::tempdir().unwrap();
    let guest = Guest::new("(call $done)");
    let error = refused(&guest.clone().routes(&[]).write(dir.path(), "none")).await.to_string();
    assert!(error.contains("declares 0 routes"), "{error}");
    let twice = [("Order", "OrderPlaced"), ("Order", "OrderPlaced")];
    let error = refused(&guest.clone().routes(&twice).write(dir.path(), "twice")).await.to_string();
    assert!(error.contains("declares the route Order/OrderPlaced twice"), "{error}");
    let error = refused(&guest.clone().routes(&[("Order", "")]).write(dir.path(), "blank")).await;
    assert!(matches!(error, LoadError::Route { .. }), "{error}");
    let error = refused(&guest.clone().version("").write(dir.path(), "version")).await.to_string();
    assert!(error.contains("its version must have 1 to 128 bytes"), "{error}");
    let error = refused(&guest.pages(2_000).write(dir.path(), "large")).await.to_string();
    assert!(error.contains("needs 125MiB of memory") && error.contains("limits.memory of the plugin large"), "{error}");
}

#[tokio::test]
async fn check_reports_what_a_component_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = Guest::new("(call $done)").write(dir.path(), "mailer");
    put(dir.path(), "mailer.toml", b"isolation = \"batch\"");
    let report = check(&file, PluginsConfig::default(), 1).await.unwrap();
    assert_eq!((report.name.as_str(), report.described_name.as_str(), report.version.as_str()), ("mailer", "guest", "1.0.0"));
    assert_eq!(report.isolation, crate::Isolation::Batch);
    assert!(report.imports.contains(&"outbox:listener/log@0.1.0".to_owned()), "{:?}", report.imports);
    put(dir.path(), "mailer.toml", b"[limits]\nfule = 1");
    let error = check(&file, PluginsConfig::default(), 1).await.unwrap_err().to_string();
    assert!(
        error.contains("mailer.toml") && error.contains("limits.fule: there is no such field; did you mean `fuel`?"),
        "{error}"
    );
    put(dir.path(), "mailer.toml", b"[config]\nkey = \"${env:OUTBOX_PLUGIN_X}\"");
    let error = check(&file, PluginsConfig::default(), 1).await.unwrap_err().to_string();
    assert!(
        error.contains("config.key of mailer.toml has no value: `OUTBOX_PLUGIN_X` would come from the environment"),
        "{error}"
    );
}
