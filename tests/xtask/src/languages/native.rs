//! C and Go: the SDKs, the samples that check orders and go on with a saga, and a plugin of the tests. Both compile to core
//! modules, of which the program makes components.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Made, caches};
use crate::fault::Fault;
use crate::host::{self, Extent, Profile};
use crate::python;
use crate::workspace::{Workspace, cannot_start, run};

const C: [&str; 2] = ["sdk/c", "plugins/order-validator-c"];
const GO: [&str; 3] = ["sdk/go", "plugins/order-saga-go", "plugins/batches-go"];
/// What is built.
const COMPONENTS: [&str; 3] = ["order-validator", "order-saga", "batches-go"];

/// Runs the unit tests of SDKs and samples, and builds the samples.
pub(super) fn build(workspace: &Workspace, folder: &Path) -> Result<Vec<PathBuf>, Fault> {
    let components = COMPONENTS.map(|name| folder.join(name).with_extension("wasm"));
    let made = Made::of(workspace, "native", &[&C[..], &GO, &["wit"]].concat())?;
    if made.is_current() && components.iter().all(|component| component.is_file()) {
        return Ok(components.into());
    }
    let tools = Tools::ensure(workspace)?;
    let outbox = host::build(workspace, Profile::Dev, Extent::Whole)?;
    tools.test_c(workspace)?;
    tools.test_go(workspace)?;
    eprintln!("xtask: building order-validator.wasm in C, order-saga.wasm and batches-go.wasm in Go");
    let [in_c, saga, batches] = COMPONENTS;
    let cores =
        [tools.build_c(workspace, in_c)?, tools.build_go(workspace, GO[1], saga)?, tools.build_go(workspace, GO[2], batches)?];
    for (core, component) in cores.iter().zip(&components) {
        let mut make = Command::new(&outbox);
        run(make.args(["plugin", "componentize"]).arg(core).arg("--out").arg(component).current_dir(&tools.work))?;
    }
    made.note()?;
    Ok(components.into())
}

/// The toolchains of C and Go.
pub(super) struct Tools {
    python: PathBuf,
    /// Where what is built lies, and where the toolchains keep what they know.
    work: PathBuf,
}

impl Tools {
    /// Installs the toolchains unless they are there.
    pub(super) fn ensure(workspace: &Workspace) -> Result<Self, Fault> {
        let python = python::TOOLCHAINS.ensure(&workspace.target.join("languages/toolchains"))?;
        let work = workspace.target.join("languages/native");
        fs::create_dir_all(&work).map_err(|error| Fault::file("make", &work, &error))?;
        Ok(Self { python, work })
    }

    fn cc(&self, workspace: &Workspace) -> Command {
        let mut cc = Command::new(&self.python);
        cc.current_dir(&workspace.root).args(["-m", "ziglang", "cc", "-std=c11", "-Wall", "-Wextra", "-Isdk/c"]);
        cc.envs(caches(workspace)).env("ZIG_LOCAL_CACHE_DIR", self.work.join("zig"));
        cc
    }

    /// The tests are programs of this machine: what stands in for the host is a part of the SDK.
    fn test_c(&self, workspace: &Workspace) -> Result<(), Fault> {
        let (sdk, sample) = (["outbox.c", "outbox_test.c"], ["order.c", "validator.c", "validator_test.c"]);
        let sdk = sdk.map(|file| format!("{}/{file}", C[0]));
        let sample: Vec<String> = sample.iter().map(|file| format!("{}/{file}", C[1])).collect();
        for (name, files) in [("sdk", vec![format!("{}/tests/sdk_test.c", C[0])]), ("validator", sample)] {
            let program = self.work.join(format!("{name}-test"));
            run(self.cc(workspace).arg("-g").args(&sdk).args(files).arg("-o").arg(&program))?;
            quietly(&mut Command::new(&program))?;
        }
        Ok(())
    }

    fn build_c(&self, workspace: &Workspace, name: &str) -> Result<PathBuf, Fault> {
        let core = self.work.join(format!("{name}.core.wasm"));
        let mut cc = self.cc(workspace);
        cc.args(["--target=wasm32-wasi", "-Os", "-mexec-model=reactor", "-Wl,-z,stack-size=65536"]);
        cc.args(["order.c", "validator.c"].map(|file| format!("{}/{file}", C[1])));
        cc.arg(format!("{}/outbox.c", C[0]));
        run(cc.arg("-o").arg(&core))?;
        Ok(core)
    }

    fn go(&self, workspace: &Workspace, module: &str) -> Command {
        let bin = self.python.parent().unwrap_or(Path::new("."));
        let mut go = Command::new(bin.join("go"));
        go.current_dir(workspace.root.join(module));
        // It takes what it needs from the repository, and another Go from nowhere.
        go.env("GOTOOLCHAIN", "local").env("GOPROXY", "off").envs(caches(workspace));
        go
    }

    fn test_go(&self, workspace: &Workspace) -> Result<(), Fault> {
        for module in GO {
            run(self.go(workspace, module).args(["vet", "./..."]))?;
            run(self.go(workspace, module).args(["test", "./..."]))?;
        }
        Ok(())
    }

    fn build_go(&self, workspace: &Workspace, module: &str, name: &str) -> Result<PathBuf, Fault> {
        let core = self.work.join(format!("{name}.core.wasm"));
        let mut go = self.go(workspace, module);
        go.env("GOOS", "wasip1").env("GOARCH", "wasm");
        go.args(["build", "-trimpath", "-buildmode=c-shared", "-ldflags=-s -w -checklinkname=0", "-o"]).arg(&core);
        run(go.arg("."))?;
        Ok(core)
    }
}

/// Runs a program, and shows what it says only when it fails.
fn quietly(command: &mut Command) -> Result<(), Fault> {
    let output = command.output().map_err(|error| cannot_start(command, &error))?;
    if output.status.success() {
        return Ok(());
    }
    eprint!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(Fault::new("the unit tests in C failed; what they said stands above"))
}
