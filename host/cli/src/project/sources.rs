//! Which files of a project are its sources, and when one of them has changed.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use crate::failure::{Exit, Failure};

/// How long nothing must change before it is built: editors write a file in several steps.
const QUIET: Duration = Duration::from_millis(150);

/// What authors write, in any of the languages, and the data that they put beside it. Logs and other output are not among it: a
/// build at each of their lines would never end.
const WRITTEN: [&str; 32] = [
    "rs", "js", "mjs", "cjs", "jsx", "ts", "mts", "cts", "tsx", "py", "pyi", "go", "mod", "sum", "s", "c", "h", "wit", "toml",
    "json", "jsonl", "yaml", "yml", "xml", "csv", "sql", "html", "css", "graphql", "proto", "tmpl", "hbs",
];
/// What tools leave, and write again at every build.
const OF_TOOLS: [&str; 4] = ["target", "node_modules", "__pycache__", "Cargo.lock"];

/// The sources of a project, watched.
pub(super) struct Sources {
    folder: PathBuf,
    /// The events to deliver, whatever they are called.
    events: PathBuf,
    saved: mpsc::Receiver<()>,
    /// What they were when it was last built.
    built: u64,
    _watcher: RecommendedWatcher,
}

impl Sources {
    /// Begins to watch.
    ///
    /// # Errors
    /// When the folder cannot be watched.
    pub(super) fn watch(folder: &Path, events: &Path) -> Result<Self, Failure> {
        let cannot =
            |error: notify::Error| Failure::new(Exit::Failed, format!("{} cannot be watched", folder.display())).because(error);
        let (sender, saved) = mpsc::channel(1);
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (root, events) = (absolute(folder), absolute(events));
        let (below, also) = (root.clone(), events.clone());
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let Ok(event) = event else { return };
            let counts = |path: &PathBuf| *path == also || is_source(path.strip_prefix(&below).unwrap_or(path));
            if !event.kind.is_access() && event.paths.iter().any(counts) {
                // Full means that it is known already.
                let _ = sender.try_send(());
            }
        })
        .map_err(cannot)?;
        watcher.watch(&root, RecursiveMode::Recursive).map_err(cannot)?;
        Ok(Self { folder: root, events, saved, built: 0, _watcher: watcher })
    }

    /// Notes what is about to be built: what is saved meanwhile is built again.
    pub(super) fn note(&mut self) {
        self.built = self.contents();
    }

    /// Waits until what was saved is something else than what was built, and nothing follows it for a moment.
    pub(super) async fn changed(&mut self) {
        while self.saved.recv().await.is_some() {
            while tokio::time::timeout(QUIET, self.saved.recv()).await.is_ok_and(|change| change.is_some()) {}
            if self.contents() != self.built {
                return;
            }
        }
    }

    fn contents(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        hash(&self.folder, Path::new(""), &mut hasher);
        fs::read(&self.events).unwrap_or_default().hash(&mut hasher);
        hasher.finish()
    }
}

/// Adds every source below a folder of the project.
fn hash(root: &Path, folder: &Path, hasher: &mut DefaultHasher) {
    let mut entries: Vec<_> = fs::read_dir(root.join(folder)).into_iter().flatten().flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = folder.join(entry.file_name());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if !is_of_tools(&path) {
                hash(root, &path, hasher);
            }
        } else if is_source(&path) {
            path.hash(hasher);
            fs::read(entry.path()).unwrap_or_default().hash(hasher);
        }
    }
}

fn is_source(path: &Path) -> bool {
    !is_of_tools(path) && path.extension().is_some_and(|found| WRITTEN.iter().any(|extension| found == *extension))
}

fn is_of_tools(path: &Path) -> bool {
    path.components().any(|part| {
        let part = part.as_os_str().to_string_lossy();
        part.starts_with('.') || OF_TOOLS.contains(&part.as_ref())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tools_leave_and_what_is_no_source_starts_no_build() {
        for path in ["src/lib.rs", "greeter.toml", "fixtures/event.json", "outbox-sdk/src/lib.rs", "go.mod"] {
            assert!(is_source(Path::new(path)), "{path}");
        }
        for path in [
            "target/release/x.rs",
            "node_modules/a/b.js",
            ".git/index",
            "greeter.wasm",
            ".17.wasm",
            "src/.lib.rs.swp",
            "dev.log",
            "dev.out",
            "notes.txt",
            "src/lib.rs~",
            "4913",
        ] {
            assert!(!is_source(Path::new(path)), "{path}");
        }
    }

    #[tokio::test]
    async fn only_other_contents_are_a_change() {
        let project = tempfile::tempdir().unwrap();
        let file = |name: &str| project.path().join(name);
        fs::create_dir(file("src")).unwrap();
        fs::write(file("src/lib.rs"), "one").unwrap();
        fs::write(file("event.txt"), "{}").unwrap();
        let mut sources = Sources::watch(project.path(), &file("event.txt")).unwrap();
        sources.note();
        let is_changed = |sources: &Sources| sources.contents() != sources.built;

        for same in ["src/lib.rs", "dev.out", "greeter.wasm"] {
            fs::write(file(same), "one").unwrap();
            assert!(!is_changed(&sources), "{same}");
        }
        for (name, text) in [("src/lib.rs", "two"), ("src/new.rs", ""), ("event.txt", "{ }")] {
            fs::write(file(name), text).unwrap();
            sources.changed().await;
            assert!(is_changed(&sources), "{name}");
            sources.note();
        }
        fs::remove_file(file("src/new.rs")).unwrap();
        sources.changed().await;
    }
}
