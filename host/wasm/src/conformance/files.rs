//! Files of cases: TOML or JSON, one or a directory of them.

use std::path::{Path, PathBuf};

use outbox_event::wording::{json_fault, toml_fault};

use super::case::{Case, WrittenCases};

/// Why cases could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The file or directory cannot be read.
    #[error("the cases in {file} cannot be read")]
    Read {
        /// Which.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is neither TOML nor JSON, or not of the shape of cases.
    #[error("{file} holds no cases: {reason}")]
    Syntax {
        /// The file.
        file: PathBuf,
        /// What is wrong, where, and what is allowed.
        reason: String,
    },
    /// There is no file of cases in the directory.
    #[error("{dir} holds no cases: put files like orders.toml there, with [[case]] in them")]
    Empty {
        /// The directory.
        dir: PathBuf,
    },
}

/// Reads the cases of a file, or of all `.toml` and `.json` files directly in a directory, in the order of their names. Payloads
/// that cases refer to by `payload_file` are looked for from the file's own folder; they belong into a folder below. Blocks.
///
/// # Errors
/// When something cannot be read, or is no case; nothing is left out silently.
pub fn read_cases(path: &Path) -> Result<Vec<Case>, CaseError> {
    let unread = |source| CaseError::Read { file: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(unread)?.is_dir() {
        return read_file(path);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unread)? {
        let file = entry.map_err(unread)?.path();
        let is_cases = file.extension().is_some_and(|extension| extension == "toml" || extension == "json");
        if is_cases && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(CaseError::Empty { dir: path.to_owned() });
    }
    files.iter().map(|file| read_file(file)).collect::<Result<Vec<_>, _>>().map(|cases| cases.concat())
}

fn read_file(file: &Path) -> Result<Vec<Case>, CaseError> {
    let text = std::fs::read_to_string(file).map_err(|source| CaseError::Read { file: file.to_owned(), source })?;
    let wrong = |reason: String| CaseError::Syntax { file: file.to_owned(), reason };
    let written: WrittenCases = if file.extension().is_some_and(|extension| extension == "json") {
        serde_json::from_str(&text).map_err(|error| wrong(json_fault::<WrittenCases>(text.as_bytes(), &error)))?
    } else {
        toml::from_str(&text).map_err(|error| wrong(toml_fault::<WrittenCases>(&text, &error)))?
    };
    let dir = file.parent().unwrap_or(Path::new("."));
    let mut cases = Case::written(written, dir).map_err(wrong)?;
    for case in &mut cases {
        case.file = Some(file.to_owned());
    }
    Ok(cases)
}
