//! Rebuilds plugins whose sources change, while the host runs.
//!
//! Polls twice a second: a few dozen files, and no dependency that would make xtask slow to build.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::dev;
use crate::fault::Fault;
use crate::plugins;
use crate::workspace::Workspace;

const REST: Duration = Duration::from_millis(500);

/// What every plugin is made of; a change rebuilds them all.
const SHARED: [&str; 3] = ["sdk/rust", "wit", "Cargo.toml"];

/// What the sources looked like when they were last built.
pub(crate) struct Watch {
    workspace: Workspace,
    /// Where the host finds its plugins.
    served: PathBuf,
    shared: u64,
    /// By the plugin's name.
    plugins: HashMap<String, u64>,
    /// The last thing that went wrong with the watch itself, so that it is said once.
    said: String,
}

/// A watch that goes on, on a thread of its own.
pub(crate) struct Watching {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Watch {
    /// Takes the sources as they are now for built.
    pub(crate) fn new(workspace: Workspace, served: PathBuf) -> Self {
        let mut watch = Self { workspace, served, shared: 0, plugins: HashMap::new(), said: String::new() };
        watch.changed().ok(); // what cannot be read now will be told by the build
        watch
    }

    /// Looks again and again, until it is stopped.
    pub(crate) fn start(mut self) -> Watching {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(REST) == Err(RecvTimeoutError::Timeout) {
                let said = self.turn().err().map(|fault| fault.to_string()).unwrap_or_default();
                if !said.is_empty() && said != self.said {
                    eprintln!("xtask: {said}");
                }
                self.said = said;
            }
        });
        Watching { stop, thread }
    }

    /// Builds what changed since the last turn and puts it where the host looks.
    fn turn(&mut self) -> Result<(), Fault> {
        for plugin in self.changed()? {
            eprintln!("xtask: {} changed, building it", plugin.name);
            match plugins::build(&self.workspace, std::slice::from_ref(&plugin)) {
                Ok(()) => {
                    plugins::install(&self.workspace, &plugin, &self.served)?;
                }
                Err(fault) => eprintln!("xtask: {fault}; the {} that was built before goes on serving", plugin.name),
            }
        }
        Ok(())
    }

    /// The plugins whose sources are not what they were, which is then forgotten: a build that fails is not repeated.
    fn changed(&mut self) -> Result<Vec<plugins::Plugin>, Fault> {
        let shared = look(SHARED.iter().map(|path| self.workspace.root.join(path)));
        let all = shared != std::mem::replace(&mut self.shared, shared);

        let mut changed = dev::shown(&self.workspace)?;
        changed.retain(|plugin| {
            let now = look([plugin.folder.clone()]);
            self.plugins.insert(plugin.name.clone(), now) != Some(now) || all
        });
        Ok(changed)
    }
}

impl Watching {
    /// Stops looking, after the build that may be going on.
    pub(crate) fn stop(self) {
        drop(self.stop);
        self.thread.join().ok(); // a watch that panicked has said so
    }
}

/// A number that changes when a file under these paths is written, made or removed.
fn look(paths: impl IntoIterator<Item = PathBuf>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in paths {
        look_into(&path, &mut hasher);
    }
    hasher.finish()
}

/// A file that vanishes while we look is a change that the next look sees.
fn look_into(path: &Path, hasher: &mut DefaultHasher) {
    let Ok(metadata) = fs::symlink_metadata(path) else { return };
    if metadata.is_dir() {
        let Ok(entries) = fs::read_dir(path) else { return };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| is_source(path)).collect();
        paths.sort(); // a directory has no order of its own
        for path in paths {
            look_into(&path, hasher);
        }
    } else {
        (path, metadata.len(), metadata.modified().ok()).hash(hasher);
    }
}

/// Not what editors and tools leave beside the sources.
fn is_source(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    !name.starts_with('.') && !name.ends_with('~') && name != "target" && name != "4913" // vim tries a folder with this name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_written_made_or_removed_changes_the_look() {
        let folder = std::env::temp_dir().join(format!("outbox-xtask-watch-{}", std::process::id()));
        fs::create_dir_all(folder.join("src")).unwrap();
        let now = || look([folder.clone()]);

        let empty = now();
        fs::write(folder.join("src/lib.rs"), "one").unwrap();
        let one = now();
        fs::write(folder.join("src/lib.rs"), "three").unwrap();
        let three = now();
        fs::write(folder.join("src/.lib.rs.swp"), "not a source").unwrap();
        let swap_file = now();
        fs::remove_file(folder.join("src/lib.rs")).unwrap();
        let removed = now();
        fs::remove_dir_all(&folder).unwrap();

        assert_ne!(empty, one);
        assert_ne!(one, three);
        assert_eq!(three, swap_file);
        assert_eq!(removed, empty);
    }
}
