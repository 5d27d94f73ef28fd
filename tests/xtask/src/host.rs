//! Building the host's binary, and running it until it ends.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::fault::Fault;
use crate::workspace::{Workspace, cannot_start, code_of, run as run_to_end};

/// What a host is built for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Profile {
    /// Looking at it; dependencies are optimised, the host itself is not.
    Dev,
    /// Measuring it.
    Release,
}

/// Builds `outbox` and tells where it is.
pub(crate) fn build(workspace: &Workspace, profile: Profile) -> Result<PathBuf, Fault> {
    let (folder, flag) = match profile {
        Profile::Dev => ("debug", None),
        Profile::Release => ("release", Some("--release")),
    };
    run_to_end(workspace.cargo().args(["build", "--package", "outbox", "--bin", "outbox"]).args(flag))?;
    Ok(workspace.target.join(folder).join("outbox").with_extension(std::env::consts::EXE_EXTENSION))
}

/// Runs the host until it ends. Whoever asks xtask to stop has asked the host, once, however the signal came.
pub(crate) fn run(host: &mut Command) -> Result<ExitCode, Fault> {
    #[cfg(unix)]
    signals::keep_apart(host);
    let mut child = host.spawn().map_err(|error| cannot_start(host, &error))?;
    #[cfg(unix)]
    signals::pass_on(&child);
    child.wait().map(code_of).map_err(|error| Fault::new(format!("cannot wait for the host: {error}")))
}

/// A terminal sends Ctrl-C to a whole group of processes, `kill` to one of them. So that the host hears either exactly once (a
/// second time may mean "at once"), it has a group of its own and xtask passes on what it gets.
#[cfg(unix)]
#[expect(unsafe_code, reason = "the standard library knows no signals, and a crate for them would be larger than this")]
mod signals {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};
    use std::sync::atomic::{AtomicI32, Ordering};

    static HOST: AtomicI32 = AtomicI32::new(0);

    pub(super) fn keep_apart(host: &mut Command) {
        host.process_group(0);
        // SAFETY: prctl is async-signal-safe and touches no memory of ours.
        #[cfg(target_os = "linux")]
        unsafe {
            host.pre_exec(|| {
                // Even if xtask is killed outright, nothing that it started stays behind.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            });
        }
    }

    pub(super) fn pass_on(child: &Child) {
        HOST.store(i32::try_from(child.id()).expect("a process id is a pid_t"), Ordering::SeqCst);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: the handler does nothing but load an atomic and call kill, which is async-signal-safe.
            unsafe {
                libc::signal(signal, to_the_host as *const () as libc::sighandler_t);
            }
        }
    }

    extern "C" fn to_the_host(signal: libc::c_int) {
        // SAFETY: kill touches no memory of ours. The process is our child and xtask ends when it does, so the id is not reused.
        unsafe {
            libc::kill(HOST.load(Ordering::SeqCst), signal);
        }
    }
}
