//! What the kernel does with memory, as far as cleaning a slot of the pool depends on it.

use std::path::PathBuf;

/// The files in which the kernel tells of it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    swaps: PathBuf,
    numa_balancing: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self { swaps: PathBuf::from("/proc/swaps"), numa_balancing: PathBuf::from("/proc/sys/kernel/numa_balancing") }
    }
}

impl Machine {
    /// A machine whose swap areas are listed in this file, and whose kernel moves no pages.
    #[cfg(test)]
    pub(crate) fn with_swaps(swaps: PathBuf) -> Self {
        Self { swaps, numa_balancing: PathBuf::new() }
    }

    /// Why pages may be away while their slot is cleaned; `None` when they stay. A page that is swapped out, or that the kernel
    /// is moving to another node, is not present: `pagemap_scan` neither clears nor drops it, and it comes back with what the
    /// earlier guest wrote (wasmtime#14357).
    pub(crate) fn takes_pages_away(&self) -> Option<&'static str> {
        if self.has_swap() {
            return Some("this machine has swap");
        }
        // Absent where the kernel cannot do it.
        let balances = std::fs::read_to_string(&self.numa_balancing).is_ok_and(|mode| mode.trim() != "0");
        balances.then_some("this machine moves pages between its NUMA nodes")
    }

    /// Whether the machine swaps; yes when it cannot be told.
    fn has_swap(&self) -> bool {
        let swaps = std::fs::read_to_string(&self.swaps);
        swaps.map_or(true, |swaps| swaps.lines().skip(1).any(|line| !line.trim().is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_and_numa_balancing_are_each_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine { swaps: dir.path().join("swaps"), numa_balancing: dir.path().join("numa") };
        let header = "Filename\tType\tSize\tUsed\tPriority\n";
        assert_eq!(machine.takes_pages_away(), Some("this machine has swap"), "when it cannot be told");
        std::fs::write(&machine.swaps, header).unwrap();
        assert_eq!(machine.takes_pages_away(), None);
        std::fs::write(&machine.numa_balancing, "0\n").unwrap();
        assert_eq!(machine.takes_pages_away(), None);
        std::fs::write(&machine.numa_balancing, "1\n").unwrap();
        assert_eq!(machine.takes_pages_away(), Some("this machine moves pages between its NUMA nodes"));
        std::fs::write(&machine.swaps, format!("{header}/dev/sda2 partition 1 0 -2\n")).unwrap();
        assert_eq!(machine.takes_pages_away(), Some("this machine has swap"));
    }
}
