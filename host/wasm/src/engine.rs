//! wasmtime, set up once for each host: compiler, pool of instances, linker, ticker.

pub(super) mod compatibility;
pub(super) mod machine;
pub(super) mod probe;

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use outbox_event::units::ByteSize;
use serde::{Deserialize, Serialize};
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, OperatorCost, PoolingAllocationConfig, ResourcesRequired};

use self::compatibility::compatibility;
use self::machine::Machine;
use self::probe::slots_come_back_clean;
use super::bindings::Listener;
use super::capability::wasi::count_arguments;
use super::capability::{HostState, count_what_is_kept};
use super::error::LoadError;
use super::manifest::MAX_MEMORY;
use super::shares::{KeptPlace, MemoryBudget, PluginShare};
use crate::turns::TICK;

/// How many tables and memories are given back to the kernel together. Few: until then, a guest that is gone keeps its memory,
/// and each core has a batch of its own.
const DECOMMIT_BATCH: usize = 4;
/// The most elements of one table; a JavaScript guest has 7,689.
pub(super) const MAX_TABLE_ELEMENTS: usize = 30_000;
/// The most elements of a small table: one page, which is overwritten when its guest is gone. A larger one is given back to the
/// kernel, which stops every other core and costs a small guest a third of all that its instance costs. The samples in Rust
/// have 45 to 103.
pub(super) const SMALL_TABLE_ELEMENTS: usize = 512;
const SMALL_RESERVATION: u64 = 256 << 20;
/// The most instances that are kept, by weight: a JavaScript guest takes 3 MiB of memory, a Python guest 5.
const MAX_KEPT: u32 = 64;
/// The most slots of guests that are gone which stay warm: as many calls as can compute at once need one, and some more.
const MAX_WARM_SLOTS: u32 = 32;
/// What all guests may have together, unless the operator says otherwise.
pub(super) const DEFAULT_MEMORY: ByteSize = ByteSize::mib(1_024);
/// How many a usual component has, and the largest that is loaded.
const MEMORIES: u32 = 2;
const MAX_MEMORIES: u32 = 8;
const TABLES: u32 = 4;
const MAX_TABLES: u32 = 16;
pub(super) const MAX_CORE_INSTANCES: u32 = 64;
/// The most bytes that an instance takes of the host's heap, beside its memories and tables. The samples in Go take 0.6 MiB, the
/// Python interpreter 0.5 MiB.
pub(super) const MAX_INSTANCE_BYTES: usize = 4 << 20;

/// Whether memory is cleaned page by page with the kernel's help: a guest costs what it wrote to, not what it has. It rests on
/// what the kernel says of its pages: a page that is away meanwhile (swapped out, or being moved) keeps what an earlier guest
/// wrote (wasmtime#14357).
///
/// Tables, whose elements are functions, are never cleaned this way. They are given back to the kernel whole, which costs a
/// small guest what this saves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PagemapScan {
    /// Where the kernel can, the machine neither swaps nor moves pages between NUMA nodes, and a trial at the start finds every
    /// slot clean. Given up as soon as swap appears. The default.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// The sandbox: everything that the components of one host share.
pub struct Engine {
    pub(super) wasm: wasmtime::Engine,
    pub(super) linker: Linker<HostState>,
    /// Taken while a component is compiled: one at a time, so that compiling takes at most its share of the machine.
    pub(super) compiling: tokio::sync::Mutex<()>,
    pub(super) workers: usize,
    machine: Machine,
    pub(super) scans_pages: bool,
    kept: Arc<AtomicUsize>,
    max_kept: usize,
    /// What all guests may have together, those without a pool as well.
    pub(super) memory: Arc<MemoryBudget>,
    /// Without a pool; made when the first plugin asks for it.
    strict: OnceLock<Arc<Engine>>,
    /// A pool for small tables alone; made when the first plugin has no others. `None` where there is no room for it.
    small: OnceLock<Option<Arc<Engine>>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("workers", &self.workers).finish_non_exhaustive()
    }
}

