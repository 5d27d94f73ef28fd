//! How many bytes of the host's heap an instance of a component takes, beside its memories and tables: an upper bound, read from the
//! component's bytes.
//!
//! wasmtime keeps the globals, imports, function references and passive element segments of every core instance there, and for the
//! component its context: the state of every component instance in it, its resource types and its canonical functions. The pool
//! counts neither passive segments nor the state of component instances, and an engine without a pool bounds nothing.

use outbox_event::units::number;
use wasmparser::{
    ComponentAlias, ComponentExternalKind as Kind, ComponentInstance, ComponentOuterAliasKind as OuterKind, ComponentType,
    ElementItems, ElementKind, Encoding, Imports, Instance, Parser, Payload,
};

use super::damaged::damaged;
use crate::directory::file::Bytes;
use crate::engine::{MAX_CORE_INSTANCES, MAX_INSTANCE_BYTES};
use crate::error::LoadError;

// Bytes of each part of a core instance, by `VMOffsets` and `Instance` of wasmtime 48, rounded up.
/// A core instance without content.
const EMPTY: u64 = 512;
const MEMORY_OR_TABLE: u64 = 256;
const IMPORT: u64 = 32;
const GLOBAL: u64 = 16;
const TAG: u64 = 4;
const FUNCTION_REFERENCE: u64 = 32;
const DATA_SEGMENT: u64 = 12;
const PASSIVE_SEGMENT: u64 = 32;
const PASSIVE_ELEMENT: u64 = 16;

// Bytes of each part of a component's context, by `VMComponentOffsets` and `ComponentInstance` of wasmtime 48, rounded up.
/// A component instance: its flags, and its tables of handles and of threads.
const COMPONENT_INSTANCE: u64 = 128;
/// A resource type: its destructor, and its identity in a list that grows by doubling.
const RESOURCE_TYPE: u64 = 96;
/// A canonical function: its trampoline, its options, and its part of the core module by which wasmtime connects two components.
const CANONICAL_FUNCTION: u64 = 512;

/// More than any bound.
const UNBOUNDED: u64 = u64::MAX;

/// The most bytes that an instance takes of the host's heap, beside its memories and tables. A component that another component passes
/// in has no bound.
///
/// # Errors
/// When an instance may take more than [`MAX_INSTANCE_BYTES`], or the component is damaged.
pub(super) fn check_instance_size(bytes: &Bytes) -> Result<usize, LoadError> {
    let size = instance_size(&bytes.bytes).map_err(|error| damaged(bytes, &error))?;
    match usize::try_from(size) {
        Ok(size) if size <= MAX_INSTANCE_BYTES => Ok(size),
        _ => Err(LoadError::Needs {
            file: bytes.file.clone(),
            what: format!(
                "{} bytes of the host's memory for each instance, beside its memories and tables, and at most {} are given",
                if size == UNBOUNDED { "any number of".to_owned() } else { format!("up to {}", number(size)) },
                number(MAX_INSTANCE_BYTES as u64)
            ),
            advice: "build it with fewer globals, imports, function references, passive element segments, resource types and \
                     canonical functions, or instantiate fewer core modules and components"
                .to_owned(),
        }),
    }
}

fn instance_size(component: &[u8]) -> wasmparser::Result<u64> {
    let mut walk = Walk::default();
    for payload in Parser::new(0).parse_all(component) {
        walk.take(&payload?)?;
    }
    let Size { core, context } = walk.total;
    // No store takes more core instances than these, whatever the component passes to its parts.
    let most_core = walk.largest_module.saturating_mul(u64::from(MAX_CORE_INSTANCES));
    Ok(core.min(most_core).saturating_add(context))
}

/// The bytes that an instance of a module or component takes.
#[derive(Clone, Copy, Default)]
struct Size {
    /// For its core instances.
    core: u64,
    /// In the context of the outermost component.
    context: u64,
}

impl Size {
    fn of_module(core: u64) -> Self {
        Self { core, context: 0 }
    }

    /// The size of a module or component that another component passes in.
    fn passed_in(kind: Kind) -> Self {
        match kind {
            Kind::Module => Self::of_module(UNBOUNDED),
            _ => Self { core: UNBOUNDED, context: UNBOUNDED },
        }
    }

