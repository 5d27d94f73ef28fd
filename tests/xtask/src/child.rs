//! A child that runs until it ends, while whoever asks xtask to stop has asked the child.

use std::process::{Command, ExitCode};

use crate::fault::Fault;
use crate::workspace::{cannot_start, code_of};

/// Runs a command until it ends. It hears each signal once, however the signal came to us.
pub(crate) fn run(command: &mut Command) -> Result<ExitCode, Fault> {
    #[cfg(unix)]
    signals::keep_apart(command);
    let mut child = command.spawn().map_err(|error| cannot_start(command, &error))?;
    #[cfg(unix)]
    signals::pass_on(&child);
    let status = child.wait();
    #[cfg(unix)]
    signals::pass_on_no_more();
    status.map(code_of).map_err(|error| Fault::new(format!("cannot wait for what was started: {error}")))
}

/// Returns when somebody asks xtask to stop.
pub(crate) fn wait_for_a_signal() {
    #[cfg(unix)]
    signals::wait();
    #[cfg(not(unix))]
    std::thread::park();
}

/// A terminal sends Ctrl-C to a whole group of processes, `kill` to one of them. So that the child hears either exactly once (a
/// second time may mean "at once"), it has a group of its own, with all that it starts, and xtask passes on to that what it gets.
#[cfg(unix)]
#[expect(unsafe_code, reason = "the standard library knows no signals, and a crate for them would be larger than this")]
mod signals {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};
    use std::sync::atomic::{AtomicI32, Ordering};

    const STOP: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

    /// The child's group; 0 when there is none.
    static GROUP: AtomicI32 = AtomicI32::new(0);

    pub(super) fn keep_apart(command: &mut Command) {
        command.process_group(0);
        // SAFETY: prctl is async-signal-safe and touches no memory of ours.
        #[cfg(target_os = "linux")]
        unsafe {
            command.pre_exec(|| {
                // Even if xtask is killed outright, nothing that it started stays behind.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            });
        }
    }

    pub(super) fn pass_on(child: &Child) {
        GROUP.store(i32::try_from(child.id()).expect("a process id is a pid_t"), Ordering::SeqCst);
        for signal in STOP {
            // SAFETY: the handler does nothing but load an atomic and call kill, which is async-signal-safe.
            unsafe {
                libc::signal(signal, to_the_group as *const () as libc::sighandler_t);
            }
        }
    }

    /// From now on a signal finds nobody: what xtask still does is to stop.
    pub(super) fn pass_on_no_more() {
        GROUP.store(0, Ordering::SeqCst);
    }

    extern "C" fn to_the_group(signal: libc::c_int) {
        let group = GROUP.load(Ordering::SeqCst);
        if group != 0 {
            // SAFETY: kill touches no memory of ours. The group is that of our child, who is not waited for yet.
            unsafe {
                libc::kill(-group, signal);
            }
        }
    }

    /// Blocked first, so that a signal waits until it is taken, and stops nothing on its way.
    pub(super) fn wait() {
        // SAFETY: the set is initialised before it is read, and lives as long as the calls.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in STOP {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            let mut came = 0;
            libc::sigwait(&raw const set, &raw mut came);
        }
    }
}
