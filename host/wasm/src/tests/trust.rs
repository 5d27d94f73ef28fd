//! Who may put code into the plugins directory, looked at by every scan.

use std::fs::{self, Permissions, set_permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use outbox_event::PluginState;
use outbox_listener::Listeners;

use super::put;
use super::reload::{answer, answering, config, one, start};
use crate::directory::open_dir::OpenDir;
use crate::directory::trust::Trust;
use crate::{LoadError, Plugins, PluginsConfig, inspect};

fn mode(path: &Path, mode: u32) {
    set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn whoever_else_may_write_is_an_objection_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x");
    fs::write(&file, "x").unwrap();
    let own = fs::metadata(&file).unwrap();
    let objection = |bits: u32, trust: &Trust, frozen: bool| {
        mode(&file, bits);
        trust.objection(&fs::metadata(&file).unwrap(), frozen)
    };
    let trust = Trust::of(&[]);
    assert_eq!(objection(0o644, &trust, false), None);
    assert!(objection(0o646, &trust, false).unwrap().contains("chmod o-w"));
    assert_eq!(objection(0o666, &trust, true), None, "on a file system that is mounted read-only the mode says nothing");
    // A group of the user's own number is the user's own.
    assert_eq!(objection(0o664, &trust, false).is_some(), own.uid() != own.gid());
    if own.uid() == 0 {
        std::os::unix::fs::chown(&file, None, Some(12_345)).unwrap();
        assert!(objection(0o664, &trust, false).unwrap().contains("group 12345 can write to it"));
        std::os::unix::fs::chown(&file, Some(12_346), None).unwrap();
        let told = objection(0o644, &trust, true).unwrap();
        assert!(told.contains("belongs to user 12346") && told.contains("plugins.trusted_owners"), "{told}");
        assert_eq!(objection(0o644, &Trust::of(&[12_346]), false), None, "the operator vouches for that user");
    }
}

#[tokio::test]
async fn a_file_that_others_may_write_is_not_loaded_and_what_served_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let file = answering(1_000).write(dir.path(), "mailer");
    let manifest = put(dir.path(), "mailer.toml", b"isolation = \"batch\"\n");
    let (plugins, listeners) = start(dir.path()).await;
    assert_eq!((one(&plugins, "mailer").error, answer(&listeners).await), (None, Some(1_000)));

    for changed in [&file, &manifest] {
        mode(changed, 0o666);
        plugins.rescan().await;
        let status = one(&plugins, "mailer");
        assert!(
            status.error.as_ref().is_some_and(|error| error.contains("anybody can write to it")),
            "{changed:?}: {status:?}"
        );
        assert_eq!((status.state, answer(&listeners).await), (PluginState::ServingOlder, Some(1_000)));
        mode(changed, 0o644);
        plugins.rescan().await;
        assert_eq!(one(&plugins, "mailer").error, None);
    }
    mode(&file, 0o666);
    let list = inspect(config(dir.path()), 1).await.unwrap();
    assert_eq!(list[0].state, PluginState::Failed, "nor at a start");
}

#[tokio::test]
async fn a_directory_that_others_may_write_by_now_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    answering(1_000).write(dir.path(), "mailer");
    let (plugins, listeners) = start(dir.path()).await;
    mode(dir.path(), 0o777);
    answering(2_000).write(dir.path(), "mailer");

    plugins.rescan().await;

    assert!(one(&plugins, "mailer").error.is_some_and(|error| error.contains("chmod o-w")));
    assert_eq!(answer(&listeners).await, Some(1_000));
    mode(dir.path(), 0o755);
    plugins.rescan().await;
    assert_eq!((one(&plugins, "mailer").error, answer(&listeners).await), (None, Some(2_000)));
}

#[tokio::test]
async fn a_directory_that_anybody_can_replace_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("plugins");
    fs::create_dir(&dir).unwrap();
    mode(parent.path(), 0o777);
    let error = inspect(config(&dir), 1).await.unwrap_err().to_string();
    assert!(error.contains("anybody can put another directory in its place"), "{error}");
    mode(parent.path(), 0o1777);
    assert!(inspect(config(&dir), 1).await.is_ok(), "as in /tmp, where only owners rename");
}