impl Engine {
    /// Sets up the sandbox for this many workers, each making one call at a time.
    ///
    /// # Errors
    /// When this machine cannot run WebAssembly at all.
    pub fn new(workers: usize, pagemap_scan: PagemapScan) -> Result<Arc<Self>, LoadError> {
        Self::on(Machine::default(), workers, pagemap_scan)
    }

    /// [`new`](Self::new) on a machine that tells of itself in other files.
    pub(super) fn on(machine: Machine, workers: usize, pagemap_scan: PagemapScan) -> Result<Arc<Self>, LoadError> {
        let workers = workers.max(1);
        let slots = Slots::of(workers);
        let max_kept = slots.kept as usize;
        let may_scan = pagemap_scan == PagemapScan::Auto
            && PoolingAllocationConfig::is_pagemap_scan_available()
            && machine.takes_pages_away().is_none();
        let scanning = if may_scan { scanning(slots).map_err(LoadError::Engine)? } else { None };
        let scans_pages = scanning.is_some();
        let wasm = scanning.map_or_else(|| allocate(slots, Reset::Overwrite).map(|(wasm, _)| wasm), Ok);
        let memory = MemoryBudget::new(DEFAULT_MEMORY.as_usize());
        Self::over(wasm.map_err(LoadError::Engine)?, machine, workers, scans_pages, max_kept, memory)
    }

    fn over(
        wasm: wasmtime::Engine,
        machine: Machine,
        workers: usize,
        scans_pages: bool,
        max_kept: usize,
        memory: Arc<MemoryBudget>,
    ) -> Result<Arc<Self>, LoadError> {
        let linker = link(&wasm).map_err(LoadError::Engine)?;
        tick(&wasm).map_err(|source| LoadError::Engine(source.into()))?;
        let (compiling, kept) = (tokio::sync::Mutex::new(()), Arc::default());
        let (strict, small) = (OnceLock::new(), OnceLock::new());
        Ok(Arc::new(Self { wasm, linker, compiling, workers, machine, scans_pages, kept, max_kept, memory, strict, small }))
    }

    /// The same sandbox for guests whose tables stay small, which it cleans faster. It runs what this one has compiled.
    pub(super) fn for_small_tables(self: &Arc<Self>) -> Arc<Self> {
        // Without a scan, small tables are overwritten anyway.
        if !self.scans_pages {
            return self.clone();
        }
        let made = || match self.small_pool() {
            Ok(made) => Some(made),
            Err(refused) => {
                tracing::debug!(target: "outbox::wasm::engine", "plugins: no second pool for small tables: {refused}");
                None
            }
        };
        self.small.get_or_init(made).as_ref().unwrap_or(self).clone()
    }

    fn small_pool(&self) -> Result<Arc<Self>, LoadError> {
        let slots = Slots::of(self.workers);
        let (wasm, pooled) = allocate(slots, Reset::ScanSmall).map_err(LoadError::Engine)?;
        if !pooled || compatibility(&wasm) != compatibility(&self.wasm) {
            return Err(LoadError::Engine(wasmtime::format_err!("there are no addresses left for it")));
        }
        Self::over(wasm, self.machine.clone(), self.workers, true, slots.kept as usize, self.memory.clone())
    }

    /// The same sandbox without a pool: memory that one guest had goes back to the kernel, and never to another guest. It runs
    /// what this one has compiled, and keeps no instance.
    ///
    /// # Errors
    /// When this machine cannot run WebAssembly in this way.
    pub(super) fn strict(&self) -> Result<Arc<Self>, LoadError> {
        if let Some(strict) = self.strict.get() {
            return Ok(strict.clone());
        }
        let wanted = compatibility(&self.wasm);
        let engines = compilers().map_err(LoadError::Engine)?;
        let alike = engines.into_iter().find(|engine| compatibility(engine) == wanted);
        let alike = alike
            .ok_or_else(|| LoadError::Engine(wasmtime::format_err!("no sandbox without a pool runs what the pool's runs")))?;
        let made = Self::over(alike, self.machine.clone(), self.workers, false, 0, self.memory.clone())?;
        Ok(self.strict.get_or_init(|| made).clone())
    }

