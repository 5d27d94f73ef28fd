//! From a component's bytes to machine code: in this process, or in a child process that may die of it.
//!
//! - `child.rs`: the host's side of the child: starts it, feeds it, and says how it ended.
//! - `inside.rs`: the child's side: takes on its limits, compiles, answers.
//!
//! Compiling is the one step of a load that a hostile file can make as expensive as it likes, and no limit inside the process
//! holds it.

mod child;
mod inside;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use inside::run_compiler;

use outbox_event::units::{ByteSize, duration, number};

/// Where components are compiled.
#[derive(Clone, Debug, Default)]
pub enum Compile {
    /// In this process, on a thread of its own: without a bound on memory or time. For an application that loads components
    /// it trusts. The default.
    #[default]
    InProcess,
    /// In a child process with limits, one at a time.
    Child(ChildCompiler),
}

/// A program that compiles one component and ends.
///
/// It must be of the same build as the host: it calls [`run_compiler`] with its last three arguments, its standard input and its
/// standard output, and does nothing else. The `outbox` program does so for `outbox __compile`.
#[derive(Clone, Debug)]
pub struct ChildCompiler {
    /// The program. `/proc/self/exe` is this very program, also after an update has replaced its file.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<OsString>,
}

/// What compiling one component in a child process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompileLimits {
    /// Memory in addresses, the program itself included. Default 2 GiB; at least 512 MiB.
    pub memory: ByteSize,
    /// Time of all processors together, in whole seconds. Default 60 s; at least 1 s.
    #[serde(with = "duration")]
    pub cpu: Duration,
    /// Time on the wall. Generous, since a busy machine has little left for the compiler, which gives way to the host; one that had
    /// to be stopped for it is tried again. Default 5 min; at least 1 s.
    #[serde(with = "duration")]
    pub wall: Duration,
}

impl Default for CompileLimits {
    fn default() -> Self {
        Self { memory: ByteSize::mib(2_048), cpu: Duration::from_secs(60), wall: Duration::from_secs(300) }
    }
}

impl CompileLimits {
    /// Everything that is wrong with these limits; `name` is how the configuration calls them.
    #[must_use]
    pub fn faults(&self, name: &str) -> Vec<String> {
        let mut faults = Vec::new();
        if self.memory < ByteSize::mib(512) {
            faults.push(format!("{name}.memory is {}; it must be at least 512MiB", self.memory));
        }
        for (key, span) in [("cpu", self.cpu), ("wall", self.wall)] {
            if span < Duration::from_secs(1) {
                faults.push(format!("{name}.{key} is {span:?}; it must be at least 1s"));
            }
        }
        if self.wall < self.cpu {
            faults.push(format!(
                "{name}.wall ({:?}) is below {name}.cpu ({:?}): a component that takes all of its processor time would be compiled again and again",
                self.wall, self.cpu
            ));
        }
        faults
    }
}

/// The most bytes that a component of so many bytes may compile to. What is compiled stays in memory for as long as the plugin
/// serves. The samples in Rust, C, Go, Python and JavaScript come to 2.1 to 3.8 times their size; a few bytes of data far apart in a
/// memory come to thousands.
fn most_compiled(component: usize) -> usize {
    component.saturating_mul(8).saturating_add(32 << 20).min(MAX_COMPILED)
}

/// Several times what the largest component compiles to.
const MAX_COMPILED: usize = 512 << 20;

/// Refuses machine code that is out of proportion to its component; both in bytes.
///
/// # Errors
/// Both sizes, in words.
pub(crate) fn in_proportion(component: usize, compiled: usize) -> Result<(), String> {
    let most = most_compiled(component);
    if compiled <= most {
        return Ok(());
    }
    let [component, compiled, most] = [component, compiled, most].map(|bytes| number(bytes as u64));
    Err(format!(
        "it has {component} bytes and compiles to {compiled}; at most {most} are kept of a component of its size. All between the first \
         and the last byte of a memory's data counts"
    ))
}

/// Why compiling in a child process failed.
#[derive(Debug)]
pub(crate) enum CompileFailure {
    /// The compiler ran to its end and refused the component, for this reason.
    Refused(String),
    /// The compiler was stopped, or died: trying again would cost as much. What it did.
    Stopped(String),
    /// The compiler was stopped after this time, with processor time left: the machine had none for it.
    Late {
        /// The limit.
        wall: Duration,
    },
    /// The compiler could not be started or asked; this is not the component's fault.
    Failed(std::io::Error),
}
