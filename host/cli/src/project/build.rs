//! `outbox plugin build`: a component of a project, by the toolchain of its language.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use serde_json::Value;

use super::language::{self, Language};
use super::{sdk, toolchain};
use crate::componentize::componentize;
use crate::config::Config;
use crate::described::described;
use crate::failure::{Exit, Failure};
use crate::output::{self, Output, argument, shown};
use crate::plugins;

/// Build the component of a plugin project, and check it as `plugin check` does
///
/// The language is detected from the project's files: Cargo.toml, package.json, pyproject.toml, go.mod, or C files. If a
/// toolchain is missing, the error names the command that installs it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  outbox plugin build\n  outbox plugin build order-mailer --out plugins/order-mailer.wasm")]
pub(crate) struct Build {
    /// The project's folder
    #[arg(default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// The component file to write; default NAME.wasm in the project, beside its manifest NAME.toml
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The project's language, if it cannot be detected
    #[arg(long, short, value_enum, value_name = "LANGUAGE")]
    lang: Option<Language>,
    #[command(flatten)]
    output: Output,
}

impl Build {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        let Self { dir, out, lang, output } = self;
        let project = Project::of(&dir, lang, out)?;
        eprintln!("building {} in {}", project.out.display(), project.language.name());
        let bytes = project.build()?;
        eprintln!("wrote {}: {}", project.out.display(), output::whole_size(bytes as u64));
        let manifest = project.manifest_elsewhere();
        // Judged by the manifest that it is going to have.
        let at = if manifest.is_some() { &project.home } else { &project.out };
        let report = plugins::check_at(&project.out, at, config)
            .await
            .map_err(|error| Failure::new(Exit::Findings, "the plugin was built, but it cannot be loaded").because(error))?;
        output::one(&report, output.output, described)?;
        if let Some(manifest) = manifest {
            let [from, to] = [&manifest, &project.out.with_extension("toml")].map(|file| file.display().to_string());
            eprintln!("a host also needs the manifest {}: cp {} {}", shown(&from), argument(&from), argument(&to));
        }
        Ok(())
    }
}

/// A project and what is to be made of it.
#[derive(Debug)]
pub(super) struct Project {
    pub(super) folder: PathBuf,
    pub(super) language: Language,
    pub(super) out: PathBuf,
    /// Where the component lies if nobody says otherwise: beside the project's manifest.
    home: PathBuf,
}

impl Project {
    /// The project in a folder.
    ///
    /// # Errors
    /// When there is no such folder, or no language is seen in it.
    pub(super) fn of(folder: &Path, language: Option<Language>, out: Option<PathBuf>) -> Result<Self, Failure> {
        if !folder.is_dir() {
            return Err(Failure::new(Exit::NotFound, format!("{} is not a directory", folder.display())));
        }
        let language = language.or_else(|| Language::of(folder)).ok_or_else(|| {
            let what = format!("{} is not a plugin project", folder.display());
            let files = "a project has a Cargo.toml, package.json, pyproject.toml, go.mod, or C files";
            Failure::new(Exit::NotFound, what).details(vec![files.to_owned(), "`outbox plugin new` creates one".to_owned()])
        })?;
        let name = language::plugin_name(folder);
        let beside = if folder == Path::new(".") { PathBuf::new() } else { folder.to_owned() };
        let home = beside.join(format!("{name}.wasm"));
        Ok(Self { folder: folder.to_owned(), language, out: out.unwrap_or_else(|| home.clone()), home })
    }

    /// The project's manifest, where the component is written to a place that has none.
    fn manifest_elsewhere(&self) -> Option<PathBuf> {
        let own = self.home.with_extension("toml");
        (own.is_file() && !self.out.with_extension("toml").exists()).then_some(own)
    }

    /// Builds the component and puts it in its place; returns its size in bytes. The tools say what they say on standard error.
    ///
    /// # Errors
    /// When the toolchain is missing, or does not make a component.
    pub(super) fn build(&self) -> Result<usize, Failure> {
        let component = match self.language {
            Language::Rust => self.rust()?,
            Language::Js | Language::Ts => self.javascript()?,
            Language::Python => self.python()?,
            Language::Go => self.go()?,
            Language::C => self.c()?,
        };
        put(&self.out, &component)?;
        Ok(component.len())
    }

    fn rust(&self) -> Result<Vec<u8>, Failure> {
        toolchain::cargo(&self.folder)?;
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--target", toolchain::WASM_TARGET, "--message-format=json-render-diagnostics"]);
        // Flags for this machine's processor and linker are not the component's.
        cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
        let messages = run(cargo.current_dir(&self.folder), "cargo")?;
        let component = messages.lines().filter_map(component_of).next_back().ok_or_else(|| {
            let what = "cargo built no component; Cargo.toml needs crate-type = [\"cdylib\"] under [lib]";
            Failure::new(Exit::Failed, what)
        })?;
        read(&component)
    }

