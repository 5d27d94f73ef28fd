//! Routes that go from one plugin to another, and plugins that go all at once.

use std::path::Path;
use std::sync::Arc;

use outbox_event::{Outcome, PluginState, Route};
use outbox_listener::Listeners;

use super::reload::{answering, start};
use super::{event, visit};
use crate::Plugins;

const PLACED: (&str, &str) = ("Order", "OrderPlaced");
const PAID: (&str, &str) = ("Order", "OrderPaid");

/// What the listener of a route answers now, in milliseconds; `None` when there is none.
async fn answer(listeners: &Listeners, (aggregate_type, event_type): (&str, &str)) -> Option<u128> {
    let found = listeners.find(&Route::new(aggregate_type, event_type).unwrap())?;
    let event = event(None);
    match found.registration.listener.call(visit(&event, 0, 1)).await.outcome {
        Outcome::RetryAfter(delay) => Some(delay.as_millis()),
        other => panic!("{other:?}"),
    }
}

/// How often the table was swapped by one turn of the crank.
async fn swaps(plugins: &Plugins, listeners: &Arc<Listeners>) -> u64 {
    let before = *listeners.changes().borrow();
    plugins.rescan().await;
    let after = *listeners.changes().borrow();
    after - before
}

fn state(plugins: &Plugins, name: &str) -> Option<PluginState> {
    plugins.list().into_iter().find(|status| status.name == name).map(|status| status.state)
}

fn remove(dir: &Path, name: &str) {
    std::fs::remove_file(dir.join(name)).unwrap();
}

#[tokio::test]
async fn a_route_that_moves_to_another_plugin_is_never_without_a_listener() {
    let dir = tempfile::tempdir().unwrap();
    answering(1_000).routes(&[PLACED, PAID]).write(dir.path(), "a");
    let (plugins, listeners) = start(dir.path()).await;

    answering(2_000).routes(&[PLACED]).write(dir.path(), "a");
    answering(3_000).routes(&[PAID]).write(dir.path(), "b");

    assert_eq!(swaps(&plugins, &listeners).await, 1, "from one table to the next, with nothing between");
    assert_eq!((answer(&listeners, PLACED).await, answer(&listeners, PAID).await), (Some(2_000), Some(3_000)));
}

#[tokio::test]
async fn two_plugins_can_change_their_routes_for_each_others() {
    let dir = tempfile::tempdir().unwrap();
    answering(1_000).routes(&[PLACED]).write(dir.path(), "a");
    answering(2_000).routes(&[PAID]).write(dir.path(), "b");
    let (plugins, listeners) = start(dir.path()).await;

    answering(3_000).routes(&[PAID]).write(dir.path(), "a");
    answering(4_000).routes(&[PLACED]).write(dir.path(), "b");

    assert_eq!(swaps(&plugins, &listeners).await, 1);
    assert_eq!((answer(&listeners, PLACED).await, answer(&listeners, PAID).await), (Some(4_000), Some(3_000)));
}

#[tokio::test]
async fn a_plugin_that_is_renamed_answers_all_the_while() {
    let dir = tempfile::tempdir().unwrap();
    answering(1_000).write(dir.path(), "mailer");
    let (plugins, listeners) = start(dir.path()).await;

    std::fs::rename(dir.path().join("mailer.wasm"), dir.path().join("order-mailer.wasm")).unwrap();

    assert_eq!(swaps(&plugins, &listeners).await, 1);
    assert_eq!(answer(&listeners, PLACED).await, Some(1_000));
    assert_eq!((state(&plugins, "mailer"), state(&plugins, "order-mailer")), (None, Some(PluginState::Serving)));
}

#[tokio::test]
async fn a_move_that_one_side_cannot_make_leaves_both_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    answering(1_000).routes(&[PLACED]).write(dir.path(), "a");
    answering(2_000).routes(&[PAID]).write(dir.path(), "b");
    answering(5_000).routes(&[("Order", "OrderShipped")]).write(dir.path(), "c");
    let (plugins, listeners) = start(dir.path()).await;

    answering(3_000).routes(&[PAID]).write(dir.path(), "a");
    answering(4_000).routes(&[PLACED, ("Order", "OrderShipped")]).write(dir.path(), "b");
    plugins.rescan().await;

    assert_eq!((answer(&listeners, PLACED).await, answer(&listeners, PAID).await), (Some(1_000), Some(2_000)));
    for name in ["a", "b"] {
        let status = plugins.list().into_iter().find(|status| status.name == name).unwrap();
        assert!(status.error.as_deref().is_some_and(|error| error.contains("is already answered by")), "{status:?}");
    }
    // The third gives up its route: both can go on, without being written again.
    remove(dir.path(), "c.wasm");
    plugins.rescan().await;
    assert_eq!((answer(&listeners, PLACED).await, answer(&listeners, PAID).await), (Some(4_000), Some(3_000)));
    assert_eq!(answer(&listeners, ("Order", "OrderShipped")).await, Some(4_000));
}

#[tokio::test]
async fn plugins_that_are_gone_all_at_once_go_on_serving() {
    let dir = tempfile::tempdir().unwrap();
    answering(1_000).routes(&[PLACED]).write(dir.path(), "a");
    answering(2_000).routes(&[PAID]).write(dir.path(), "b");
    let (plugins, listeners) = start(dir.path()).await;

    remove(dir.path(), "a.wasm");
    remove(dir.path(), "b.wasm");
    plugins.rescan().await;

    assert_eq!((answer(&listeners, PLACED).await, answer(&listeners, PAID).await), (Some(1_000), Some(2_000)));
    let list = plugins.list();
    assert_eq!(list.len(), 2);
    for status in list {
        assert_eq!(status.state, PluginState::Serving);
        assert!(status.error.as_deref().is_some_and(|error| error.contains("holds no plugins any more")), "{status:?}");
    }
    // One is back: so the directory is what it seems, and the other is unloaded.
    answering(3_000).routes(&[PLACED]).write(dir.path(), "a");
    plugins.rescan().await;
    assert_eq!((answer(&listeners, PLACED).await, answer(&listeners, PAID).await), (Some(3_000), None));
}

#[tokio::test]
async fn a_directory_that_goes_away_changes_nothing_and_is_followed_when_it_comes_back() {
    let parent = tempfile::tempdir().unwrap();
    let (dir, away) = (parent.path().join("plugins"), parent.path().join("away"));
    std::fs::create_dir(&dir).unwrap();
    answering(1_000).routes(&[PLACED]).write(&dir, "a");
    let (plugins, listeners) = start(&dir).await;

    std::fs::rename(&dir, &away).unwrap();
    plugins.rescan().await;
    let status = plugins.list().remove(0);
    assert!(status.error.as_ref().is_some_and(|error| error.contains("does not exist")), "{status:?}");
    assert_eq!((status.state, answer(&listeners, PLACED).await), (PluginState::Serving, Some(1_000)));
    // What is mounted over it, before the volume is there again.
    std::fs::create_dir(&dir).unwrap();
    plugins.rescan().await;
    assert_eq!(answer(&listeners, PLACED).await, Some(1_000), "an empty mount point");

    std::fs::remove_dir(&dir).unwrap();
    answering(2_000).routes(&[PLACED]).write(&away, "a");
    std::fs::rename(&away, &dir).unwrap();
    plugins.rescan().await;
    assert_eq!((plugins.list().remove(0).error, answer(&listeners, PLACED).await), (None, Some(2_000)));
}
