//! `outbox wit`: the listener contract, for authors in languages without an SDK.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use crate::failure::{Exit, Failure};
use crate::output;

/// The files of the contract, as they lie in the folder that tools are pointed at; each before those that it depends on.
pub(crate) const FILES: [(&str, &str); 4] = [
    ("listener.wit", include_str!("../wit/0.1.0/listener.wit")),
    ("deps/http/http.wit", include_str!("../wit/0.1.0/deps/http/http.wit")),
    ("deps/clocks/clocks.wit", include_str!("../wit/0.1.0/deps/clocks/clocks.wit")),
    ("deps/io/io.wit", include_str!("../wit/0.1.0/deps/io/io.wit")),
];

/// Print the WIT contract between host and plugins, or write it into a folder for a bindings generator
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  outbox wit\n  outbox wit --out wit && wit-bindgen c wit --world listener")]
pub(crate) struct WitCommand {
    /// Write the contract and its dependencies into this folder, which is created if needed; files with other contents are not
    /// overwritten
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl WitCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Some(folder) = self.out else { return output::print(FILES[0].1) };
        // Looked at before anything is written: a folder is not left half changed.
        for (name, text) in FILES {
            let file = folder.join(name);
            if file.exists() && fs::read_to_string(&file).is_ok_and(|there| there != text) {
                let what = format!("{} already exists and differs; name an empty folder, or remove the file", file.display());
                return Err(Failure::new(Exit::Conflict, what));
            }
        }
        for (name, text) in FILES {
            let file = folder.join(name);
            let made = file.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&file, text));
            made.map_err(|error| Failure::new(Exit::Failed, format!("{} cannot be written", file.display())).because(error))?;
        }
        output::print(&format!("outbox:listener@0.1.0 is in {}\n", folder.display()))
    }
}
