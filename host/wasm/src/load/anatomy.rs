//! What a component file is made of, read from its bytes: nothing is compiled and nothing runs.

use std::path::Path;

use outbox_event::text::keepable;
use serde::Serialize;
use wasmparser::{Encoding, Parser, Payload};

use super::contract;
use super::damaged::damaged;
use super::scan::scan;
use crate::directory::file::Bytes;
use crate::directory::open_dir::{OpenDir, parent};
use crate::error::LoadError;

/// How many imports, exports and memories are listed; a hostile file has more.
const MAX_LISTED: usize = 256;

/// What a component file is made of.
#[derive(Clone, Debug, Serialize)]
pub struct Anatomy {
    /// SHA-256 in hex.
    pub digest: String,
    /// The file's size in bytes.
    pub size_bytes: u64,
    /// Which contract it was built for, and whether this host speaks it.
    pub world: String,
    /// What it imports, sorted.
    pub imports: Vec<String>,
    /// What it exports, sorted.
    pub exports: Vec<String>,
    /// Every reason why this host would refuse it for its imports and exports; empty when they fit.
    pub differences: Vec<String>,
    /// The core modules in it, in their order.
    pub modules: Vec<CoreModule>,
    /// The kinds of its own sections with the bytes of each, the largest first.
    pub sections: Vec<(String, u64)>,
}

/// A core module of a component.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CoreModule {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its functions, the imported ones not counted.
    pub functions: u64,
    /// Its memories, in pages of 64 KiB at first and at most; `None` for no bound of its own.
    pub memories: Vec<(u64, Option<u64>)>,
    /// Its tables, in elements at first and at most.
    pub tables: Vec<(u64, Option<u64>)>,
}

/// Takes a component file apart.
///
/// # Errors
/// When it cannot be read, is damaged, or is no component.
pub fn anatomy(file: &Path) -> Result<Anatomy, LoadError> {
    let bytes = Bytes::read(&OpenDir::open(parent(file), None)?, file)?;
    // Damaged, or larger than anything that is loaded: told as a load would tell it.
    scan(&bytes)?;
    let damaged = |error: wasmparser::BinaryReaderError| damaged(&bytes, &error);
    let mut found = Found::default();
    for payload in Parser::new(0).parse_all(&bytes.bytes) {
        found.take(&payload.map_err(damaged)?).map_err(damaged)?;
    }
    let Found { mut imports, mut exports, modules, mut sections, .. } = found;
    for names in [&mut imports, &mut exports] {
        names.sort();
    }
    sections.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    Ok(Anatomy {
        digest: bytes.digest.clone(),
        size_bytes: bytes.bytes.len() as u64,
        world: contract::world(&imports, &exports),
        differences: contract::differences_of(&imports, &exports),
        imports,
        exports,
        modules,
        sections,
    })
}

/// The most elements that any table in a component may ever have; `None` when one has no bound, or the file is damaged.
pub(crate) fn most_table_elements(bytes: &[u8]) -> Option<u64> {
    let mut most = 0;
    for payload in Parser::new(0).parse_all(bytes) {
        if let Payload::TableSection(tables) = payload.ok()? {
            for table in tables {
                most = most.max(table.ok()?.ty.maximum?);
            }
        }
    }
    Some(most)
}

#[derive(Default)]
struct Found {
    /// What is being read, innermost last; the component itself is the first.
    inside: Vec<Encoding>,
    imports: Vec<String>,
    exports: Vec<String>,
    modules: Vec<CoreModule>,
    sections: Vec<(String, u64)>,
}

impl Found {
    fn take(&mut self, payload: &Payload<'_>) -> wasmparser::Result<()> {
        let is_outermost = self.inside.len() == 1;
        match payload {
            Payload::Version { encoding, .. } => self.inside.push(*encoding),
            Payload::End(_) => {
                self.inside.pop();
            }
            Payload::ModuleSection { unchecked_range, .. } => {
                let size_bytes = (unchecked_range.end - unchecked_range.start) as u64;
                self.modules.push(CoreModule { size_bytes, ..CoreModule::default() });
                self.section("core modules", is_outermost, size_bytes);
            }
            Payload::ComponentSection { unchecked_range, .. } => {
                self.section("components", is_outermost, (unchecked_range.end - unchecked_range.start) as u64);
            }
            Payload::CustomSection(custom) if is_outermost => {
                let range = custom.range();
                self.section(&format!("custom `{}`", keepable(custom.name(), 64)), true, (range.end - range.start) as u64);
            }
            Payload::ComponentImportSection(section) if is_outermost => {
                for import in section.clone() {
                    listed(&mut self.imports, import?.name.name);
                }
            }
            Payload::ComponentExportSection(section) if is_outermost => {
                for export in section.clone() {
                    listed(&mut self.exports, export?.name.name);
                }
            }
            Payload::FunctionSection(section) => {
                if let Some(module) = self.module() {
                    module.functions += u64::from(section.count());
                }
            }
            Payload::MemorySection(section) => {
                for memory in section.clone() {
                    let memory = memory?;
                    if let Some(module) = self.module().filter(|module| module.memories.len() < MAX_LISTED) {
                        module.memories.push((memory.initial, memory.maximum));
                    }
                }
            }
            Payload::TableSection(section) => {
                for table in section.clone() {
                    let table = table?.ty;
                    if let Some(module) = self.module().filter(|module| module.tables.len() < MAX_LISTED) {
                        module.tables.push((table.initial, table.maximum));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn module(&mut self) -> Option<&mut CoreModule> {
        self.modules.last_mut()
    }

    fn section(&mut self, kind: &str, is_outermost: bool, bytes: u64) {
        if !is_outermost {
            return;
        }
        let has_room = self.sections.len() < MAX_LISTED;
        match self.sections.iter_mut().find(|(name, _)| name == kind) {
            Some((_, total)) => *total += bytes,
            None if has_room => self.sections.push((kind.to_owned(), bytes)),
            None => {}
        }
    }
}

fn listed(names: &mut Vec<String>, name: &str) {
    if names.len() < MAX_LISTED {
        names.push(keepable(name, 256));
    }
}
