//! `smith DIRECTORY FIRST LAST`: writes a component for each seed from FIRST up to LAST, as `SEED.wasm`. The same seed makes
//! the same component.

use std::path::Path;
use std::process::ExitCode;

use arbitrary::Unstructured;
use wasm_smith::{Component, Config};

/// What one component is made of: more bytes make larger ones.
const BYTES: usize = 16 << 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, first, last] = arguments.as_slice() else {
        eprintln!("usage: smith DIRECTORY FIRST LAST");
        return ExitCode::from(2);
    };
    let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) else {
        eprintln!("FIRST and LAST are numbers");
        return ExitCode::from(2);
    };
    for seed in first..last {
        let Some(component) = component(seed) else { continue };
        let file = Path::new(directory).join(format!("{seed}.wasm"));
        if let Err(error) = std::fs::write(&file, component) {
            eprintln!("{} cannot be written: {error}", file.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// `None` for a seed of which none can be made.
fn component(seed: u64) -> Option<Vec<u8>> {
    let bytes = bytes(seed);
    let config = Config { max_components: 20, max_modules: 20, max_type_size: 200, ..Config::default() };
    let component = Component::new(config, &mut Unstructured::new(&bytes)).ok()?;
    Some(component.to_bytes())
}

/// SplitMix64.
fn bytes(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    std::iter::repeat_with(next).take(BYTES / 8).flat_map(u64::to_le_bytes).collect()
}
