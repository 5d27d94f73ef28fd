//! Files of the plugins directory that belong to no component. A manifest whose name is mistyped grants nothing, sets nothing
//! and pins nothing, and the plugin serves without it.

use std::collections::BTreeSet;
use std::io;

use outbox_event::text::escape;
use outbox_event::wording::near;

use super::open_dir::OpenDir;
use super::plugin_name;

/// What lies beside components now and then, and is no manifest of one.
const OTHERS: [&str; 3] = ["outbox.toml", "Cargo.toml", "pyproject.toml"];

/// A file that belongs to no component.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stray {
    file: String,
    /// A sentence that says what is wrong with it.
    pub(crate) what: String,
}

/// All of them, sorted by name. What is hidden, half-written or neither a manifest nor a component by its name is nobody's
/// business. Blocks.
pub(crate) fn strays(open_dir: &OpenDir) -> io::Result<Vec<Stray>> {
    let mut files: Vec<String> = open_dir.names()?.into_iter().filter_map(|name| name.into_string().ok()).collect();
    files.sort_unstable();
    let components: BTreeSet<String> = files.iter().filter_map(|file| plugin_name(file.as_ref())).collect();
    let bare = components.iter().filter(|name| files.binary_search(&format!("{name}.toml")).is_err());
    let bare: BTreeSet<&str> = bare.map(String::as_str).collect();
    let is_folder = |file: &String| open_dir.look(file.as_ref()).is_some_and(|metadata| metadata.is_dir());
    let stray = |file: &String| {
        let what = wrong(file, &components, &bare)?;
        (!is_folder(file)).then(|| Stray { file: file.clone(), what })
    };
    Ok(files.iter().filter_map(stray).collect())
}

/// What is wrong with a file of this name; `None` when nothing is. `bare` are the components without a manifest.
fn wrong(file: &str, components: &BTreeSet<String>, bare: &BTreeSet<&str>) -> Option<String> {
    let (stem, extension) = file.rsplit_once('.').filter(|(stem, _)| !stem.is_empty() && !stem.starts_with('.'))?;
    let shown = escape(file);
    match extension {
        "toml" if components.contains(stem) || OTHERS.contains(&file) => None,
        "toml" => {
            let meant = meant(stem, components, bare);
            Some(match meant {
                Some(name) => format!("{shown} belongs to no component; is it meant for {}.wasm?", escape(name)),
                None => format!("{shown} belongs to no component: there is no {}.wasm", escape(stem)),
            })
        }
        "wasm" => None,
        _ => {
            let lower = extension.to_ascii_lowercase();
            let right = format!("{}.{lower}", escape(stem));
            match lower.as_str() {
                "wasm" => Some(format!("{shown} is not loaded; rename it to {right}")),
                "toml" => Some(format!("{shown} is not read; rename it to {right}")),
                _ => None,
            }
        }
    }
}

/// The component that was probably meant: one with a similar name, if possible one without a manifest. A manifest whose name belongs to
/// no component, `manifest.toml`, may be meant for the only one without. No other name is taken for that: it would give one plugin the
/// rights of another.
fn meant<'a>(stem: &str, components: &'a BTreeSet<String>, bare: &BTreeSet<&'a str>) -> Option<&'a str> {
    let wanted = stem.to_lowercase();
    let begins = |component: &&str| {
        let name = component.to_lowercase();
        name.starts_with(&wanted) || wanted.starts_with(&name)
    };
    let names = || components.iter().map(String::as_str);
    let near: Vec<&str> = near(stem, names()).into_iter().chain(names().filter(begins)).collect();
    let only = || bare.first().copied().filter(|_| bare.len() == 1 && stem == "manifest");
    near.iter().find(|name| bare.contains(*name)).or(near.first()).copied().or_else(only)
}

/// Which of them were told of.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Those of the last look; `None` before the first.
    seen: Option<BTreeSet<String>>,
    told: BTreeSet<String>,
}

