//! Starting, asking to end, and never leaving behind.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Fault;

/// How long a server may take to start or to stop: long enough for a machine under load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at something that happens elsewhere.
const GLANCE: Duration = Duration::from_millis(10);

/// How much of a log is shown when something failed.
const SHOWN_LINES: usize = 20;

/// A signal, by what it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    /// What a terminal sends on Ctrl-C.
    Interrupt,
    /// A polite request.
    Terminate,
    /// What PostgreSQL takes for "at once".
    Quit,
    /// `kill -9`.
    Kill,
}

/// Runs a program that prepares something, to its end, with this text as its input and its output in `log`.
pub(crate) fn run(mut command: Command, input: &str, log: &Path) -> Result<(), Fault> {
    let output = output_to(log)?;
    command.stdin(Stdio::piped()).stdout(clone(&output, log)?).stderr(output);
    let name = name_of(&command);
    let mut child = command.spawn().map_err(|error| Fault::new(format!("cannot start {name}: {error}")))?;
    let fed = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    let until = Instant::now() + PATIENCE;
    while !has_ended(&mut child) {
        if Instant::now() > until {
            child.kill().ok(); // it is waited for below
            child.wait().ok();
            return Err(Fault::new(format!("{name} has not ended after {PATIENCE:?}; it said:\n{}", tail(log))));
        }
        thread::sleep(GLANCE);
    }
    let status = child.wait().map_err(|error| Fault::new(format!("cannot wait for {name}: {error}")))?;
    // A program that ends early does not read: why it ended is what counts.
    match fed {
        Ok(()) if status.success() => Ok(()),
        _ => Err(Fault::new(format!("{name} failed ({status}):\n{}", tail(log)))),
    }
}

/// Starts a server. When this process dies, however it does, the server gets `last`.
pub(crate) fn start(mut command: Command, log: &Path, last: Signal) -> Result<Child, Fault> {
    type Order = (Command, Sender<std::io::Result<Child>>);
    static STARTER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();

    let output = output_to(log)?;
    command.stdin(Stdio::null()).stdout(clone(&output, log)?).stderr(output);
    #[cfg(unix)]
    unix::bind(&mut command, last);
    #[cfg(not(unix))]
    let _ = last;
    let name = name_of(&command);
    // Linux counts the thread that started a child as its parent, not the process: that of a test ends before its server's time.
    let starter = STARTER.get_or_init(|| {
        let (sender, orders) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in orders {
                answer.send(command.spawn()).ok(); // whoever asked waits below
            }
        });
        Mutex::new(sender)
    });
    let (answer, started) = channel();
    starter.lock().unwrap_or_else(PoisonError::into_inner).send((command, answer)).expect("the thread never ends");
    started.recv().expect("the thread answers").map_err(|error| Fault::new(format!("cannot start {name}: {error}")))
}

/// Sends a signal and waits for the end; kills what does not end in time.
pub(crate) fn end(child: &mut Child, signal: Signal) {
    #[cfg(unix)]
    unix::send(child, signal);
    #[cfg(not(unix))]
    let _ = (signal, child.kill());
    let until = Instant::now() + PATIENCE;
    while !has_ended(child) && Instant::now() < until {
        thread::sleep(GLANCE);
    }
    child.kill().ok(); // it has ended, most likely
    child.wait().ok();
}

/// Looks until `ready`, and hands the server on; one that does not get ready is ended.
pub(crate) fn wait_until(ready: impl Fn() -> bool, mut child: Child, name: &str, log: &Path) -> Result<Child, Fault> {
    let until = Instant::now() + PATIENCE;
    while !ready() {
        if has_ended(&mut child) {
            return Err(Fault::new(format!("{name} ended while it was starting; it said:\n{}", tail(log))));
        }
        if Instant::now() > until {
            end(&mut child, Signal::Quit);
            return Err(Fault::new(format!("{name} is not ready after {PATIENCE:?}; it said:\n{}", tail(log))));
        }
        thread::sleep(GLANCE);
    }
    Ok(child)
}

fn has_ended(child: &mut Child) -> bool {
    !matches!(child.try_wait(), Ok(None))
}

fn output_to(log: &Path) -> Result<File, Fault> {
    File::options().create(true).append(true).open(log).map_err(|error| Fault::file("write", log, &error))
}

fn clone(file: &File, path: &Path) -> Result<File, Fault> {
    file.try_clone().map_err(|error| Fault::file("write", path, &error))
}

fn name_of(command: &Command) -> String {
    Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

#[cfg(unix)]
#[expect(unsafe_code, reason = "the standard library knows no signals, and a crate for them would be larger than this")]
mod unix {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use super::Signal;

    fn number(signal: Signal) -> libc::c_int {
        match signal {
            Signal::Interrupt => libc::SIGINT,
            Signal::Terminate => libc::SIGTERM,
            Signal::Quit => libc::SIGQUIT,
            Signal::Kill => libc::SIGKILL,
        }
    }

    /// A group of its own, so that a Ctrl-C at the terminal ends the tests before their server; and an end that follows ours.
    pub(super) fn bind(command: &mut Command, last: Signal) {
        command.process_group(0);
        #[cfg(target_os = "linux")]
        {
            let last = number(last);
            // SAFETY: prctl is async-signal-safe and touches no memory of ours. It comes after the change of user, which would
            // undo it.
            unsafe {
                command.pre_exec(move || {
                    libc::prctl(libc::PR_SET_PDEATHSIG, last);
                    Ok(())
                });
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = last;
    }

    pub(super) fn send(child: &Child, signal: Signal) {
        let process = libc::pid_t::try_from(child.id()).expect("a process id is a pid_t");
        // SAFETY: kill touches no memory of ours. The child was not waited for, so its id is not another's.
        unsafe {
            libc::kill(process, number(signal));
        }
    }
}
