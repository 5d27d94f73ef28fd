//! The SDKs, which this program carries: they are published nowhere yet, so a new project gets a copy of its own, and needs no
//! registry for it.

use super::language::Language;
use crate::wit;

/// A path in the folder of the SDK, and what stands there.
pub(super) type File = (&'static str, &'static str);

/// The folder of the SDK in a project. Not `vendor`: that name means something else to Go.
pub(super) const FOLDER: &str = "outbox-sdk";

/// What every SDK has beside its own files.
const LICENCES: [File; 2] =
    [("LICENSE-APACHE", include_str!("../../LICENSE-APACHE")), ("LICENSE-MIT", include_str!("../../LICENSE-MIT"))];

/// The manifest of `sdk/rust`. Beside its link in this package it has another name: cargo packs no folder that has a
/// `Cargo.toml` of its own.
const RUST_MANIFEST: &str = include_str!("../../sdk/rust/package.toml");

/// The files of an SDK, as they lie in a project.
pub(super) fn files(language: Language) -> Vec<(String, String)> {
    let own = match language {
        Language::Rust => RUST,
        Language::Js | Language::Ts => JS,
        Language::Python => PYTHON,
        Language::Go => GO,
        Language::C => C,
    };
    let mut files: Vec<(String, String)> =
        own.iter().chain(&LICENCES).map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    if language == Language::Rust {
        // The lints are those of the workspace that the SDK comes from.
        files.push(("Cargo.toml".to_owned(), RUST_MANIFEST.replace("\n[lints]\nworkspace = true\n", "")));
    }
    // The packages of these two bring the contract along, as their archives do.
    let wit = match language {
        Language::Js | Language::Ts => Some("wit"),
        Language::Python => Some("wit/0.1.0"),
        _ => None,
    };
    files.extend(
        wit.into_iter().flat_map(|folder| wit::FILES.map(|(path, text)| (format!("{folder}/{path}"), text.to_owned()))),
    );
    files
}

macro_rules! files {
    ($language:literal: $($path:literal,)+) => {
        &[$(($path, include_str!(concat!("../../sdk/", $language, "/", $path)))),+]
    };
}

/// `sdk/rust`, the crate, without its manifest.
const RUST: &[File] = files![
    "rust":
    "README.md",
    "src/answer.rs",
    "src/batch.rs",
    "src/bindings.rs",
    "src/call.rs",
    "src/config.rs",
    "src/config/read.rs",
    "src/content_type.rs",
    "src/emit.rs",
    "src/event.rs",
    "src/handler.rs",
    "src/http.rs",
    "src/http/host.rs",
    "src/http/response.rs",
    "src/lib.rs",
    "src/log.rs",
    "src/log_bridge.rs",
    "src/misfit.rs",
    "src/or_fail.rs",
    "src/payload.rs",
    "src/plugin.rs",
    "src/publish.rs",
    "src/refusal.rs",
    "src/state.rs",
    "src/testing.rs",
    "wit/deps/clocks/clocks.wit",
    "wit/deps/http/http.wit",
    "wit/deps/io/io.wit",
    "wit/listener.wit",
];

/// `sdk/js`, the package for npm, without its tests.
const JS: &[File] = files![
    "js":
    "README.md",
    "bin/outbox-js.js",
    "package.json",
    "src/answer.js",
    "src/build/bundle.js",
    "src/build/engines.js",
    "src/build/index.d.ts",
    "src/build/index.js",
    "src/build/world.js",
    "src/call.js",
    "src/console.js",
    "src/emit.js",
    "src/event.js",
    "src/host/component/call.js",
    "src/host/component/emit.js",
    "src/host/component/http.js",
    "src/host/component/log.js",
    "src/host/component/publish.js",
    "src/host/component/settings.js",
    "src/host/component/state.js",
    "src/host/fake/call.js",
    "src/host/fake/emit.js",
    "src/host/fake/http.js",
    "src/host/fake/log.js",
    "src/host/fake/publish.js",
    "src/host/fake/settings.js",
    "src/host/fake/state-of-host.js",
    "src/host/fake/state.js",
    "src/http.d.ts",
    "src/http.js",
    "src/index.d.ts",
    "src/index.js",
    "src/listener.js",
    "src/log.js",
    "src/numbers.js",
    "src/publish.js",
    "src/settings.js",
    "src/state.js",
    "src/testing.d.ts",
    "src/testing.js",
    "src/text.js",
];