/// A volume as Kubernetes mounts it: files are links to `..data/FILE`, and `..data` is a link that is renamed over.
fn volume(dir: &Path, version: &str, component: &[u8]) {
    let folder = dir.join(format!("..{version}"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("mailer.wasm"), component).unwrap();
    symlink(format!("..{version}"), dir.join("..data_tmp")).unwrap();
    fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
    if !dir.join("mailer.wasm").is_symlink() {
        symlink("..data/mailer.wasm", dir.join("mailer.wasm")).unwrap();
    }
}

#[tokio::test]
async fn a_mounted_volume_is_followed_and_its_folders_are_looked_at_too() {
    let dir = tempfile::tempdir().unwrap();
    volume(dir.path(), "v1", &answering(1_000).build());
    let (plugins, listeners) = start(dir.path()).await;
    assert_eq!((one(&plugins, "mailer").error, answer(&listeners).await), (None, Some(1_000)));

    volume(dir.path(), "v2", &answering(2_000).build());
    plugins.rescan().await;
    assert_eq!(answer(&listeners).await, Some(2_000));

    mode(&dir.path().join("..v2"), 0o777);
    plugins.rescan().await;
    let status = one(&plugins, "mailer");
    assert!(status.error.as_ref().is_some_and(|error| error.contains("..v2") && error.contains("chmod o-w")), "{status:?}");
    assert_eq!(answer(&listeners).await, Some(2_000), "what was loaded before goes on");
}

#[test]
fn no_link_leads_out_of_an_open_directory() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(elsewhere.path().join("secret"), "secret").unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("sub/inside"), "inside").unwrap();
    let link = |name: &str, to: &Path| symlink(to, dir.path().join(name)).unwrap();
    let up = Path::new("..").join(elsewhere.path().file_name().unwrap());
    link("out", &elsewhere.path().join("secret"));
    link("up", &up.join("secret"));
    link("around", &Path::new("sub/../..").join(dir.path().file_name().unwrap()).join("sub/inside"));
    link("folder", elsewhere.path());
    link("through", Path::new("folder/secret"));
    link("loop", Path::new("loop"));
    link("in", Path::new("sub/inside"));
    link("back", Path::new("./sub/../sub/inside"));
    link("absolute", &dir.path().join("sub/inside"));
    let open_dir = OpenDir::open(dir.path(), None).unwrap();

    for name in ["out", "up", "around", "through"] {
        let error = open_dir.read(name.as_ref()).map(|_| ()).unwrap_err();
        assert!(matches!(error, LoadError::Outside { .. }), "{name}: {error}");
        assert!(open_dir.look(name.as_ref()).is_none(), "{name}");
    }
    assert!(matches!(open_dir.read("loop".as_ref()), Err(LoadError::Read { .. })));
    for name in ["in", "back", "absolute"] {
        let (mut file, _) = open_dir.read(name.as_ref()).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut file, &mut text).unwrap();
        assert_eq!(text, "inside", "{name}");
    }
    // The directory that was opened, wherever its name leads by now.
    let moved = elsewhere.path().join("moved");
    fs::rename(dir.path(), &moved).unwrap();
    assert!(open_dir.read("in".as_ref()).is_ok());
    fs::create_dir(dir.path()).unwrap();
}

#[tokio::test]
async fn a_pipe_or_a_huge_sparse_file_holds_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    answering(1_000).write(dir.path(), "mailer");
    fs::File::create(dir.path().join("huge.wasm")).unwrap().set_len(10 << 30).unwrap();
    answering(1_000).routes(&[("Order", "OrderArchived")]).write(dir.path(), "piped");
    for pipe in ["pipe.wasm", "piped.toml"] {
        assert!(std::process::Command::new("mkfifo").arg(dir.path().join(pipe)).status().unwrap().success());
    }
    let listeners = Arc::new(Listeners::default());
    let plugins = Plugins::start(PluginsConfig::clone(&config(dir.path())), 1, listeners.clone()).await.unwrap();
    assert!(one(&plugins, "huge").error.unwrap().contains("10737418240 bytes"));
    assert!(one(&plugins, "pipe").error.unwrap().contains("pipe.wasm is not a regular file"));
    assert!(one(&plugins, "piped").error.unwrap().contains("piped.toml is not a regular file"));
    assert_eq!(answer(&listeners).await, Some(1_000));
}
