//! Lets the program's own `getrandom` be found by who looks for it by name; see `src/again.rs`.

fn main() {
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=getrandom");
    println!("cargo:rerun-if-changed=build.rs");
}
