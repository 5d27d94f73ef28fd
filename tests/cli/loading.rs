//! Components that cost their compiler too much, as an operator meets them: the host does not notice, and stops trying them.

use std::fs;
use std::time::{Duration, Instant};

use crate::program::{Ended, Host, PATIENCE, Place};

/// So many functions that compiling them takes seconds, though each is empty: the most that are let through to the compiler.
const MANY: usize = 99_999;

fn put_bomb(place: &Place, name: &str) {
    let text = format!("(component (core module {}))", "(func)".repeat(MANY));
    let plugins = place.path().join("plugins");
    fs::create_dir_all(&plugins).expect("can be made");
    let draft = place.path().join("draft");
    fs::write(&draft, wat::parse_str(text).expect("it is a component")).expect("can be written");
    fs::rename(draft, plugins.join(name)).expect("can be renamed");
}

/// Runs a command with a cache of this place, and a limit on compiling.
fn run(place: &Place, arguments: &[&str], limit: &str) -> Ended {
    let mut command = place.command(arguments);
    command.env("XDG_CACHE_HOME", place.path().join("cache")).args(["--set", limit]);
    Ended::within(3 * PATIENCE, command) // the compiler may have to share its cores
}

#[test]
fn a_component_that_takes_too_long_is_stopped_and_not_tried_again_until_somebody_asks() {
    let place = Place::migrated();
    put_bomb(&place, "bomb.wasm");
    let list = || run(&place, &["plugin", "list"], "plugins.compile_limits.cpu=1s");

    let first = list();
    assert_eq!(first.code, Some(8), "{}", first.stderr);
    assert!(first.stdout.contains("used more than 1s of processor time"), "{}", first.stdout);
    let second = list();
    assert!(second.stdout.contains("is not compiled again"), "the next start knows it: {}", second.stdout);
    let checked = run(&place, &["plugin", "check", "plugins/bomb.wasm"], "plugins.compile_limits.cpu=1s");
    assert!(checked.stderr.contains("is not compiled again"), "and every command: {}", checked.stderr);

    let retried = run(&place, &["plugin", "retry", "bomb"], "plugins.compile_limits.cpu=1s");
    assert_eq!(retried.code, Some(0), "{}", retried.stderr);
    let third = list();
    assert!(third.stdout.contains("was not compiled, since its compiler used"), "{}", third.stdout);
    assert_eq!(run(&place, &["plugin", "retry", "absent"], "plugins.compile_limits.cpu=1s").code, Some(3));
}

#[test]
fn a_component_that_takes_too_much_memory_is_stopped() {
    let place = Place::migrated();
    put_bomb(&place, "bomb.wasm");

    let listed = run(&place, &["plugin", "list"], "plugins.compile_limits.memory=512MiB");

    assert_eq!(listed.code, Some(8), "{}", listed.stderr);
    assert!(listed.stdout.contains("needed more than 512MiB of memory"), "{}", listed.stdout);
}

#[test]
fn a_host_is_ready_delivers_and_stops_while_its_compiler_is_busy() {
    let place = Place::migrated();
    place.plugin("order-mailer");
    let cache = place.path().join("cache");
    assert_eq!(run(&place, &["plugin", "check", "plugins/order-mailer.wasm"], "plugins.debounce=250ms").code, Some(0));
    put_bomb(&place, "bomb.wasm");
    let mut host = place.host(&[("XDG_CACHE_HOME", cache.to_str().expect("a plain name"))]);
    let compiler = wait("the host starts its compiler", || compilers(host.id()).first().copied());

    let order = r#"{"order_id":7,"total":12.5,"customer":"ada@example.com"}"#;
    place.ok(&["event", "emit", "--type", "OrderPlaced", "--aggregate-type", "Order", "--payload", order]);
    host.wait_for_mails(1);
    host.signal("INT");
    let (status, said) = host.end();

    assert_eq!(status.code(), Some(0), "{said:?}");
    assert!(said.iter().all(|line| !line.contains("bomb was not loaded")), "it was still being compiled: {said:?}");
    wait("the compiler goes with its host", || (!is_compiler(compiler)).then_some(()));
}

#[test]
fn a_host_whose_only_plugin_is_still_loading_says_so_and_not_that_it_has_no_listener() {
    let place = Place::migrated();
    put_bomb(&place, "bomb.wasm");
    let mut command = place.command(&["run", "--plugins", "plugins", "--log", "info"]);
    command.env("XDG_CACHE_HOME", place.path().join("cache"));
    let mut host = Host::of(command);
    host.wait_for_line("it says that it is ready", |line| line == "ready");
    host.wait_until_it_said("it compiles for seconds", |line| line.contains(" INFO plugins/bomb.wasm is still being compiled"));

    host.signal("INT");
    let (_, said) = host.end();

    assert!(said.iter().any(|line| line.contains("1 plugin is still loading; events that are due wait")), "{said:#?}");
    assert!(!said.iter().any(|line| line.contains("this host has no listener")), "{said:#?}");
}

#[test]
fn refused_name_is_reported_without_a_warning_about_the_cache() {
    let place = Place::migrated();
    place.plugin("noop");
    let plugins = place.path().join("plugins");
    // A valid file name, and with what the cache would add to it too long for one.
    fs::rename(plugins.join("noop.wasm"), plugins.join(format!("{}.wasm", "a".repeat(240)))).expect("can be renamed");
    let cache = place.path().join("cache");
    let mut host = place.host(&[("XDG_CACHE_HOME", cache.to_str().expect("a plain name"))]);
    host.wait_until_it_said("the name is refused", |line| line.contains("1 to 64 letters, digits, `.`, `_` and `-`"));

    host.signal("TERM");
    let (_, said) = host.end();

    assert!(!said.iter().any(|line| line.contains("cannot be used")), "{said:#?}");
}

