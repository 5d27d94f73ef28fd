//! The Rust target that plugins are built for.

use std::path::Path;
use std::process::Command;

use crate::fault::Fault;
use crate::workspace::{Workspace, cannot_start, environment, run};

pub(crate) const WASM_TARGET: &str = "wasm32-wasip2";

/// Installs the target unless it is there. Looks into the toolchain's folder first, since asking rustup takes longer.
pub(crate) fn ensure(workspace: &Workspace) -> Result<(), Fault> {
    let mut rustc = Command::new(environment("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--print", "sysroot"]).current_dir(&workspace.root);
    let output = rustc.output().map_err(|error| cannot_start(&rustc, &error))?;
    let sysroot = String::from_utf8_lossy(&output.stdout);
    if Path::new(sysroot.trim()).join("lib/rustlib").join(WASM_TARGET).join("lib").is_dir() {
        return Ok(());
    }

    eprintln!("xtask: installing the Rust target {WASM_TARGET}");
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add", WASM_TARGET]).current_dir(&workspace.root);
    run(&mut rustup).map_err(|fault| {
        Fault::new(format!(
            "{fault}\n\
             Plugins are built for {WASM_TARGET}, and this Rust does not have it. With Rust installed by rustup \
             (https://rustup.rs) and the network reachable, `rustup target add {WASM_TARGET}` adds it."
        ))
    })
}
