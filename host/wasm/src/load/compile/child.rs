//! The host's side of the child process that compiles.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

use outbox_event::text::keepable;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::inside::{COMPILED, MISMATCH, REFUSED};
use super::{ChildCompiler, CompileFailure, CompileLimits, most_compiled};

/// The most that is read of what the child answers beside machine code: its first byte, or a reason.
const MAX_REASON: usize = 64 << 10;
/// The most that is read of what the child complains.
const MAX_COMPLAINT: u64 = 16 << 10;
/// The most threads of the compiler. Each has room of its own in the memory limit.
const MAX_THREADS: usize = 4;

impl ChildCompiler {
    /// Compiles one component for the engine of this [compatibility](crate::engine::compatibility::compatibility).
    /// Dropped, it kills the child.
    pub(crate) async fn compile(
        &self,
        component: &[u8],
        compatibility: &str,
        limits: &CompileLimits,
    ) -> Result<Vec<u8>, CompileFailure> {
        let mut child = self.command(compatibility, limits).spawn().map_err(|error| {
            CompileFailure::Failed(io::Error::new(
                error.kind(),
                format!("{} cannot be started: {error}", self.program.display()),
            ))
        })?;
        match tokio::time::timeout(limits.wall, talk(&mut child, component)).await {
            Ok(Ok((status, answer, complaint))) => concluded(status, answer, &complaint, limits),
            Ok(Err(error)) => Err(CompileFailure::Failed(error)),
            Err(_) => {
                // Reaped here, so that the next one does not compete with it.
                let _ = child.kill().await;
                Err(CompileFailure::Late { wall: limits.wall })
            }
        }
    }

    fn command(&self, compatibility: &str, limits: &CompileLimits) -> Command {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .arg(compatibility)
            .arg(limits.memory.0.to_string())
            .arg(limits.cpu.as_secs().max(1).to_string())
            // Nothing of the host's environment, which holds secrets. The allocator must not reserve the limit for itself.
            .env_clear()
            .env("MALLOC_ARENA_MAX", "2")
            .env("RAYON_NUM_THREADS", threads.to_string())
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }
}

/// Hands the component over and reads until the child has ended.
async fn talk(child: &mut Child, component: &[u8]) -> io::Result<(ExitStatus, Vec<u8>, String)> {
    let (mut stdin, stdout, stderr) = match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
        (Some(stdin), Some(stdout), Some(stderr)) => (stdin, stdout, stderr),
        _ => return Err(io::Error::other("the compiler was started without pipes")),
    };
    let feed = async {
        // A child that dies early does not read everything; how it died says more than the broken pipe.
        let _ = stdin.write_all(component).await;
        drop(stdin);
    };
    let most = (most_compiled(component.len()) + MAX_REASON) as u64;
    let ((), answer, complaint) = tokio::join!(feed, upto(stdout, most), upto(stderr, MAX_COMPLAINT));
    let status = child.wait().await?;
    Ok((status, answer?, String::from_utf8_lossy(&complaint?).into_owned()))
}

/// Everything, of which the first `max` bytes are kept.
async fn upto(mut from: impl AsyncRead + Unpin, max: u64) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    (&mut from).take(max).read_to_end(&mut kept).await?;
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok(kept)
}

/// Signals that a service manager or a terminal sends to all processes of a host, and that stop the host.
const STOP: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP];

/// What became of a child that has ended.
fn concluded(
    status: ExitStatus,
    mut answer: Vec<u8>,
    complaint: &str,
    limits: &CompileLimits,
) -> Result<Vec<u8>, CompileFailure> {
    if let Some(signal) = status.signal().filter(|signal| STOP.contains(signal)) {
        // As a service manager does that stops all processes of a unit at once. The component has nothing to do with it.
        return Err(CompileFailure::Failed(io::Error::other(format!("it was told to end from outside (signal {signal})"))));
    }
    if let Some(how) = death(status, complaint, limits) {
        return Err(CompileFailure::Stopped(how));
    }
    let text = |answer: &[u8]| String::from_utf8_lossy(answer.get(1..).unwrap_or_default()).into_owned();
    match answer.first() {
        Some(&COMPILED) => {
            answer.remove(0);
            Ok(answer)
        }
        Some(&REFUSED) => Err(CompileFailure::Refused(text(&answer))),
        Some(&MISMATCH) => Err(CompileFailure::Failed(io::Error::other(keepable(&text(&answer), 1_024)))),
        _ => Err(CompileFailure::Failed(io::Error::other(
            "it ended without an answer; is it the program that this host was built with?",
        ))),
    }
}

/// How a child died; `None` for one that ended by itself and well.
fn death(status: ExitStatus, complaint: &str, limits: &CompileLimits) -> Option<String> {
    if status.success() {
        return None;
    }
    let memory = || format!("needed more than {} of memory (plugins.compile_limits.memory)", limits.memory);
    let last = complaint.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    let said = if last.is_empty() { String::new() } else { format!(": {}", keepable(last, 256)) };
    Some(match status.signal() {
        Some(libc::SIGXCPU) => {
            let cpu = humantime::format_duration(limits.cpu);
            format!("used more than {cpu} of processor time (plugins.compile_limits.cpu)")
        }
        Some(libc::SIGABRT) if complaint.contains("memory allocation of") => memory(),
        Some(libc::SIGKILL) => "was killed, most likely by the kernel because the machine ran out of memory".to_owned(),
        Some(signal) => format!("crashed (signal {signal}){said}"),
        None => match status.code() {
            // Threads that the memory limit forbids are a panic of the runtime's, not of the compiler.
            _ if complaint.contains("Cannot allocate memory") => memory(),
            code => format!("failed (exit code {}){said}", code.map_or_else(|| "-".to_owned(), |code| code.to_string())),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_from_outside_marks_no_component_and_one_of_the_kernels_does() {
        let ended_by = |signal: i32| concluded(ExitStatus::from_raw(signal), Vec::new(), "", &CompileLimits::default());
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
            assert!(matches!(ended_by(signal), Err(CompileFailure::Failed(_))), "{signal}");
        }
        for signal in [libc::SIGKILL, libc::SIGXCPU, libc::SIGSEGV, libc::SIGABRT] {
            assert!(matches!(ended_by(signal), Err(CompileFailure::Stopped(_))), "{signal}");
        }
    }
}