    fn add(&mut self, other: Self) {
        self.core = self.core.saturating_add(other.core);
        self.context = self.context.saturating_add(other.context);
    }
}

/// One walk through a component's bytes. A component refers only to parts that come before.
#[derive(Default)]
struct Walk {
    /// The components that are being read, innermost last.
    components: Vec<Component>,
    /// The core module that is being read.
    module: Option<Module>,
    largest_module: u64,
    /// The size of the outermost component, once it has been read.
    total: Size,
}

impl Walk {
    fn take(&mut self, payload: &Payload<'_>) -> wasmparser::Result<()> {
        match payload {
            Payload::Version { encoding: Encoding::Module, .. } => self.module = Some(Module::default()),
            Payload::Version { encoding: Encoding::Component, .. } => self.components.push(Component::new()),
            Payload::End(_) => self.close(),
            Payload::ComponentAliasSection(aliases) => {
                for alias in aliases.clone() {
                    self.alias(&alias?);
                }
            }
            _ => {
                if let Some(module) = &mut self.module {
                    module.take(payload)?;
                } else if let Some(component) = self.components.last_mut() {
                    component.take(payload)?;
                }
            }
        }
        Ok(())
    }

    /// Ends the module or component that is being read, and adds it to the component around it.
    fn close(&mut self) {
        if let Some(module) = self.module.take() {
            let size = module.size();
            self.largest_module = self.largest_module.max(size);
            self.add(Kind::Module, Size::of_module(size));
        } else if let Some(component) = self.components.pop() {
            if self.components.is_empty() {
                self.total = component.total;
            }
            self.add(Kind::Component, component.total);
        }
    }

    fn alias(&mut self, alias: &ComponentAlias<'_>) {
        let outer = |count: u32, kind: Kind, index: u32| {
            let component = self.components.iter().rev().nth(count as usize);
            component.map_or_else(|| Size::passed_in(kind), |component| component.size_of(kind, index))
        };
        let (kind, size) = match alias {
            ComponentAlias::InstanceExport { kind, .. } => (*kind, Size::passed_in(*kind)),
            ComponentAlias::Outer { kind: OuterKind::CoreModule, count, index } => {
                (Kind::Module, outer(*count, Kind::Module, *index))
            }
            ComponentAlias::Outer { kind: OuterKind::Component, count, index } => {
                (Kind::Component, outer(*count, Kind::Component, *index))
            }
            ComponentAlias::Outer { .. } | ComponentAlias::CoreInstanceExport { .. } => return,
        };
        self.add(kind, size);
    }

    fn add(&mut self, kind: Kind, size: Size) {
        if let Some(component) = self.components.last_mut() {
            component.add(kind, size);
        }
    }
}

/// A component, and the sizes of the modules and components that it can instantiate, by their indexes.
struct Component {
    modules: Vec<Size>,
    components: Vec<Size>,
    /// The size of an instance, with all that it instantiates.
    total: Size,
}

impl Component {
    fn new() -> Self {
        let total = Size { core: 0, context: COMPONENT_INSTANCE };
        Self { modules: Vec::new(), components: Vec::new(), total }
    }

