//! The child's side: limits first, then the bytes.

use std::io::{self, Read, Write};

use rustix::process::{Resource, Rlimit, nice, setrlimit};

use super::in_proportion;
use crate::engine;
use crate::engine::compatibility::compatibility;
use crate::limits::MAX_FILE_BYTES;

/// The first byte of an answer: machine code follows, or the reason why there is none.
pub(crate) const COMPILED: u8 = b'C';
pub(crate) const REFUSED: u8 = b'R';
/// The child was not asked as it must be, or compiles for another engine.
pub(crate) const MISMATCH: u8 = b'M';

/// How much the child gives way to the host, which shares its processors.
const NICE: i32 = 10;
/// Between the signal that the processor time is used up and the one that cannot be caught.
const GRACE_SECONDS: u64 = 2;

/// Compiles the component of `input` and writes the answer to `output`, for the host that has started this process.
///
/// `order` is what the host gave as the last three arguments: the engine to compile for, the bytes of memory and the seconds of
/// processor time. They become limits of this whole process before a byte is read, and cannot be taken back.
///
/// # Errors
/// When the answer cannot be written or the component cannot be read. What the compiler says of the component is an answer.
pub fn run_compiler(order: &[String], input: impl Read, mut output: impl Write) -> io::Result<()> {
    match prepared(order) {
        Ok(engine) => answer(&engine, input, &mut output)?,
        Err(reason) => write(&mut output, MISMATCH, reason.as_bytes())?,
    }
    output.flush()
}

/// The engine that was asked for, in a process that has its limits.
fn prepared(order: &[String]) -> Result<wasmtime::Engine, String> {
    let [wanted, memory, seconds] = order else {
        return Err("the compiler is started by the host only".to_owned());
    };
    let number = |text: &String| text.parse::<u64>().map_err(|error| format!("`{text}` is not a valid limit: {error}"));
    confine(number(memory)?, number(seconds)?).map_err(|error| format!("the limits cannot be set: {error}"))?;
    let engines = engine::compilers().map_err(|error| format!("{error:#}"))?;
    let found = engines.into_iter().find(|engine| compatibility(engine) == *wanted);
    found.ok_or_else(|| "this program compiles for another engine than the host's; are they of the same build?".to_owned())
}

fn confine(memory: u64, seconds: u64) -> io::Result<()> {
    // The kernel takes this process first when memory runs out. Refused in some containers, which costs nothing.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    nice(NICE)?;
    let limit = |resource, soft: u64, hard: u64| setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) });
    limit(Resource::As, memory, memory)?;
    limit(Resource::Cpu, seconds, seconds.saturating_add(GRACE_SECONDS))?;
    // No core file of 2 GiB, and no file at all.
    limit(Resource::Core, 0, 0)?;
    limit(Resource::Fsize, 0, 0)?;
    Ok(())
}

fn answer(engine: &wasmtime::Engine, input: impl Read, output: &mut impl Write) -> io::Result<()> {
    let mut component = Vec::new();
    input.take(MAX_FILE_BYTES + 1).read_to_end(&mut component)?;
    let compiled = engine.precompile_component(&component).map_err(|error| format!("{error:#}"));
    let kept = compiled.and_then(|compiled| in_proportion(component.len(), compiled.len()).map(|()| compiled));
    match kept {
        Ok(compiled) => write(output, COMPILED, &compiled),
        Err(reason) => write(output, REFUSED, reason.as_bytes()),
    }
}

fn write(output: &mut impl Write, kind: u8, rest: &[u8]) -> io::Result<()> {
    output.write_all(&[kind])?;
    output.write_all(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_that_compiles_to_thousands_of_times_its_size_is_refused() {
        let engines = engine::compilers().expect("this machine runs WebAssembly");
        let answered = |at: u32| {
            let text =
                format!(r#"(component (core module (memory 1023) (data (i32.const 0) "x") (data (i32.const {at}) "x")))"#);
            let component = wat::parse_str(text).expect("a component");
            let mut output = Vec::new();
            answer(&engines[0], component.as_slice(), &mut output).expect("written");
            output
        };
        assert_eq!(answered(65_536)[0], COMPILED);
        let refused = answered(67_043_320);
        let reason = String::from_utf8_lossy(&refused[1..]);
        assert_eq!(refused[0], REFUSED, "{} bytes", refused.len());
        assert!(reason.contains(" compiles to 6"), "{reason}");
    }
}
