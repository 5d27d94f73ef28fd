//! The lines of a file in which its keys stand, for faults.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::{Key, Origin};

/// The lines of a file, counted from 1.
#[derive(Debug, Default)]
pub(super) struct Lines {
    keys: BTreeMap<Key, usize>,
    /// Of the entries of lists and their fields, by name: `http.tokens[1].role`.
    entries: BTreeMap<String, usize>,
}

impl Lines {
    /// `line` gives the line of a position in the text.
    pub(super) fn of(table: &DeTable<'_>, line: &dyn Fn(usize) -> usize) -> Self {
        let mut lines = Self::default();
        lines.note_keys(&mut Vec::new(), table, line);
        lines
    }

    /// Where a key stands, as far as it is known; else the first line.
    pub(super) fn of_key(&self, key: &[String]) -> usize {
        self.keys.get(key).copied().unwrap_or(1)
    }

    /// Where an entry of a list or a field of it stands, as far as it is known; else where the list does, `origin`.
    pub(super) fn of_entry(&self, origin: &Origin, entry: &str) -> Origin {
        let Origin::File(name, line) = origin else { return origin.clone() };
        let field_or_entry = [Some(entry), entry.rfind('.').map(|end| &entry[..end])];
        let known = field_or_entry.into_iter().flatten().find_map(|entry| self.entries.get(entry).copied());
        Origin::File(name.clone(), known.unwrap_or(*line))
    }

    fn note_keys(&mut self, key: &mut Key, table: &DeTable<'_>, line: &dyn Fn(usize) -> usize) {
        for (part, value) in table {
            key.push(part.get_ref().clone().into_owned());
            self.keys.insert(key.clone(), line(part.span().start));
            match value.get_ref() {
                DeValue::Table(table) => self.note_keys(key, table, line),
                list => self.note_entries(&key.join("."), list, line),
            }
            key.pop();
        }
    }

    fn note_entries(&mut self, name: &str, value: &DeValue<'_>, line: &dyn Fn(usize) -> usize) {
        match value {
            DeValue::Table(fields) => {
                for (field, value) in fields {
                    let name = format!("{name}.{}", field.get_ref());
                    self.entries.insert(name.clone(), line(field.span().start));
                    self.note_entries(&name, value.get_ref(), line);
                }
            }
            DeValue::Array(entries) => {
                for (number, entry) in entries.iter().enumerate() {
                    let name = format!("{name}[{number}]");
                    self.entries.insert(name.clone(), line(entry.span().start));
                    self.note_entries(&name, entry.get_ref(), line);
                }
            }
            _ => {}
        }
    }
}
