//! What plugins/README.md says of manifests.

use outbox::wasm::{Manifest, Retry};

const README: &str = include_str!("../../plugins/README.md");

#[test]
fn the_documented_defaults_are_the_defaults() {
    let (_, limits) = README.split_once("## Limits").expect("it tells them");
    let (_, block) = limits.split_once("```toml\n").expect("as a manifest");
    let (manifest, _) = block.split_once("```").expect("which ends");

    let documented: Manifest = toml::from_str(manifest).expect("a good manifest");

    let retry = Retry { max_attempts: Some(10), ..Retry::default() };
    assert_eq!(documented, Manifest { retry: Some(retry), ..Manifest::default() });
}