/// `sdk/python`, the package for pip, without its tests.
const PYTHON: &[File] = files![
    "python":
    "README.md",
    "hatch_build.py",
    "pyproject.toml",
    "src/outbox_sdk/__init__.py",
    "src/outbox_sdk/__main__.py",
    "src/outbox_sdk/_component.py",
    "src/outbox_sdk/_emit.py",
    "src/outbox_sdk/_host.py",
    "src/outbox_sdk/_shape.py",
    "src/outbox_sdk/_values.py",
    "src/outbox_sdk/answer.py",
    "src/outbox_sdk/build.py",
    "src/outbox_sdk/call.py",
    "src/outbox_sdk/event.py",
    "src/outbox_sdk/http.py",
    "src/outbox_sdk/log.py",
    "src/outbox_sdk/plugin.py",
    "src/outbox_sdk/publish.py",
    "src/outbox_sdk/py.typed",
    "src/outbox_sdk/refusal.py",
    "src/outbox_sdk/settings.py",
    "src/outbox_sdk/state.py",
    "src/outbox_sdk/testing.py",
];

/// `sdk/go`, the module, without its tests.
const GO: &[File] = files![
    "go":
    "README.md",
    "answer.go",
    "batch.go",
    "batch/batch.go",
    "batch/batch_wasip1.go",
    "event.go",
    "go.mod",
    "host.go",
    "host_native.go",
    "host_wasip1.go",
    "http.go",
    "internal/bindings/exports/export_outbox_listener_batch_handler/batch_handler.go",
    "internal/bindings/exports/export_outbox_listener_handler/handler.go",
    "internal/bindings/exports/export_outbox_listener_settings_check/check.go",
    "internal/bindings/exports/wit_batch_exports/wit_exports.go",
    "internal/bindings/exports/wit_exports/wit_exports.go",
    "internal/bindings/imports/outbox_listener_call/wit_bindings.go",
    "internal/bindings/imports/outbox_listener_emit/wit_bindings.go",
    "internal/bindings/imports/outbox_listener_handler/wit_bindings.go",
    "internal/bindings/imports/outbox_listener_http/wit_bindings.go",
    "internal/bindings/imports/outbox_listener_log/wit_bindings.go",
    "internal/bindings/imports/outbox_listener_publish/wit_bindings.go",
    "internal/bindings/imports/outbox_listener_settings/wit_bindings.go",
    "internal/bindings/imports/outbox_listener_state/wit_bindings.go",
    "internal/bindings/imports/outbox_listener_types/wit_bindings.go",
    "internal/wit/LICENSE",
    "internal/wit/README.md",
    "internal/wit/runtime/empty.s",
    "internal/wit/runtime/runtime.go",
    "internal/wit/types/option.go",
    "internal/wit/types/result.go",
    "internal/wit/types/tuple.go",
    "internal/wit/types/unit.go",
    "json.go",
    "outbox.go",
    "outboxtest/outboxtest.go",
];

/// `sdk/c`: a header and a source file, with what they include, and the stand-in of the host for tests.
const C: &[File] = files![
    "c":
    "README.md",
    "generated/listener.c",
    "generated/listener.h",
    "outbox.c",
    "outbox.h",
    "outbox_test.c",
    "outbox_test.h",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    fn below(folder: &Path, found: &mut BTreeSet<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = entry.file_name();
            let skipped = ["node_modules", "__pycache__", "tests", "test", "target", "scripts", "dist"];
            if name.to_string_lossy().starts_with('.') || skipped.iter().any(|other| name == *other) {
                continue;
            }
            if path.is_dir() {
                below(&path, found);
            } else {
                found.insert(path);
            }
        }
    }

    /// What is for work on the SDK itself, and for no project.
    fn is_for_us(path: &Path) -> bool {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("LICENSE-") || name == "Cargo.toml" || name == "generate.sh" || name.ends_with("_test.go")
    }

    #[test]
    fn every_file_of_an_sdk_is_carried() {
        let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk");
        for (folder, own) in [("rust", RUST), ("js", JS), ("python", PYTHON), ("go", GO), ("c", C)] {
            let root = sdk.join(folder);
            let mut found = BTreeSet::new();
            below(&root, &mut found);
            let found: BTreeSet<String> = found
                .iter()
                .filter(|path| !is_for_us(path) || path.starts_with(root.join("internal")))
                .map(|path| path.strip_prefix(&root).unwrap().to_string_lossy().into_owned())
                .collect();
            let carried: BTreeSet<String> = own.iter().map(|(path, _)| (*path).to_owned()).collect();
            assert_eq!(carried, found, "sdk/{folder}: bring the list in project/sdk.rs up to date");
        }
    }

    #[test]
    fn the_crate_stands_without_a_workspace() {
        let files = files(Language::Rust);
        let (_, manifest) = files.iter().find(|(path, _)| path == "Cargo.toml").unwrap();

        assert!(!manifest.contains("workspace"), "{manifest}");
    }
}
