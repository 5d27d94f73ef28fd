//! The whole terminal for a while: what stood there before comes back.

use std::io::{IsTerminal, Read, Write};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use crate::failure::Failure;

/// Another screen, without a cursor. Source: xterm's control sequences, which all of today's terminals know.
const OPEN: &str = "\u{1b}[?1049h\u{1b}[?25l";
const CLOSE: &str = "\u{1b}[?25h\u{1b}[?1049l";
/// To the upper left corner; the rest of a line; the rest of the screen.
const HOME: &str = "\u{1b}[H";
const REST_OF_LINE: &str = "\u{1b}[K";
const REST_OF_SCREEN: &str = "\u{1b}[J";
/// What a terminal has for a key that is switched off.
const NO_KEY: u8 = 0;

/// The screen; the terminal is as it was once this is dropped, also by an error or a panic.
pub(super) struct Screen {
    keys: mpsc::UnboundedReceiver<u8>,
    /// What standard input was set to; `None` when it is no terminal, and there are no keys.
    before: Option<Termios>,
}

impl Screen {
    pub(super) fn open() -> Result<Self, Failure> {
        let (sender, keys) = mpsc::unbounded_channel();
        let stdin = std::io::stdin();
        let before = if stdin.is_terminal() { tcgetattr(&stdin).ok() } else { None };
        if let Some(before) = &before {
            let mut keyed = before.clone();
            // Each key at once and without an echo. Ctrl-C stays a signal; Ctrl-Z would leave a shell on this screen.
            keyed.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            keyed.special_codes[SpecialCodeIndex::VSUSP] = NO_KEY;
            tcsetattr(&stdin, OptionalActions::Now, &keyed).map_err(std::io::Error::from)?;
            // A read cannot be cancelled: the thread ends with the program, or when nobody listens any more.
            std::thread::spawn(move || {
                for key in std::io::stdin().lock().bytes().map_while(Result::ok) {
                    if sender.send(key).is_err() {
                        return;
                    }
                }
            });
        }
        let screen = Self { keys, before };
        write(OPEN)?;
        Ok(screen)
    }

    /// Replaces what is shown. Every line is written over the old one, so that nothing flickers.
    pub(super) fn show(&mut self, lines: &[String]) -> Result<(), Failure> {
        let text = lines.join(&format!("{REST_OF_LINE}\r\n"));
        Ok(write(&format!("{HOME}{text}{REST_OF_LINE}{REST_OF_SCREEN}"))?)
    }

    /// Waits for `q`.
    pub(super) async fn quit(&mut self) {
        loop {
            match self.keys.recv().await {
                Some(b'q' | b'Q') => return,
                Some(_) => {}
                // There are no keys, or no more of them.
                None => std::future::pending().await,
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that went away needs nothing any more.
        let _ = write(CLOSE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

fn write(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