    /// Why pages can no longer be cleaned with the kernel's help, though they are.
    pub(super) fn leaks(&self) -> Option<&'static str> {
        if self.scans_pages { self.machine.takes_pages_away() } else { None }
    }

    /// The same sandbox, empty, that cleans pages without the kernel's help.
    pub(super) fn without_scan(&self) -> Result<Arc<Self>, LoadError> {
        let mut engine = Self::on(self.machine.clone(), self.workers, PagemapScan::Off)?;
        // Guests of both are there for a while.
        Arc::get_mut(&mut engine).expect("just made").memory = self.memory.clone();
        Ok(engine)
    }

    /// Room to keep one more instance of this weight for a plugin; `None` when so many are kept that new calls might find no
    /// slot, or other plugins no place.
    pub(super) fn keep(&self, share: &Arc<PluginShare>, weight: usize) -> Option<KeptPlace> {
        if share.is_short() { None } else { share.keep(&self.kept, self.max_kept, weight) }
    }
}

/// How many usual components an instance of this one counts for while it is kept. One that cannot be told is refused before.
pub(super) fn weight(component: &Component) -> usize {
    let needed = component.resources_required();
    let units = |of: fn(&ResourcesRequired) -> u32, usual: u32| needed.as_ref().map_or(1, |needed| of(needed).div_ceil(usual));
    let units = units(|needed| needed.num_memories, MEMORIES).max(units(|needed| needed.num_tables, TABLES));
    units.max(1) as usize
}

/// How many instances there may be at once.
#[derive(Clone, Copy, Debug)]
struct Slots {
    /// In calls; a few of them for loading, and for slots that are not given back yet.
    calls: u32,
    /// Kept for the next call, by weight.
    kept: u32,
}

impl Slots {
    /// For this many calls at once. The most are far beyond what a machine can run, and far below what it can address.
    fn of(workers: usize) -> Self {
        let workers = u32::try_from(workers).unwrap_or(u32::MAX).min(1_024);
        Self { calls: workers + 8, kept: (3 * workers).min(MAX_KEPT) }
    }
}

/// How a slot is cleaned for its next guest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reset {
    /// The first bytes are overwritten, the others given back to the kernel.
    Overwrite,
    /// The kernel is asked which pages were written, and only those are overwritten; tables are given back to it.
    Scan,
    /// The same, for guests with small tables alone: they are overwritten.
    ScanSmall,
}

/// A pool that cleans with the kernel's help, if on this kernel it cleans.
fn scanning(slots: Slots) -> wasmtime::Result<Option<wasmtime::Engine>> {
    let (wasm, pooled) = allocate(slots, Reset::Scan)?;
    if !pooled {
        return Ok(None);
    }
    match slots_come_back_clean(&wasm) {
        Ok(()) => Ok(Some(wasm)),
        Err(found) => {
            tracing::warn!(
                target: "outbox::wasm::engine",
                "plugins: memory is cleaned without the kernel's help, at half the speed, since a trial failed: {found}"
            );
            Ok(None)
        }
    }
}

/// The best allocator that this machine has room for, and whether that is a pool. A slot reserves about 6 GiB of addresses,
/// which some containers forbid.
fn allocate(slots: Slots, reset: Reset) -> wasmtime::Result<(wasmtime::Engine, bool)> {
    let mut pooling = config();
    pooling.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(slots, reset)));
    let refused = match wasmtime::Engine::new(&pooling) {
        Ok(engine) => return Ok((engine, true)),
        Err(refused) => refused,
    };
    pooling.memory_reservation(SMALL_RESERVATION);
    if let Ok(engine) = wasmtime::Engine::new(&pooling) {
        tracing::info!(
            target: "outbox::wasm::engine",
            "plugins: reserving 256 MiB of addresses per memory, since 4 GiB were refused: {refused}"
        );
        return Ok((engine, true));
    }
    let engine = wasmtime::Engine::new(config().memory_reservation(SMALL_RESERVATION))?;
    tracing::warn!(
        target: "outbox::wasm::engine",
        "plugins: without a pool of instances (calls cost twice as much), since it was refused: {refused}"
    );
    Ok((engine, false))
}

