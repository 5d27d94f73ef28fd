//! Files that do harm when they are loaded, or are no components at all.

use std::fmt::Write;
use std::fs::File;
use std::sync::Arc;

use outbox::wasm::{LoadError, MemoryState, PluginHost, PluginsConfig};
use support::Guest;

use super::{LIMITS, load};
use crate::common::sample;

async fn refused(component: Vec<u8>) -> String {
    match load(component, LIMITS).await {
        Ok(_) => panic!("it was loaded"),
        Err(error) => outbox::chain(&error),
    }
}

fn guest() -> Guest {
    Guest::new("(call $done)")
}

fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"))
}

/// The header of what wasmtime compiled: an ELF file of its own kind.
fn precompiled() -> Vec<u8> {
    let mut elf = vec![0; 64];
    elf[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\xc8");
    elf[16..20].copy_from_slice(&[1, 0, 0xf7, 0]);
    elf[20] = 1;
    elf[48] = 2;
    elf[52] = 64;
    elf
}

#[tokio::test]
async fn what_is_no_component_is_refused_by_what_it_is() {
    for (what, bytes, told) in [
        ("nothing", Vec::new(), "it is empty"),
        ("a header", b"\0asm\x0d\0\x01\0".to_vec(), "it holds a header and nothing else"),
        ("half a header", b"\0asm\x0d".to_vec(), "it ends within its header"),
        ("text", b"(component)".to_vec(), "it is text"),
        ("an archive", b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xff".to_vec(), "it does not begin like one"),
        ("a core module", wat("(module)"), "it is a core module"),
        ("a core module with exports", Guest::new("(call $done)").core(), "it is a core module"),
        ("machine code", precompiled(), "it is precompiled"),
        ("a component without exports", wat("(component (core module))"), "it exports nothing"),
        (
            "a component of another world",
            wat("(component (import \"wasi:keyvalue/store@0.2.0-draft\" (instance)))"),
            "which this host does not offer",
        ),
        (
            "a component with a component in it, 64 deep",
            wat(&format!("{}{}", "(component ".repeat(65), ")".repeat(65))),
            "at most 64",
        ),
    ] {
        let error = refused(bytes).await;
        assert!(error.contains(told), "{what}: {error}");
    }
}

#[tokio::test]
async fn what_would_take_the_compiler_too_long_is_refused_before_it_is_asked() {
    let deep = format!("(func (export \"x\") {}{})", "(block ".repeat(2_001), ")".repeat(2_001));
    let long = format!("(func (export \"x\") {})", "(drop (i32.const 1))".repeat(700_000));
    let loops = format!("(func (export \"x\") {})", "(loop)".repeat(20_001));
    let locals = format!("(func (export \"x\") (local {}))", "i32 ".repeat(5_001));
    let many = (0..100_001).fold(String::new(), |mut many, _| {
        many.push_str("(func)");
        many
    });
    for (what, inside, told) in [
        ("nesting", deep, "blocks inside each other; at most 2000"),
        ("a long function", long, "bytes in one function"),
        ("loops", loops, "loops in one function; at most 20000"),
        ("locals", locals, "locals in one function; at most 5000"),
        ("functions", many, "functions; at most 100000"),
    ] {
        // Not through the maker of components, which would leave out what nobody calls.
        let error = refused(wat(&format!("(component (core module {inside}))"))).await;
        assert!(error.contains(told), "{what}: {error}");
    }
}

#[tokio::test]
async fn what_asks_for_too_much_before_it_has_done_anything_is_refused() {
    let memories = (0..9).fold(String::new(), |mut all, number| {
        write!(all, "(memory $m{number} 1)").expect("a String takes everything");
        all
    });
    let tables = "(table 1 funcref)".repeat(17);
    for (what, guest, told) in [
        ("memory", guest().pages(600), "of memory to begin with, more than its 32MiB"),
        ("a table", guest().outside("(table 30001 funcref)"), "30001"),
        ("ten memories", guest().outside(&memories), "defined memories count of 10"),
        ("seventeen tables", guest().outside(&tables), "tables"),
        ("64-bit memory", guest().outside("(memory $big i64 1)"), "memory64"),
        ("threads", guest().outside("(memory $shared 1 1 shared)"), "threads"),
    ] {
        let error = refused(guest.build()).await;
        assert!(error.contains(told), "{what}: {error}");
    }
}

#[tokio::test]
async fn a_component_whose_instances_take_much_of_the_hosts_memory_never_loads() {
    let component = |module: &str, times: usize| {
        wat(&format!("(component (core module $m {module}) {})", "(core instance (instantiate $m))".repeat(times)))
    };
    let globals = "(global i32 (i32.const 0))".repeat(10_000);
    let passive = format!("(func $f) (elem func {})", "$f ".repeat(10_000));
    let exported = (0..5_000).fold(String::new(), |mut all, number| {
        write!(all, "(func (export \"f{number}\"))").expect("a String takes everything");
        all
    });
    // An instance of each takes about 160,000 bytes.
    for (what, module) in [("globals", &globals), ("passive element segments", &passive), ("references", &exported)] {
        for times in [30, 60] {
            let error = refused(component(module, times)).await;
            let told =
                "bytes of the host's memory for each instance, beside its memories and tables, and at most 4,194,304 are given";
            assert!(error.contains(told), "{what}, {times} times: {error}");
        }
        let error = refused(component(module, 5)).await;
        assert!(error.contains("it exports nothing"), "{what}, 5 times: {error}");
    }
}

#[tokio::test]
async fn a_component_that_instantiates_components_without_a_module_very_often_never_loads() {
    let component = |times: usize| {
        let many = format!(
            "(component $many (alias outer $outer $empty (component $e)) {})",
            "(instance (instantiate $e))".repeat(1_000)
        );
        wat(&format!("(component $outer (component $empty) {many} {})", "(instance (instantiate $many))".repeat(times)))
    };
    // The pool alone would take 250 of them, and about 30 MB of the host's memory for each instance.
    let error = refused(component(100)).await;
    assert!(error.contains("up to 12,812,928 bytes of the host's memory for each instance"), "{error}");
    let error = refused(component(10)).await;
    assert!(error.contains("it exports nothing"), "{error}");
}

/// The component with another core module in it, which nobody makes an instance of.
fn with_module(mut component: Vec<u8>, text: &str) -> Vec<u8> {
    let module = wat(text);
    // A section of its own: its number, its length in groups of seven bits, its content.
    component.push(1);
    let mut left = module.len();
    loop {
        let group = u8::try_from(left & 0x7f).expect("seven bits");
        left >>= 7;
        component.push(if left > 0 { group | 0x80 } else { group });
        if left == 0 {
            break;
        }
    }
    component.extend(module);
    component
}

#[tokio::test]
async fn a_small_component_that_compiles_to_hundreds_of_megabytes_never_loads() {
    // The compiler writes out all that is between the first byte of a memory's data and the last.
    let far = |at: u32| format!("(module (memory 1023) (data (i32.const 0) \"x\") (data (i32.const {at}) \"x\"))");
    let hoarding = (0..3).fold(guest().build(), |component, _| with_module(component, &far(67_043_320)));
    let error = refused(hoarding).await;
    assert!(error.contains(" and compiles to 201") && error.contains("at most 33"), "{error}");
    let beside = (0..3).fold(guest().build(), |component, _| with_module(component, &far(65_536)));
    assert!(load(beside, LIMITS).await.is_ok());
}

#[tokio::test]
async fn a_component_that_does_harm_before_its_first_event_never_serves() {
    let starting = |body: &str| guest().outside(&format!("(func $begin {body}) (start $begin)"));
    for (what, guest, told) in [
        ("describe computes for ever", guest().describe("(loop (br 0)) (unreachable)"), "fuel: used up"),
        ("describe traps", guest().describe("(unreachable)"), "trap: "),
        ("describe recurses", guest().describe("(call $d)").outside("(func $d (result i32) (i32.add (call $d) (i32.const 1)))"), "stack: "),
        (
            "describe sleeps",
            guest().describe("(call $block (call $subscribe (i64.const 3600000000000))) (i32.const 1024)"),
            "it took longer than 5s",
        ),
        (
            "describe floods the host",
            guest().describe("(loop (drop (call $now)) (br 0)) (unreachable)"),
            "host-calls: ",
        ),
        (
            "describe takes memory for ever",
            guest().describe("(block (loop (br_if 1 (i32.eq (memory.grow (i32.const 16)) (i32.const -1))) (br 0))) (unreachable)"),
            "memory: ",
        ),
        ("describe answers from beyond its memory", guest().describe("(i32.const -4)"), "trap: "),
        (
            "describe names ten million routes",
            guest().describe("(i32.store (i32.const 1044) (i32.const 10000000)) (i32.const 1024)"),
            "trap: ",
        ),
        (
            "describe names a million routes",
            guest().pages(400).describe("(i32.store (i32.const 1040) (i32.const 65536)) (i32.store (i32.const 1044) (i32.const 1000000)) (i32.const 1024)"),
            "output: ",
        ),
        (
            "describe names a thousand and one routes",
            guest().describe("(i32.store (i32.const 1040) (i32.const 65536)) (i32.store (i32.const 1044) (i32.const 1001)) (i32.const 1024)"),
            "declares 1001 routes; 1 to 1000",
        ),
        (
            "describe names no route",
            guest().describe("(i32.store (i32.const 1044) (i32.const 0)) (i32.const 1024)"),
            "declares 0 routes",
        ),
        ("describe names a route twice", guest().routes(&[("A", "B"), ("A", "B")]), "the route A/B twice"),
        ("describe names a route that MySQL takes for another", guest().routes(&[("A", "B"), ("A", "B ")]), "ends in a space"),
        ("describe names a route that drives terminals", guest().routes(&[("A\u{1b}[2J", "B")]), "A\\\\u{1b}[2J"),
        ("it drives terminals by its name", guest().named("a\u{1b}]0;x\u{7}"), "no control characters"),
        ("its name is long", guest().named(&"a".repeat(129)), "1 to 128 bytes"),
        ("it computes for ever when it is made", starting("(loop (br 0))"), "fuel: used up"),
        ("it traps when it is made", starting("(unreachable)"), "trap: "),
        ("it reads beyond its memory when it is made", starting("(drop (i32.load (i32.const -8)))"), "trap: "),
    ] {
        let error = refused(guest.build()).await;
        assert!(error.contains(told), "{what}: {error}");
        assert!(!error.chars().any(|c| c.is_control() && c != '\n'), "{what}: {error:?}");
    }
}

#[tokio::test]
async fn describe_has_no_capability_to_use() {
    // Describes itself by its secret, if it can read one.
    let nosy = guest()
        .describe(
            "(call $secret (i32.const 2048) (i32.const 5) (i32.const 32768))
            (if (i32.load8_u (i32.const 32768)) (then (unreachable))) (i32.const 1024)",
        )
        .outside("(data (i32.const 2048) \"token\")");
    assert!(load(nosy.build(), "[secrets]\ntoken = \"s3cr3t-t0ken\"").await.is_ok());
    // Emits while it describes itself, and traps unless it is refused.
    let emitting = guest()
        .describe(
            "(i32.store (i32.const 33064) (i32.const 2048)) (i32.store (i32.const 33068) (i32.const 3))
            (call $emit (i32.const 33024) (i32.const 32768))
            (if (i32.eqz (i32.load8_u (i32.const 32768))) (then (unreachable))) (i32.const 1024)",
        )
        .outside("(data (i32.const 2048) \"a/b\")");
    assert!(load(emitting.build(), LIMITS).await.is_ok());
}

#[tokio::test]
async fn a_component_that_was_copied_in_part_never_loads() {
    let whole = guest().build();
    assert!(load(whole.clone(), LIMITS).await.is_ok());
    // Every cut of a small component at some place of each seven bytes; a real one at some hundred places.
    for end in (8..whole.len()).step_by(7) {
        let error = refused(whole[..end].to_vec()).await;
        assert!(!error.is_empty(), "cut at {end}");
    }
    let mailer = sample("order-mailer");
    for end in (8..mailer.len()).step_by(mailer.len() / 200) {
        refused(mailer[..end].to_vec()).await;
    }
}

#[tokio::test]
async fn a_file_of_gigabytes_is_refused_without_being_read() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("sparse.wasm");
    File::create(&file).and_then(|created| created.set_len(10 << 30)).expect("a sparse file takes no room");

    let loaded = PluginHost::from_file(&file, &PluginsConfig::default(), Arc::new(MemoryState::default())).await;

    assert!(matches!(loaded, Err(LoadError::TooLarge { bytes, .. }) if bytes == 10 << 30), "{loaded:?}");
    assert!(refused(vec![0; (32 << 20) + 1]).await.contains("at most 33554432 are loaded"));
}
