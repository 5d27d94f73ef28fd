//! A component and its manifest: two files that change one after the other, and count as one.

use outbox_event::PluginState;
use sha2::{Digest as _, Sha256};

use super::put;
use super::reload::{answer, answering, one, start};

fn pinned(component: &[u8], isolation: &str) -> String {
    format!("digest = \"{}\"\nisolation = \"{isolation}\"\n", data_encoding::HEXLOWER.encode(&Sha256::digest(component)))
}

#[tokio::test]
async fn a_pair_with_a_digest_is_held_back_until_both_files_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (answering(1_000).build(), answering(2_000).version("2.0.0").build());
    put(dir.path(), "mailer.wasm", &first);
    put(dir.path(), "mailer.toml", pinned(&first, "event").as_bytes());
    let (plugins, listeners) = start(dir.path()).await;
    assert_eq!((one(&plugins, "mailer").error, answer(&listeners).await), (None, Some(1_000)));

    // The component first.
    put(dir.path(), "mailer.wasm", &second);
    plugins.rescan().await;
    let status = one(&plugins, "mailer");
    assert_eq!((status.state, answer(&listeners).await), (PluginState::ServingOlder, Some(1_000)), "the old pair goes on");
    assert!(status.error.is_some_and(|error| error.contains("mailer.toml") && error.contains("digest")));
    put(dir.path(), "mailer.toml", pinned(&second, "batch").as_bytes());
    plugins.rescan().await;
    assert_eq!((one(&plugins, "mailer").error, answer(&listeners).await), (None, Some(2_000)));

    // The manifest first.
    put(dir.path(), "mailer.toml", pinned(&first, "event").as_bytes());
    plugins.rescan().await;
    assert_eq!(answer(&listeners).await, Some(2_000));
    put(dir.path(), "mailer.wasm", &first);
    plugins.rescan().await;
    assert_eq!((one(&plugins, "mailer").error, answer(&listeners).await), (None, Some(1_000)));
}

#[tokio::test]
async fn a_manifest_that_is_empty_or_too_large_is_not_taken_for_the_defaults() {
    let dir = tempfile::tempdir().unwrap();
    answering(1_000).write(dir.path(), "mailer");
    put(dir.path(), "mailer.toml", b"isolation = \"batch\"\n");
    let (plugins, listeners) = start(dir.path()).await;

    for (text, why) in [(String::new(), "is empty"), ("# so\n".repeat(60_000), "too large")] {
        put(dir.path(), "mailer.toml", text.as_bytes());
        plugins.rescan().await;
        let error = one(&plugins, "mailer").error.unwrap_or_default();
        assert!(error.contains("mailer.toml") && error.contains(why), "{error}");
        assert_eq!(answer(&listeners).await, Some(1_000), "the old pair goes on");
    }
    put(dir.path(), "mailer.toml", b"# nothing special\n");
    plugins.rescan().await;
    assert_eq!(one(&plugins, "mailer").error, None);
}
