//! Tries whether the pool gives a slot back clean: one guest dirties its memory and its table, the next one looks.
//!
//! Cleaning with the kernel's help trusts what the kernel says of its pages, and kernels differ. What a kernel does only now
//! and then, such as moving a page just while it is looked at, no trial can find; `machine.rs` rules out what is known of it.

use std::collections::HashSet;

use wasmtime::{Engine, Instance, Memory, Module, Ref, Store, Table};

/// `(module (memory (export "m") 192) (table (export "t") 20000 funcref) (func (export "f")) (data (i32.const 65536)
/// "outbox"))`
const GUEST: &[u8] = b"\0asm\x01\0\0\0\
    \x01\x04\x01\x60\0\0\
    \x03\x02\x01\0\
    \x04\x06\x01\x70\0\xa0\x9c\x01\
    \x05\x04\x01\0\xc0\x01\
    \x07\x0d\x03\x01m\x02\0\x01t\x01\0\x01f\0\0\
    \x0a\x04\x01\x02\0\x0b\
    \x0b\x0e\x01\0\x41\x80\x80\x04\x0b\x06outbox";
const PAGE: usize = 4_096;
/// Where the guest's own data lies, and what it is.
const DATA: (usize, &[u8]) = (65_536, b"outbox");
/// Fuel for making an instance, which runs nothing.
const FUEL: u64 = 1_000_000;
/// How many guests may meet slots that none of them had before the trial is given up. Slots come back some at a time.
const TRIES: usize = 64;

/// Whether a guest dirties the page of this number.
type Dirties = fn(usize) -> bool;

/// Which pages one guest dirties: the first MiB, every other page (more regions than one scan reports), and all of 12 MiB (more
/// than a slot keeps).
const PATTERNS: [(&str, Dirties); 3] =
    [("a few pages together", |page| page < 256), ("every other page", |page| page % 2 == 0), ("every page", |_| true)];

/// Whether the pool of this engine hands out clean slots.
///
/// # Errors
/// What was found in a slot, or why it could not be tried.
pub(crate) fn slots_come_back_clean(engine: &Engine) -> Result<(), String> {
    slots_come_back_clean_from(engine, GUEST)
}

/// [`slots_come_back_clean`] with another guest, which has the same exports and the same data.
pub(crate) fn slots_come_back_clean_from(engine: &Engine, guest: &[u8]) -> Result<(), String> {
    let module = Module::from_binary(engine, guest).map_err(|error| format!("the trial guest: {error:#}"))?;
    PATTERNS.iter().try_for_each(|(what, dirties)| comes_back_clean(engine, &module, what, dirties))
}

fn comes_back_clean(engine: &Engine, module: &Module, what: &str, dirties: &Dirties) -> Result<(), String> {
    let mut dirtied = HashSet::new();
    for _ in 0..TRIES {
        let mut guest = Guest::new(engine, module)?;
        guest.look().map_err(|found| format!("after {what} had been written: {found}"))?;
        if dirtied.contains(&guest.place()) {
            return Ok(());
        }
        guest.dirty(dirties)?;
        dirtied.insert(guest.place());
    }
    Err("no slot came back, so none could be looked at".to_owned())
}

struct Guest {
    store: Store<()>,
    memory: Memory,
    table: Table,
    function: Ref,
}

impl Guest {
    fn new(engine: &Engine, module: &Module) -> Result<Self, String> {
        let mut store = Store::new(engine, ());
        store.set_fuel(FUEL).map_err(|error| error.to_string())?;
        let instance = Instance::new(&mut store, module, &[]).map_err(|error| format!("the trial guest: {error:#}"))?;
        let parts = (
            instance.get_memory(&mut store, "m"),
            instance.get_table(&mut store, "t"),
            instance.get_func(&mut store, "f").map(|function| Ref::Func(Some(function))),
        );
        match parts {
            (Some(memory), Some(table), Some(function)) => Ok(Self { store, memory, table, function }),
            _ => Err("the trial guest lacks an export".to_owned()),
        }
    }

    /// Where its memory lies: the slot that it has.
    fn place(&self) -> usize {
        self.memory.data_ptr(&self.store).addr()
    }

    fn dirty(&mut self, dirties: &Dirties) -> Result<(), String> {
        for (number, page) in self.memory.data_mut(&mut self.store).chunks_exact_mut(PAGE).enumerate() {
            if dirties(number) {
                page.fill(0x5a);
            }
        }
        let elements = self.table.size(&self.store);
        (0..elements)
            .try_for_each(|at| self.table.set(&mut self.store, at, self.function.clone()))
            .map_err(|error| error.to_string())
    }

    /// What is in it that it was not made with. A reference found in the table is never called.
    fn look(&mut self) -> Result<(), String> {
        let (at, own) = DATA;
        for (number, page) in self.memory.data(&self.store).chunks_exact(PAGE).enumerate() {
            let clean = if number == at / PAGE {
                page.starts_with(own) && page[own.len()..].iter().all(|byte| *byte == 0)
            } else {
                *page == [0; PAGE]
            };
            if !clean {
                return Err(format!("page {number} of the memory still held what an earlier guest wrote"));
            }
        }
        let elements = self.table.size(&self.store);
        for at in 0..elements {
            if self.table.get(&mut self.store, at).is_none_or(|element| !element.is_null()) {
                return Err(format!("element {at} of the table still held a function of an earlier guest"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_is_what_is_written_above_it() {
        let text = r#"(module (memory (export "m") 192) (table (export "t") 20000 funcref) (func (export "f"))
            (data (i32.const 65536) "outbox"))"#;
        assert_eq!(GUEST, wat::parse_str(text).unwrap());
    }

    #[test]
    fn what_an_earlier_guest_left_is_found_wherever_it_is() {
        let engine = Engine::new(wasmtime::Config::new().consume_fuel(true)).unwrap();
        let module = Module::from_binary(&engine, GUEST).unwrap();
        let mut guest = Guest::new(&engine, &module).unwrap();
        guest.look().unwrap();
        guest.memory.data_mut(&mut guest.store)[5 * PAGE + 7] = 1;
        assert!(guest.look().unwrap_err().contains("page 5 of the memory"));
        guest.memory.data_mut(&mut guest.store)[5 * PAGE + 7] = 0;
        guest.memory.data_mut(&mut guest.store)[65_536 + 6] = 1;
        assert!(guest.look().unwrap_err().contains("page 16 of the memory"));
        guest.memory.data_mut(&mut guest.store)[65_536 + 6] = 0;
        guest.table.set(&mut guest.store, 19_999, guest.function.clone()).unwrap();
        assert!(guest.look().unwrap_err().contains("element 19999 of the table"));
    }
}
