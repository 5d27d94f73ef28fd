//! The files of a new project, beside the SDK.

use super::language::Language;
use super::sdk;
use super::toolchain;

/// What is put into the files.
#[derive(Debug)]
pub(super) struct Values<'a> {
    pub(super) name: &'a str,
    pub(super) aggregate_type: &'a str,
    pub(super) event_type: &'a str,
}

macro_rules! template {
    ($file:literal) => {
        include_str!(concat!("templates/", $file))
    };
}

/// All files of a project, with paths relative to its folder.
pub(super) fn files(language: Language, values: &Values<'_>) -> Vec<(String, String)> {
    let cases = if language == Language::C { template!("c/cases.toml") } else { template!("common/cases.toml") };
    let mut files = vec![
        ("README.md".to_owned(), readme(language, values.name)),
        (format!("{}.toml", values.name), manifest(language)),
        ("fixtures/event.json".to_owned(), template!("common/event.json").to_owned()),
        ("cases/messages.toml".to_owned(), cases.to_owned()),
        (".gitignore".to_owned(), format!("*.wasm\n{}", ignored(language))),
    ];
    let own = own(language).iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
    files.extend(own);
    for (_, text) in &mut files {
        *text = filled(text, values);
    }
    // Not filled in: nothing in it is ours to change.
    files.extend(sdk::files(language).into_iter().map(|(path, text)| (format!("{}/{path}", sdk::FOLDER), text)));
    files
}

fn filled(text: &str, Values { name, aggregate_type, event_type }: &Values<'_>) -> String {
    text.replace("{{name}}", name).replace("{{aggregate_type}}", aggregate_type).replace("{{event_type}}", event_type)
}

fn manifest(language: Language) -> String {
    let limits = match language {
        Language::Js | Language::Ts => template!("js/limits.toml"),
        Language::Python | Language::Go => template!("common/limits.toml"),
        Language::Rust | Language::C => "",
    };
    format!("{}{limits}", template!("common/manifest.toml"))
}

fn readme(language: Language, name: &str) -> String {
    template!("common/README.md")
        .replace("{{commands}}", lined_up(&steps(language, name), "").trim_end())
        .replace("{{language}}", language.name())
        .replace("{{source}}", source(language))
        .replace("{{test}}", unit_tests(language))
}

/// From the first command in the project's folder to the last save, each with a note.
pub(super) fn steps(language: Language, name: &str) -> Vec<(String, &'static str)> {
    vec![
        (toolchain::setup(language).to_owned(), "installs the toolchain, once"),
        ("outbox plugin build".to_owned(), "makes the component"),
        (format!("outbox plugin test {name}.wasm --cases cases"), "the rules of every plugin, and your own cases"),
        ("outbox plugin dev".to_owned(), "rebuilds at every save, and shows what happens to fixtures/event.json"),
    ]
}

/// Commands as people read them: the notes stand below each other, and a command that is longer than that has its own above it.
pub(super) fn lined_up(commands: &[(String, &str)], indent: &str) -> String {
    const LONGEST: usize = 50;
    let width = commands.iter().map(|(command, _)| command.len()).filter(|length| *length <= LONGEST).max().unwrap_or(0);
    let line = |(command, note): &(String, &str)| match (*note, command.len()) {
        ("", _) => format!("{indent}{command}\n"),
        (note, ..=LONGEST) => format!("{indent}{command:width$}  # {note}\n"),
        (note, _) => format!("{indent}# {note}:\n{indent}{command}\n"),
    };
    commands.iter().map(line).collect()
}

