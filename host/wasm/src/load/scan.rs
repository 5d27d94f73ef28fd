//! A look at the bytes before the compiler sees them: 410 KiB of nested loops once took it 97 seconds and 1.5 GiB.

use wasmparser::{Encoding, FunctionBody, Operator, Parser, Payload};

use super::damaged::damaged;
use super::instance_size::check_instance_size;
use crate::directory::file::Bytes;
use crate::error::LoadError;

// The largest honest components seen: 13,400 functions, 427 KB in one, nested 781 deep, 271 locals, 14 modules.
const MAX_FUNCTIONS: u64 = 100_000;
const MAX_BODY_BYTES: u64 = 2 << 20;
const MAX_NESTING: u64 = 2_000;
const MAX_LOCALS: u64 = 5_000;
const MAX_MODULES: u64 = 64;
/// What compiling a function costs grows with its size times its depth.
const MAX_LOOPS: u64 = 20_000;
/// At the head of every loop the compiler looks at every local of its function: the sum over the file. A Python interpreter has
/// 143,000; 10 million in 26 kB took 20 s and 1 GiB.
const MAX_LOOPED_LOCALS: u64 = 2_000_000;

/// Refuses what is damaged, what is no component, what would take the compiler too long, and what would take too much of the host's
/// memory in every instance.
pub(crate) fn scan(bytes: &Bytes) -> Result<(), LoadError> {
    let damaged = |error: wasmparser::BinaryReaderError| damaged(bytes, &error);
    let mut functions = 0;
    let mut modules = 0;
    let mut looped_locals: u64 = 0;
    for (index, payload) in Parser::new(0).parse_all(&bytes.bytes).enumerate() {
        match payload.map_err(damaged)? {
            Payload::Version { encoding: Encoding::Module, .. } if index == 0 => {
                return Err(LoadError::NotAComponent {
                    file: bytes.file.clone(),
                    reason: "it is a core module; build for wasm32-wasip2, or make a component of it with `outbox plugin componentize`"
                        .to_owned(),
                });
            }
            Payload::Version { .. } => {
                modules += 1;
                bound(bytes, modules, MAX_MODULES, "modules and components in it")?;
            }
            Payload::CodeSectionStart { count, .. } => {
                functions += u64::from(count);
                bound(bytes, functions, MAX_FUNCTIONS, "functions")?;
            }
            Payload::CodeSectionEntry(body) => {
                let shape = Shape::of(&body).map_err(damaged)?;
                bound(bytes, shape.bytes, MAX_BODY_BYTES, "bytes in one function")?;
                bound(bytes, shape.locals, MAX_LOCALS, "locals in one function")?;
                bound(bytes, shape.nesting, MAX_NESTING, "blocks inside each other")?;
                bound(bytes, shape.loops, MAX_LOOPS, "loops in one function")?;
                looped_locals = looped_locals.saturating_add(shape.loops.saturating_mul(shape.locals));
                bound(bytes, looped_locals, MAX_LOOPED_LOCALS, "locals in its loops, over all functions")?;
            }
            _ => {}
        }
    }
    check_instance_size(bytes)?;
    Ok(())
}

fn bound(bytes: &Bytes, count: u64, max: u64, what: &str) -> Result<(), LoadError> {
    if count <= max {
        return Ok(());
    }
    Err(LoadError::TooComplex { file: bytes.file.clone(), what: format!("{count} {what}"), max })
}

/// What decides how long one function takes to compile.
#[derive(Debug, Default, PartialEq)]
struct Shape {
    bytes: u64,
    locals: u64,
    nesting: u64,
    loops: u64,
}

