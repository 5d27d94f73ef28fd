//! `outbox __compile`: what the host starts to compile one component, so that only this process dies of a hostile one.

use std::io::{self, Write};

use clap::Args;
use outbox::wasm::run_compiler;
use rustix::event::{PollFd, PollFlags, poll};

/// How the host starts it.
pub(crate) const NAME: &str = "__compile";

/// Compile one component from standard input to standard output; the host starts this by itself
#[derive(Args, Debug)]
pub(crate) struct CompileCommand {
    /// The engine, the bytes of memory, the seconds of processor time
    #[arg(num_args = 3, required = true)]
    order: Vec<String>,
}

impl CompileCommand {
    /// Answers the host. There is no runtime, no configuration and no environment here.
    pub(crate) fn run(&self) -> io::Result<()> {
        close_what_was_inherited();
        // A host that is gone waits for nothing: its pipe says so, whichever thread of it started us.
        std::thread::spawn(|| {
            let stdout = io::stdout();
            let mut reader = [PollFd::new(&stdout, PollFlags::empty())];
            if poll(&mut reader, None).is_ok() {
                std::process::exit(1);
            }
        });
        let mut answer = io::BufWriter::new(io::stdout().lock());
        run_compiler(&self.order, io::stdin().lock(), &mut answer)?;
        answer.flush()
    }
}

/// Whoever started the host may have left files open for it.
#[cfg(target_os = "linux")]
fn close_what_was_inherited() {
    #[expect(unsafe_code, reason = "no safe wrapper closes descriptors that this program does not own")]
    // SAFETY: nothing has been opened yet, so no descriptor above the three standard ones belongs to any value of this program.
    unsafe {
        libc::close_range(3, libc::c_uint::MAX, 0);
    }
}

#[cfg(not(target_os = "linux"))]
fn close_what_was_inherited() {}