    fn javascript(&self) -> Result<Vec<u8>, Failure> {
        let entry = language::javascript_entry(&self.folder).ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("{} has no src/listener.js or src/listener.ts", self.folder.display()))
        })?;
        let mut node = toolchain::node(&self.folder, self.language)?;
        if self.language == Language::Ts {
            self.check_types()?;
        }
        self.made_by("outbox-js", |made| {
            node.arg("build").arg(&entry).arg("--out").arg(made);
            node
        })
    }

    /// The bundler drops types without a look at them.
    fn check_types(&self) -> Result<(), Failure> {
        let compiler = self.folder.join("node_modules/.bin/tsc");
        if compiler.is_file() && self.folder.join("tsconfig.json").is_file() {
            run(Command::new(compiler).arg("--noEmit").arg("--project").arg(&self.folder), "tsc")?;
        }
        Ok(())
    }

    fn python(&self) -> Result<Vec<u8>, Failure> {
        let module = language::python_module(&self.folder).ok_or_else(|| {
            let what =
                format!("{} has no listener.py, and not exactly one other module that is no test", self.folder.display());
            Failure::new(Exit::NotFound, what)
        })?;
        let mut python = toolchain::python(&self.folder)?;
        self.made_by("outbox-python", |made| {
            python.args(["-m", "outbox_sdk", "build"]).arg(&module).arg("--output").arg(made);
            python
        })
    }

    fn go(&self) -> Result<Vec<u8>, Failure> {
        let mut go = toolchain::go(&self.folder)?;
        let core = self.made_by("go", |made| {
            go.current_dir(&self.folder).env("GOOS", "wasip1").env("GOARCH", "wasm").env("GOTOOLCHAIN", "local");
            go.args(["build", "-trimpath", "-buildmode=c-shared", "-ldflags=-s -w -checklinkname=0", "-o"]).arg(made).arg(".");
            go
        })?;
        component(core)
    }

    fn c(&self) -> Result<Vec<u8>, Failure> {
        let sdk = [self.folder.join(sdk::FOLDER), self.folder.join("../../sdk/c")]
            .into_iter()
            .find(|sdk| sdk.join("outbox.c").is_file());
        let sdk = sdk.ok_or_else(|| {
            let what = format!(
                "{} has no {}/outbox.c; copy the folder from a project of `outbox plugin new`",
                self.folder.display(),
                sdk::FOLDER
            );
            Failure::new(Exit::NotFound, what)
        })?;
        let mut cc = toolchain::zig_cc(&self.folder)?;
        let core = self.made_by("zig cc", |made| {
            cc.args(["--target=wasm32-wasi", "-std=c11", "-Os", "-Wall", "-Wextra", "-mexec-model=reactor"]);
            // The stack lies below everything else: one that overflows ends the call with a trap, and overwrites nothing.
            cc.arg("-Wl,-z,stack-size=65536").arg("-I").arg(&sdk);
            cc.args(language::c_sources(&self.folder)).arg(sdk.join("outbox.c")).arg("-o").arg(made);
            cc
        })?;
        component(core)
    }

    /// Runs a tool that writes a file, and reads what it wrote.
    fn made_by(&self, tool: &str, command: impl FnOnce(&Path) -> Command) -> Result<Vec<u8>, Failure> {
        let absolute = std::path::absolute(&self.folder).unwrap_or_else(|_| self.folder.clone());
        let made = absolute.join(format!(".{}.wasm", std::process::id()));
        let ended = run(&mut command(&made), tool).and_then(|_| read(&made));
        let _ = fs::remove_file(&made);
        ended
    }
}

/// Runs a tool to its end; what it says for people goes to standard error. Returns what it printed for programs.
fn run(command: &mut Command, tool: &str) -> Result<String, Failure> {
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output =
        command.output().map_err(|error| Failure::new(Exit::Failed, format!("{tool} cannot be started")).because(error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    // The messages that cargo writes for programs repeat those on standard error.
    for line in String::from_utf8_lossy(&output.stdout).lines().filter(|line| !line.starts_with('{')) {
        eprintln!("{line}");
    }
    Err(Failure::new(Exit::Failed, format!("{tool} could not build the plugin; see its output above")))
}

/// The component that a message of cargo tells of.
fn component_of(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_component = message["reason"] == "compiler-artifact"
        && message["target"]["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "cdylib"));
    let files = message["filenames"].as_array().filter(|_| is_component)?;
    files.iter().filter_map(Value::as_str).find(|file| file.ends_with(".wasm")).map(PathBuf::from)
}

fn component(core: Vec<u8>) -> Result<Vec<u8>, Failure> {
    componentize(core)
        .map_err(|reason| Failure::new(Exit::Failed, format!("the module cannot be turned into a component: {reason}")))
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| Failure::new(Exit::Failed, format!("{} cannot be read", file.display())).because(error))
}

/// Whole or not at all, since a host may be watching the folder.
fn put(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let half = file.with_file_name(format!(".{name}.tmp"));
    let made = file.parent().filter(|folder| !folder.as_os_str().is_empty()).map_or(Ok(()), fs::create_dir_all);
    let made = made.and_then(|()| fs::write(&half, bytes)).and_then(|()| fs::rename(&half, file));
    made.map_err(|error| Failure::new(Exit::Failed, format!("{} cannot be written", file.display())).because(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_component_is_found_among_the_messages_of_cargo() {
        let message = r#"{"reason":"compiler-artifact","target":{"kind":["cdylib"]},"filenames":["/t/a.d","/t/greeter.wasm"]}"#;

        assert_eq!(component_of(message), Some(PathBuf::from("/t/greeter.wasm")));
        assert_eq!(component_of(&message.replace("cdylib", "lib")), None);
        assert_eq!(component_of("warning: text"), None);
    }
}