impl Shape {
    fn of(body: &FunctionBody<'_>) -> wasmparser::Result<Self> {
        let range = body.range();
        let mut shape = Self { bytes: (range.end - range.start) as u64, ..Self::default() };
        for locals in body.get_locals_reader()? {
            shape.locals += u64::from(locals?.0);
        }
        let mut depth: u64 = 0;
        for operator in body.get_operators_reader()? {
            match operator? {
                Operator::Loop { .. } => {
                    shape.loops += 1;
                    depth += 1;
                }
                Operator::Block { .. } | Operator::If { .. } | Operator::TryTable { .. } => depth += 1,
                Operator::End => depth = depth.saturating_sub(1),
                _ => {}
            }
            shape.nesting = shape.nesting.max(depth);
        }
        Ok(shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(text: &str) -> Result<(), LoadError> {
        scan(&Bytes::of("x.wasm".as_ref(), wat::parse_str(text).unwrap()))
    }

    #[test]
    fn each_bound_has_its_number_in_the_message() {
        let function = |body: &str| format!("(component (core module (func {body})))");
        assert!(scanned(&function("")).is_ok());
        let deep = format!("{}{}", "(block ".repeat(2_001), ")".repeat(2_001));
        let error = scanned(&function(&deep)).unwrap_err().to_string();
        assert!(error.contains("has 2001 blocks inside each other; at most 2000"), "{error}");
        let error = scanned(&function(&format!("(local {})", "i32 ".repeat(5_001)))).unwrap_err().to_string();
        assert!(error.contains("5001 locals"), "{error}");
        let error = scanned(&function(&"nop ".repeat(2 << 20))).unwrap_err().to_string();
        assert!(error.contains("bytes in one function"), "{error}");
        let error = scanned(&format!("(component {})", "(core module)".repeat(64))).unwrap_err().to_string();
        assert!(error.contains("65 modules and components in it; at most 64"), "{error}");
        assert!(scanned(&format!("(component {})", "(core module)".repeat(63))).is_ok(), "with the component itself 64");
        let error = scanned(&function(&"(loop)".repeat(20_001))).unwrap_err().to_string();
        assert!(error.contains("20001 loops in one function"), "{error}");
        let error = scanned(&format!("(component (core module {}))", "(func)".repeat(100_001))).unwrap_err().to_string();
        assert!(error.contains("100001 functions"), "{error}");
        let busy = format!("(func (local {}) {})", "i32 ".repeat(2_000), "(loop)".repeat(501));
        assert!(scanned(&format!("(component (core module {busy}))")).is_ok(), "a million in one function");
        let error = scanned(&format!("(component (core module {busy}) (core module {busy}))")).unwrap_err().to_string();
        assert!(error.contains("2004000 locals in its loops, over all functions; at most 2000000"), "{error}");
    }

    const HEADER: usize = 8;
    /// The section of a component that holds a core module.
    const MODULE: u8 = 1;

    /// Where each part of a component ends: behind headers, and behind sections, also those of the modules in it. There the
    /// parser cannot know that more was to come.
    fn ends(whole: &[u8], start: usize, is_component: bool) -> Vec<usize> {
        let mut reader = wasmparser::BinaryReader::new(&whole[start + HEADER..], start + HEADER);
        let mut ends = vec![start + HEADER];
        while !reader.eof() {
            let section = reader.read_u8().unwrap();
            let bytes = reader.read_var_u32().unwrap() as usize;
            let content = reader.original_position();
            if is_component && section == MODULE {
                ends.extend(self::ends(&whole[..content + bytes], content, false));
            }
            reader.read_bytes(bytes).unwrap();
            ends.push(content + bytes);
        }
        ends
    }

    #[test]
    fn every_cut_is_seen_or_leaves_a_component_that_lacks_its_exports() {
        // By numbers: names would be a last section, behind the exports.
        let whole = wat::parse_str(
            "(component (core module (func (export \"f\") nop)) (core instance (instantiate 0))
                (func (canon lift (core func 0 \"f\"))) (export \"f\" (func 0)))",
        )
        .unwrap();
        let scanned = |end: usize| scan(&Bytes::of("x.wasm".as_ref(), whole[..end].to_vec()));
        let exports = |end: usize| {
            let payloads = Parser::new(0).parse_all(&whole[..end]);
            payloads.filter(|payload| matches!(payload, Ok(Payload::ComponentExportSection(_)))).count()
        };
        let ends = ends(&whole, 0, true);
        assert!(ends.len() > 8 && ends.last() == Some(&whole.len()), "{ends:?}");
        assert!(scanned(whole.len()).is_ok() && exports(whole.len()) == 1);

        for end in ends[0]..whole.len() {
            match scanned(end) {
                Ok(()) => assert!(ends.contains(&end) && exports(end) == 0, "cut at {end} of {ends:?}"),
                Err(error) => assert!(error.to_string().contains("not complete"), "cut at {end}: {error}"),
            }
        }
    }
}