impl Told {
    /// Those to tell of now: each once, while it lies there. What came after the first look is told of when the next one still
    /// finds it: a manifest is often copied before its component.
    pub(crate) fn due<'a>(&mut self, strays: &'a [Stray]) -> Vec<&'a Stray> {
        let now: BTreeSet<String> = strays.iter().map(|stray| stray.file.clone()).collect();
        self.told.retain(|file| now.contains(file));
        let seen = self.seen.replace(now);
        let stayed = |stray: &&Stray| seen.as_ref().is_none_or(|seen| seen.contains(&stray.file));
        strays.iter().filter(stayed).filter(|stray| self.told.insert(stray.file.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn told(files: &[&str]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            match file.strip_suffix('/') {
                Some(folder) => fs::create_dir(dir.path().join(folder)).unwrap(),
                None => fs::write(dir.path().join(file), "x").unwrap(),
            }
        }
        let strays = strays(&OpenDir::open(dir.path(), None).unwrap()).unwrap();
        strays.into_iter().map(|stray| stray.what).collect()
    }

    #[test]
    fn a_manifest_of_a_mistyped_name_is_told_with_the_component_that_was_meant() {
        for (files, what) in [
            (
                &["greeter-go.wasm", "mailer.wasm", "greeter_go.toml"][..],
                "greeter_go.toml belongs to no component; is it meant for greeter-go.wasm?",
            ),
            (
                &["greeter-c.wasm", "mailer.wasm", "greter-c.toml"],
                "greter-c.toml belongs to no component; is it meant for greeter-c.wasm?",
            ),
            (
                &["mailer.wasm", "other.wasm", "mailer.wasm.toml"],
                "mailer.wasm.toml belongs to no component; is it meant for mailer.wasm?",
            ),
            (
                &["greeter-c.wasm", "greeter-d.wasm", "greeter-d.toml", "greeter-e.toml"],
                "greeter-e.toml belongs to no component; is it meant for greeter-c.wasm?",
            ),
            (
                &["greeter-c.wasm", "mailer.wasm", "mailer.toml", "manifest.toml"],
                "manifest.toml belongs to no component; is it meant for greeter-c.wasm?",
            ),
            (
                &["greeter-c.wasm", "mailer.wasm", "manifest.toml"],
                "manifest.toml belongs to no component: there is no manifest.wasm",
            ),
            (&["noop.wasm", "greeter.toml"], "greeter.toml belongs to no component: there is no greeter.wasm"),
            (&["greeter-c.WASM"], "greeter-c.WASM is not loaded; rename it to greeter-c.wasm"),
            (&["mailer.wasm", "mailer.Toml"], "mailer.Toml is not read; rename it to mailer.toml"),
        ] {
            assert_eq!(told(files), [what]);
        }
    }

    #[test]
    fn what_belongs_to_a_component_or_is_no_manifest_is_not_told() {
        let files = [
            "mailer.wasm",
            "mailer.toml",
            "bare.wasm",
            "plugins.lock",
            ".hidden.toml",
            ".mailer.wasm.tmp",
            "new.toml.part",
            "new.toml.tmp",
            "old.toml~",
            "README.md",
            "outbox.toml",
            "folder.toml/",
            "folder.WASM/",
        ];

        assert_eq!(told(&files), [] as [&str; 0]);
    }

    #[test]
    fn each_is_told_once_while_it_lies_there_and_a_manifest_has_time_until_its_component_comes() {
        let stray = |file: &str| Stray { file: file.to_owned(), what: String::new() };
        let (old, new) = (stray("old.toml"), stray("new.toml"));
        let mut told = Told::default();

        assert_eq!(told.due(std::slice::from_ref(&old)), [&old], "it was there before the host");
        assert_eq!(told.due(&[old.clone(), new.clone()]), [] as [&Stray; 0], "its component may be on its way");
        assert_eq!(told.due(&[old.clone(), new.clone()]), [&new]);
        assert_eq!(told.due(&[old.clone(), new.clone()]), [] as [&Stray; 0]);
        assert_eq!(told.due(&[]), [] as [&Stray; 0]);
        assert_eq!(told.due(std::slice::from_ref(&old)), [] as [&Stray; 0]);
        assert_eq!(told.due(std::slice::from_ref(&old)), [&old], "it went and came again");
    }
}