fn own(language: Language) -> &'static [(&'static str, &'static str)] {
    match language {
        Language::Rust => &[("Cargo.toml", template!("rust/package.toml")), ("src/lib.rs", template!("rust/lib.rs"))],
        Language::Js => &[
            ("package.json", template!("js/package.json")),
            (".npmrc", template!("js/npmrc")),
            ("src/listener.js", template!("js/listener.js")),
            ("test/listener.test.js", template!("js/listener.test.js")),
        ],
        Language::Ts => &[
            ("package.json", template!("ts/package.json")),
            (".npmrc", template!("js/npmrc")),
            ("tsconfig.json", template!("ts/tsconfig.json")),
            ("src/listener.ts", template!("ts/listener.ts")),
            ("test/listener.test.ts", template!("ts/listener.test.ts")),
        ],
        Language::Python => &[
            ("pyproject.toml", template!("python/pyproject.toml")),
            ("listener.py", template!("python/listener.py")),
            ("test_listener.py", template!("python/test_listener.py")),
        ],
        Language::Go => &[
            ("go.mod", template!("go/go.mod")),
            ("main.go", template!("go/main.go")),
            ("main_test.go", template!("go/main_test.go")),
        ],
        Language::C => &[("plugin.c", template!("c/plugin.c")), ("plugin_test.c", template!("c/plugin_test.c"))],
    }
}

/// Where the author begins.
pub(super) fn source(language: Language) -> &'static str {
    match language {
        Language::Rust => "src/lib.rs",
        Language::Js => "src/listener.js",
        Language::Ts => "src/listener.ts",
        Language::Python => "listener.py",
        Language::Go => "main.go",
        Language::C => "plugin.c",
    }
}

fn unit_tests(language: Language) -> &'static str {
    match language {
        Language::Rust => "cargo test",
        Language::Js | Language::Ts => "npm test",
        Language::Python => ".venv/bin/python -m unittest",
        Language::Go => "PATH=$PWD/.venv/bin:$PATH go test ./...",
        Language::C => {
            ".venv/bin/python -m ziglang cc -std=c11 -g -Ioutbox-sdk plugin.c plugin_test.c outbox-sdk/outbox.c \\\n    \
             outbox-sdk/outbox_test.c -o plugin_test && ./plugin_test"
        }
    }
}

/// What tools leave in a project.
fn ignored(language: Language) -> &'static str {
    match language {
        Language::Rust => "/target/\n",
        Language::Js => "node_modules/\n",
        Language::Ts => "node_modules/\n/.test/\n",
        Language::Python => "/.venv/\n__pycache__/\n",
        Language::Go => "/.venv/\n/build/\n",
        Language::C => "/.venv/\n/build/\n/plugin_test\n",
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_project_is_filled_in_and_has_what_all_have() {
        let values = Values { name: "greeter", aggregate_type: "User", event_type: "UserRegistered" };
        for language in Language::value_variants() {
            let files = files(*language, &values);
            let has = |path: &str| files.iter().any(|(file, _)| file == path);
            for path in ["README.md", "greeter.toml", "fixtures/event.json", "cases/messages.toml", source(*language)] {
                assert!(has(path), "{language:?} has no {path}");
            }
            let own = files.iter().filter(|(path, _)| !path.starts_with(sdk::FOLDER));
            for (path, text) in own {
                assert!(!text.contains("{{"), "{language:?}: {path} is not filled in");
            }
            let event: serde_json::Value =
                serde_json::from_str(&files.iter().find(|(path, _)| path == "fixtures/event.json").unwrap().1).unwrap();
            assert_eq!(event["event_type"], "UserRegistered");
        }
    }

    #[test]
    fn notes_stand_below_each_other_whatever_the_name() {
        for name in ["a", "greeter", "a-name-that-is-longer", "a-name-that-is-longer-than-most-others-are-and-goes-on"] {
            let text = lined_up(&steps(Language::Rust, name), "  ");
            let beside = text.lines().filter(|line| !line.starts_with("  #"));
            let columns: std::collections::BTreeSet<usize> = beside.filter_map(|line| line.find("  # ")).collect();
            assert_eq!(columns.len(), 1, "{text}");
        }
    }

    #[test]
    fn no_two_files_of_a_project_have_one_name() {
        let values = Values { name: "greeter", aggregate_type: "A", event_type: "B" };
        for language in Language::value_variants() {
            let mut paths: Vec<_> = files(*language, &values).into_iter().map(|(path, _)| path).collect();
            let count = paths.len();
            paths.sort();
            paths.dedup();
            assert_eq!(paths.len(), count, "{language:?}");
        }
    }
}
