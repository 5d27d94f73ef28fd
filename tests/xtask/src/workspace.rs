//! Where things are, and how cargo is called. Nothing here depends on the current directory.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use crate::fault::Fault;

/// The workspace that this xtask belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    /// The folder with the workspace's Cargo.toml.
    pub(crate) root: PathBuf,
    /// Where cargo builds, be it by default, by an environment variable or by a configuration file.
    pub(crate) target: PathBuf,
    /// Whether clippy compiles our packages: its warnings are errors, and what it checks is not compiled again.
    pub(crate) clippy: bool,
}

/// The argument that has clippy compile what is built.
const CLIPPY: &str = "--clippy";

/// The environment that `cargo clippy -- -D warnings` sets. The separator of `CLIPPY_ARGS` is clippy's own: look at it when the toolchain
/// changes.
const COMPILER: (&str, &str) = ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
const LEVELS: (&str, &str) = ("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__");
/// Tests run cargo on projects of users, which must not be compiled by clippy.
const RUNNER: &str = r#"target.'cfg(unix)'.runner = ["env", "-u", "RUSTC_WORKSPACE_WRAPPER", "-u", "CLIPPY_ARGS"]"#;

/// What `cargo run` tells its child and a cargo inside it would take for its own: flags and wrappers of another build, and the
/// package that is run. The target directory is passed on, but as an absolute path.
const OF_THE_OUTER_CARGO: [&str; 3] = ["CARGO_ENCODED_RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET_DIR"];
const OF_THE_OUTER_PACKAGE: [&str; 4] = ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_", "CARGO_CRATE_"];

impl Workspace {
    /// Asks cargo, in the directory where the user typed: a relative `CARGO_TARGET_DIR` counts from there.
    pub(crate) fn find() -> Result<Self, Fault> {
        let here = environment("CARGO_MANIFEST_DIR").unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
        let root = here.ancestors().nth(2).ok_or_else(|| Fault::new("xtask is not in tests/xtask of a workspace"))?;

        let mut metadata = cargo();
        metadata.args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"]).arg(root.join("Cargo.toml"));
        let output = metadata.output().map_err(|error| cannot_start(&metadata, &error))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let target = json_string(&text, "target_directory").ok_or_else(|| {
            Fault::new(format!("cargo metadata did not name the target directory: {}", String::from_utf8_lossy(&output.stderr)))
        })?;
        Ok(Self { root: root.to_owned(), target: target.into(), clippy: false })
    }

    /// A cargo for this workspace.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = cargo();
        cargo.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        cargo
    }

    /// Takes `--clippy` out of the arguments of a command whose build clippy may check.
    pub(crate) fn with_lints(&self, arguments: &[OsString]) -> (Self, Vec<OsString>) {
        let (own, arguments): (Vec<_>, Vec<_>) = arguments.iter().cloned().partition(|argument| argument == CLIPPY);
        (Self { clippy: !own.is_empty(), ..self.clone() }, arguments)
    }

    /// A cargo for our packages, which clippy may check.
    pub(crate) fn linting_cargo(&self) -> Command {
        let mut cargo = self.cargo();
        if self.clippy {
            cargo.args(["--config", RUNNER]).envs([COMPILER, LEVELS]);
        }
        cargo
    }
}

/// Runs a command to its end; a failure names the command, which has already said why.
pub(crate) fn run(command: &mut Command) -> Result<(), Fault> {
    let status = command.status().map_err(|error| cannot_start(command, &error))?;
    if status.success() {
        return Ok(());
    }
    Err(Fault::new(format!("`{}` failed ({status}); what it said stands above", line_of(command))))
}

/// The exit code of a command; 128 and the signal, as a shell has it, when a signal ended it.
pub(crate) fn code_of(status: ExitStatus) -> ExitCode {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal = None;

    let code = status.code().or(signal.map(|signal: i32| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

pub(crate) fn cannot_start(command: &Command, error: &std::io::Error) -> Fault {
    Fault::new(format!("cannot start `{}`: {error}", line_of(command)))
}

#[expect(clippy::disallowed_methods, reason = "the environment is how cargo speaks to what it runs")]
pub(crate) fn environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The cargo that runs us, so that the toolchain is the same, without what it told us about ourselves.
fn cargo() -> Command {
    let mut cargo = Command::new(environment("CARGO").unwrap_or_else(|| "cargo".into()));
    for name in OF_THE_OUTER_CARGO {
        cargo.env_remove(name);
    }
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| OF_THE_OUTER_PACKAGE.iter().any(|prefix| name.starts_with(prefix))) {
            cargo.env_remove(name);
        }
    }
    cargo
}

fn line_of(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words: Vec<_> = std::iter::once(program).chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

/// The string under `key` in JSON text, at its first place; enough for the one key that is asked for.
fn json_string(json: &str, key: &str) -> Option<String> {
    let mark = format!("\"{key}\":\"");
    let mut rest = json[json.find(&mark)? + mark.len()..].chars();
    let mut value = String::new();
    loop {
        match rest.next()? {
            '"' => return Some(value),
            '\\' => value.push(rest.next()?), // paths hold no escapes but the backslash and the quotation mark
            plain => value.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_string_is_found_and_unescaped() {
        let json = r#"{"packages":[],"target_directory":"C:\\outbox\\target","version":1}"#;

        assert_eq!(json_string(json, "target_directory").as_deref(), Some(r"C:\outbox\target"));
        assert_eq!(json_string(json, "absent"), None);
    }
}