/// Engines that compile what the sandbox runs, whichever allocator it found room for, and that reserve no pool themselves.
///
/// # Errors
/// When this machine cannot run WebAssembly at all.
pub(super) fn compilers() -> wasmtime::Result<[wasmtime::Engine; 2]> {
    Ok([wasmtime::Engine::new(&config())?, wasmtime::Engine::new(config().memory_reservation(SMALL_RESERVATION))?])
}

fn config() -> Config {
    let mut config = Config::new();
    let mut cost = OperatorCost::new();
    // Growing is free otherwise, and the kernel's work for a page is not.
    cost.variable.memory_grow_per_page = 64;
    config
        .consume_fuel(true)
        .operator_cost(cost)
        .epoch_interruption(true)
        .concurrency_support(false)
        .memory_init_cow(true)
        .memory_guaranteed_dense_image_size(64 << 20)
        .max_wasm_stack(512 << 10)
        .async_stack_size(1 << 20)
        .wasm_threads(false)
        .shared_memory(false)
        .wasm_memory64(false)
        .native_unwind_info(false)
        .wasm_backtrace_max_frames(NonZeroUsize::new(20));
    config
}

fn pool(slots: Slots, reset: Reset) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    // Calls of the largest components find room beside everything that is kept, which is weighed.
    pool.total_component_instances(slots.calls + slots.kept)
        .total_core_instances(MAX_CORE_INSTANCES * (slots.calls + slots.kept))
        .total_memories(MAX_MEMORIES * slots.calls + MEMORIES * slots.kept)
        .total_tables(MAX_TABLES * slots.calls + TABLES * slots.kept)
        .total_stacks(slots.calls + slots.kept)
        .max_core_instances_per_component(MAX_CORE_INSTANCES)
        .max_memories_per_component(MAX_MEMORIES)
        .max_tables_per_component(MAX_TABLES)
        .max_tables_per_module(4)
        .table_elements(MAX_TABLE_ELEMENTS)
        .max_component_instance_size(MAX_INSTANCE_BYTES)
        .max_core_instance_size(MAX_INSTANCE_BYTES)
        .max_memory_size(MAX_MEMORY.as_usize())
        .max_unused_warm_slots(((slots.calls + slots.kept) / 4).min(MAX_WARM_SLOTS))
        // Cleaned instead of given back to the kernel: that stops every other core to tell it of the change.
        .linear_memory_keep_resident(8 << 20);
    match reset {
        Reset::Overwrite => pool.table_keep_resident(MAX_TABLE_ELEMENTS * size_of::<usize>()),
        // A function of an earlier guest that is left in a table is a way out of the sandbox: tables are given back whole, some
        // at a time, since each giving back stops every other core.
        Reset::Scan => pool.table_keep_resident(0).pagemap_scan(Enabled::Auto).decommit_batch_size(DECOMMIT_BATCH),
        // The kernel is not asked about one page that is kept: it is overwritten whole.
        Reset::ScanSmall => pool
            // Of guests that are gone, slots in both pools keep what they wrote: less here, where guests are small.
            .linear_memory_keep_resident(2 << 20)
            .table_elements(SMALL_TABLE_ELEMENTS)
            .table_keep_resident(SMALL_TABLE_ELEMENTS * size_of::<usize>())
            .pagemap_scan(Enabled::Auto),
    };
    pool
}

/// Everything that a guest may import.
fn link(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<HostState>> {
    let mut linker = Linker::new(engine);
    Listener::add_to_linker::<_, HasSelf<HostState>>(&mut linker, |state| state)?;
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    count_what_is_kept(&mut linker)?;
    count_arguments(&mut linker)?;
    Ok(linker)
}

/// A thread of its own, because it must tick while every worker of the runtime is busy. It ends with the engine.
fn tick(engine: &wasmtime::Engine) -> std::io::Result<()> {
    let engine = engine.weak();
    std::thread::Builder::new().name("outbox-ticker".to_owned()).spawn(move || {
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            drop(engine);
            std::thread::sleep(TICK);
        }
    })?;
    Ok(())
}
