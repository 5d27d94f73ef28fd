//! What machine code and an engine must have in common.

use std::hash::{Hash, Hasher};

use sha2::{Digest as _, Sha256};

/// Everything of an engine that decides what the compiler makes, as a short text.
pub(crate) fn compatibility(engine: &wasmtime::Engine) -> String {
    let mut hasher = Sha256Hasher(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut hasher);
    data_encoding::HEXLOWER.encode(&hasher.0.finalize()[..8])
}

struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("only the whole digest is read")
    }
}