    fn take(&mut self, payload: &Payload<'_>) -> wasmparser::Result<()> {
        match payload {
            Payload::InstanceSection(instances) => {
                for instance in instances.clone() {
                    if let Instance::Instantiate { module_index, .. } = instance? {
                        self.instantiate(Kind::Module, module_index);
                    }
                }
            }
            Payload::ComponentInstanceSection(instances) => {
                for instance in instances.clone() {
                    if let ComponentInstance::Instantiate { component_index, .. } = instance? {
                        self.instantiate(Kind::Component, component_index);
                    }
                }
            }
            Payload::ComponentTypeSection(types) => {
                for ty in types.clone() {
                    if matches!(ty?, ComponentType::Resource { .. }) {
                        self.add_to_context(1, RESOURCE_TYPE);
                    }
                }
            }
            Payload::ComponentCanonicalSection(functions) => self.add_to_context(functions.count(), CANONICAL_FUNCTION),
            Payload::ComponentImportSection(imports) => {
                for import in imports.clone() {
                    let kind = import?.ty.kind();
                    self.add(kind, Size::passed_in(kind));
                }
            }
            // An export has an index of its own.
            Payload::ComponentExportSection(exports) => {
                for export in exports.clone() {
                    let export = export?;
                    self.add(export.kind, self.size_of(export.kind, export.index));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn instantiate(&mut self, kind: Kind, index: u32) {
        let size = self.size_of(kind, index);
        self.total.add(size);
    }

    fn add_to_context(&mut self, count: u32, each: u64) {
        self.total.add(Size { core: 0, context: u64::from(count) * each });
    }

    /// Adds a module or component to its index space; other kinds have no size.
    fn add(&mut self, kind: Kind, size: Size) {
        match kind {
            Kind::Module => self.modules.push(size),
            Kind::Component => self.components.push(size),
            _ => {}
        }
    }

    fn size_of(&self, kind: Kind, index: u32) -> Size {
        let sizes = if kind == Kind::Module { &self.modules } else { &self.components };
        sizes.get(index as usize).copied().unwrap_or_else(|| Size::passed_in(kind))
    }
}

/// A core module.
#[derive(Default)]
struct Module {
    bytes: u64,
    /// Its functions, imported ones included.
    functions: u64,
    /// How often something refers to a function; each function has one reference at most.
    references: u64,
}

impl Module {
    fn take(&mut self, payload: &Payload<'_>) -> wasmparser::Result<()> {
        match payload {
            Payload::ImportSection(imports) => {
                for group in imports.clone() {
                    let count = match group? {
                        Imports::Single(..) => 1,
                        Imports::Compact1 { items, .. } => items.count(),
                        Imports::Compact2 { names, .. } => names.count(),
                    };
                    self.add(count, IMPORT);
                    self.functions += u64::from(count);
                    // An imported function always has a reference.
                    self.references += u64::from(count);
                }
            }
            Payload::FunctionSection(functions) => self.functions += u64::from(functions.count()),
            Payload::TableSection(tables) => {
                self.add(tables.count(), MEMORY_OR_TABLE);
                self.references += u64::from(tables.count());
            }
            Payload::MemorySection(memories) => self.add(memories.count(), MEMORY_OR_TABLE),
            Payload::TagSection(tags) => self.add(tags.count(), TAG),
            Payload::GlobalSection(globals) => {
                self.add(globals.count(), GLOBAL);
                self.references += u64::from(globals.count());
            }
            Payload::ExportSection(exports) => self.references += u64::from(exports.count()),
            Payload::ElementSection(segments) => {
                for segment in segments.clone() {
                    let segment = segment?;
                    let elements = match &segment.items {
                        ElementItems::Functions(functions) => functions.count(),
                        ElementItems::Expressions(_, expressions) => expressions.count(),
                    };
                    self.references += u64::from(elements);
                    if matches!(segment.kind, ElementKind::Passive) {
                        self.add(1, PASSIVE_SEGMENT);
                        self.add(elements, PASSIVE_ELEMENT);
                    }
                }
            }
            // In the worst case, wasmtime keeps active segments as passive ones.
            Payload::DataSection(segments) => self.add(segments.count(), DATA_SEGMENT),
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, count: u32, each: u64) {
        self.bytes = self.bytes.saturating_add(u64::from(count) * each);
    }

    fn size(&self) -> u64 {
        let references = self.functions.min(self.references).saturating_mul(FUNCTION_REFERENCE);
        EMPTY.saturating_add(self.bytes).saturating_add(references)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_GLOBAL: &str = "(core module $m (global i32 (i32.const 0)))";
    const INSTANTIATED: &str = "(core instance (instantiate $m))";
    /// The size of an instance of [`ONE_GLOBAL`].
    const SIZE: u64 = EMPTY + GLOBAL;

    fn whole_size(inside: &str) -> u64 {
        instance_size(&wat::parse_str(format!("(component $outer {inside})")).unwrap()).unwrap()
    }

    /// Without the outermost component instance.
    fn size(inside: &str) -> u64 {
        whole_size(inside) - COMPONENT_INSTANCE
    }

    #[test]
    fn a_module_counts_as_often_as_it_is_instantiated() {
        assert_eq!(size(ONE_GLOBAL), 0);
        assert_eq!(size(&format!("{ONE_GLOBAL} {INSTANTIATED}")), SIZE);
        assert_eq!(size(&format!("{ONE_GLOBAL} {}", INSTANTIATED.repeat(3))), 3 * SIZE);
    }

    #[test]
    fn a_component_in_a_component_counts_as_often_as_it_is_instantiated() {
        let inner = format!("(component $c {ONE_GLOBAL} {})", INSTANTIATED.repeat(2));
        assert_eq!(size(&inner), 0);
        let three_times = size(&format!("{inner} {}", "(instance (instantiate $c))".repeat(3)));
        assert_eq!(three_times, 6 * SIZE + 3 * COMPONENT_INSTANCE);
        let aliased = "(component $c (alias outer $outer $m (core module $i)) (core instance (instantiate $i)))";
        let twice = "(instance (instantiate $c))".repeat(2);
        let with_alias = size(&format!("{ONE_GLOBAL} (core module (func)) {aliased} {twice}"));
        assert_eq!(with_alias, 2 * (SIZE + COMPONENT_INSTANCE));
    }

    #[test]
    fn component_instances_without_a_module_count() {
        let many = format!(
            "(component $many (alias outer $outer $empty (component $e)) {})",
            "(instance (instantiate $e))".repeat(10)
        );
        let instances = "(instance (instantiate $many))".repeat(10);
        assert_eq!(size(&format!("(component $empty) {many} {instances}")), 10 * (1 + 10) * COMPONENT_INSTANCE);
    }

    #[test]
    fn resource_types_and_canonical_functions_count_in_every_component_instance() {
        let resource = "(component $r (type $t (resource (rep i32))) (core func (canon resource.drop $t)))";
        let twice = "(instance (instantiate $r))".repeat(2);
        let each = COMPONENT_INSTANCE + RESOURCE_TYPE + CANONICAL_FUNCTION;
        assert_eq!(size(&format!("{resource} {twice}")), 2 * each);
    }

    #[test]
    fn a_component_that_is_passed_in_has_no_bound() {
        let imports = "(component $c (import \"c\" (component $i)) (instance (instantiate $i)))";
        let passed = "(component $e) (instance (instantiate $c (with \"c\" (component $e))))";
        assert_eq!(whole_size(&format!("{imports} {passed}")), UNBOUNDED);
    }

    #[test]
    fn a_module_that_is_passed_in_counts_as_the_largest_in_every_instance_of_a_store() {
        let imports = "(component $c (import \"m\" (core module $i)) (core instance (instantiate $i)))";
        let passed = "(instance (instantiate $c (with \"m\" (core module $m))))";
        let bound = u64::from(MAX_CORE_INSTANCES) * SIZE + COMPONENT_INSTANCE;
        assert_eq!(size(&format!("{imports} {ONE_GLOBAL} {passed}")), bound);
    }

    #[test]
    fn every_part_of_a_core_instance_counts() {
        for (what, inside, bytes) in [
            ("a global", "(global i64 (i64.const 1))", GLOBAL),
            ("a function without a reference", "(func)", 0),
            ("an exported function", "(func (export \"f\"))", FUNCTION_REFERENCE),
            ("an imported function", "(import \"a\" \"b\" (func))", IMPORT + FUNCTION_REFERENCE),
            ("a memory with data", "(memory 1) (data (i32.const 0) \"x\")", MEMORY_OR_TABLE + DATA_SEGMENT),
            ("a passive segment", "(func $f) (elem func $f $f $f)", FUNCTION_REFERENCE + PASSIVE_SEGMENT + 3 * PASSIVE_ELEMENT),
            (
                "a passive segment of expressions",
                "(elem funcref (ref.null func) (ref.null func))",
                PASSIVE_SEGMENT + 2 * PASSIVE_ELEMENT,
            ),
            ("a declared segment", "(func $f) (elem declare func $f)", FUNCTION_REFERENCE),
            (
                "an active segment",
                "(func $f) (table 2 funcref) (elem (i32.const 0) $f $f)",
                FUNCTION_REFERENCE + MEMORY_OR_TABLE,
            ),
        ] {
            assert_eq!(size(&format!("(core module $m {inside}) {INSTANTIATED}")), EMPTY + bytes, "{what}");
        }
    }
}