#[test]
fn a_host_without_a_required_plugin_delivers_but_is_ready_only_when_that_serves() {
    let place = Place::migrated();
    place.plugin("order-mailer");
    let mut command = place.command(&["run", "--plugins", "plugins", "--log", "info"]);
    command.args(["--set", "plugins.required=[\"noop\"]"]);
    let mut host = Host::of(command);
    host.wait_for_line("why it is not ready", |line| {
        line.contains("it is not ready: the required plugin noop is not in the plugins directory")
    });
    let order = r#"{"order_id":7,"total":12.5,"customer":"ada@example.com"}"#;
    place.ok(&["event", "emit", "--type", "OrderPlaced", "--aggregate-type", "Order", "--payload", order]);
    host.wait_for_mails(1);

    place.plugin("noop");
    host.wait_for_line("it is ready", |line| line == "ready");

    host.signal("TERM");
    let (status, said) = host.end();
    assert_eq!(status.code(), Some(0), "{said:#?}");
    let at = |wanted: &dyn Fn(&str) -> bool| said.iter().position(|line| wanted(line)).expect("it was said");
    assert_eq!(said.iter().filter(|line| *line == "ready").count(), 1, "{said:#?}");
    assert!(at(&|line| line.contains("mail from ")) < at(&|line| line == "ready"), "{said:#?}");
}

fn wait<T>(fact: &str, look: impl Fn() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "expected within {PATIENCE:?}: {fact}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The compilers that a host has started and that still run.
fn compilers(host: u32) -> Vec<u32> {
    let ids = fs::read_dir("/proc").expect("it is there").filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id| is_compiler(*id) && parent(*id) == Some(host)).collect()
}

fn is_compiler(id: u32) -> bool {
    fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|line| line.windows(9).any(|part| part == b"__compile"))
}

fn parent(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The program's name stands in parentheses, and may hold anything.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[test]
fn without_a_database_the_plugins_of_running_hosts_are_unknown() {
    let place = Place::empty();
    place.plugin("order-mailer");

    let listed = place.run(&["plugin", "list"]);
    let checked = place.run(&["plugin", "check", "plugins"]);

    assert_eq!(listed.code, Some(5), "{}", listed.stderr);
    assert!(listed.stdout.contains("order-mailer"), "the directory is listed all the same: {}", listed.stdout);
    assert!(listed.stderr.contains("the plugins of running hosts are unknown"), "{}", listed.stderr);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(checked.stderr.contains("whether a host runs is unknown"), "{}", checked.stderr);
    for ended in [listed, checked] {
        assert!(!ended.stderr.contains("no host runs"), "{}", ended.stderr);
    }
    assert_eq!(place.run(&["plugin", "list", "--here"]).code, Some(0), "it needs no database");
}

#[test]
fn a_list_asks_the_hosts_that_run_and_says_loads_without_one() {
    let place = Place::migrated();
    place.plugin("order-mailer");
    let alone = place.run(&["plugin", "list"]);
    assert!(alone.stdout.contains("loads") && !alone.stdout.contains("serving"), "{}", alone.stdout);
    assert!(alone.stderr.contains("no host runs on this table"), "{}", alone.stderr);

    let host = place.host(&[]);
    let of_host = || {
        let list: serde_json::Value = serde_json::from_str(&place.run(&["plugin", "list", "--output", "json"]).stdout).ok()?;
        list.as_array()?.iter().find(|plugin| plugin["host"].is_string() && plugin["state"] == "serving").cloned()
    };
    let told = wait("the host tells of its plugin", of_host);
    assert_eq!(told["name"], "order-mailer");
    assert!(told["digest"].is_string() && told["routes"].as_array().is_some_and(|routes| routes.len() == 2), "{told}");

    // A broken update: the host goes on with the version before, and says why.
    fs::write(place.path().join("plugins/order-mailer.wasm"), "broken").expect("can be written");
    let older = || Some(place.run(&["plugin", "list"])).filter(|ended| ended.stdout.contains("serving an older version"));
    let ended = wait("the host tells of the fault", older);
    assert_eq!(ended.code, Some(8));
    assert!(ended.stdout.contains("it is text") && ended.stdout.contains(" on "), "{}", ended.stdout);
    assert_eq!(place.run(&["plugin", "list", "--here"]).code, Some(8), "the directory itself");
    drop(host);
}

#[test]
fn a_strict_host_loads_what_was_pinned_and_a_rollback_brings_the_version_before_back() {
    let place = Place::migrated();
    place.plugin("order-mailer");
    place.plugin("noop");
    let noop = place.path().join("plugins/noop.wasm");
    let parked = fs::read(&noop).expect("can be read");
    fs::remove_file(&noop).expect("it is there");
    let locked = place.ok(&["plugin", "lock"]);
    assert!(locked.contains("order-mailer") && locked.contains("added"), "{locked}");
    fs::write(&noop, parked).expect("can be written");

    let listed = place.run(&["plugin", "list", "--set", "plugins.strict=true"]);

    assert_eq!(listed.code, Some(8), "{}", listed.stderr);
    assert!(listed.stdout.contains("noop is not pinned in plugins/plugins.lock"), "{}", listed.stdout);
    assert!(listed.stdout.contains("loads"), "{}", listed.stdout);
}
