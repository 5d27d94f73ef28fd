//! The private directory does not grow for ever.

use std::collections::BTreeSet;
use std::fs::{File, FileTimes};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use outbox_event::time::{Clock, SystemClock, Timestamp};
use outbox_event::units::ByteSize;

use crate::private::Private;
use crate::private::cache::Cache;
use crate::{Engine, PagemapScan};

const DAY: Duration = Duration::from_secs(24 * 3_600);

fn left(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut digests: Vec<String> = names.filter_map(|name| name.split_once('-').map(|(digest, _)| digest.to_owned())).collect();
    digests.sort();
    digests
}

/// Makes the compiled component of this digest this many days old.
fn age(dir: &Path, digest: &str, days: u32, now: Timestamp) {
    let file = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut file = file.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(digest));
    let at = std::time::UNIX_EPOCH + Duration::from_micros(now.minus(DAY * days).as_micros().try_into().unwrap());
    File::options().write(true).open(file.next().unwrap()).unwrap().set_times(FileTimes::new().set_modified(at)).unwrap();
}

#[test]
fn what_is_old_or_too_much_goes_least_used_first_and_what_serves_stays() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("cache");
    let engine = Engine::new(1, PagemapScan::Off).unwrap();
    let now = SystemClock.now();
    let private = Arc::new(Private::open(&dir).unwrap());
    let cache = Cache::new(private, ByteSize(3_000));
    for (digest, days) in [("aa", 1), ("bb", 2), ("cc", 3), ("dd", 4), ("ee", 50)] {
        cache.store(&engine.wasm, digest, &[7; 1_000]);
        age(&dir, digest, days, now);
    }
    std::fs::write(dir.join("half-written.tmp"), "x").unwrap();
    age(&dir, "half", 1, now);

    cache.shrink(&BTreeSet::from(["ee".to_owned()]), now);
    assert_eq!(left(&dir), ["aa", "bb", "ee"], "3 × 1,032 bytes do not fit, and what serves stays, however old");
    cache.shrink(&BTreeSet::new(), now);
    assert_eq!(left(&dir), ["aa", "bb"], "what nobody used for a month");
    assert!(dir.join("key").exists());
}
