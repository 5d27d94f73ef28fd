//! The whole plugin: what it says of itself, and how an event finds its function.

use crate::{Answer, Event, Failure, Route};

/// What a plugin says of itself when it is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its name, for logs and lists.
    pub name: String,
    /// Its version, in whatever form its author uses.
    pub version: String,
    /// The routes that it answers; at least one.
    pub routes: Vec<Route>,
}

/// A plugin: the two questions that a host asks. [`listener!`](crate::listener!) implements it for `ThisPlugin`.
pub trait Plugin {
    /// Asked once, when the plugin is loaded, with no capability and a small budget.
    fn describe() -> Description;

    /// Asked for every delivery.
    ///
    /// # Errors
    /// What the route's function failed with.
    fn on_event(event: &Event) -> Answer;
}

/// A plugin's own look at its settings. [`listener!`](crate::listener!) implements it for `ThisPlugin` where it has a `check`.
pub trait SettingsCheck {
    /// Asked when the plugin is loaded, with its settings. The message of a failure keeps this version from serving and is
    /// shown to the operator; the version before it goes on serving.
    ///
    /// # Errors
    /// When the settings will not do.
    fn check_settings() -> Result<(), Failure>;
}

/// The answer to an event on a route that the plugin did not list: an unrecoverable failure. A host never sends one.
///
/// # Errors
/// Always.
pub fn unknown_route(event: &Event) -> Answer {
    let Route { aggregate_type, event_type } = &event.route;
    Err(Failure::unrecoverable(format_args!("this plugin does not answer {aggregate_type}/{event_type}")))
}

/// The routes of these aggregate types and event types; for [`listener!`](crate::listener!).
#[doc(hidden)]
#[must_use]
pub fn routes(pairs: &[(&str, &str)]) -> Vec<Route> {
    let route = |(aggregate_type, event_type): &(&str, &str)| Route {
        aggregate_type: (*aggregate_type).to_owned(),
        event_type: (*event_type).to_owned(),
    };
    pairs.iter().map(route).collect()
}

/// What comes before each call; for [`listener!`](crate::listener!). With the feature `log`, lines of the crate of that name go
/// to the host from here on, down to the level that it keeps.
#[doc(hidden)]
pub fn begin_call() {
    #[cfg(feature = "log")]
    crate::log_bridge::install();
}

/// Lists what a plugin answers, and makes a plugin of the crate. Once per crate, at any place in it.
///
/// ```
/// use outbox_sdk::prelude::*;
///
/// listener! {
///     name: "welcome-mailer",        // both may be left out: then Cargo.toml's name and version are taken
///     version: "2.1.0",
///     check: check,                  // a look at the settings when the plugin is loaded; may be left out as well
///     "User" / "UserRegistered" => greet,
///     "User" / "UserDeleted" => |_: &Event| Ok(Done),
///     "__GLOBAL__" / "Tick" => |_: &Event| Ok(retry_after(Duration::from_secs(60))),
/// }
///
/// fn check() -> Result<(), Failure> {
///     config::require("sender").map(drop)
/// }
///
/// fn greet(event: &Event, name: String) -> Answer {
///     info!("welcome, {name}");
///     Ok(Done)
/// }
///
/// assert_eq!(ThisPlugin::describe().name, "welcome-mailer");
/// assert_eq!(ThisPlugin::on_event(&Event::for_test("User", "UserRegistered").with_text(r#""Ada""#)), Ok(Done));
/// assert!(ThisPlugin::on_event(&Event::for_test("User", "Unheard")).is_err());
/// assert!(ThisPlugin::check_settings().expect_err("no sender").message.contains("`sender`"));
/// ```
///
/// A route is an aggregate type and an event type; a writer that names no aggregate type writes `__GLOBAL__`. Its function is any
/// [`Handler`](crate::Handler).
///
/// Where the operator sets `isolation = "batch"`, events that are there together come in one call: up to 100 of one tenant.
/// Functions that take many events of a route at a time stand below the routes, each a [`BatchHandler`](crate::BatchHandler):
///
/// ```
/// use outbox_sdk::prelude::*;
///
/// listener! {
///     "User" / "UserRegistered" => greet,
///     "User" / "UserDeleted" => |_: &Event| Ok(Done),
///     batches: {
///         "User" / "UserRegistered" => greet_all,
///     },
/// }
///
/// fn greet(event: &Event) -> Answer {
///     greet_all(std::slice::from_ref(event))?.remove(0)
/// }
///
/// /// In one request for all of them.
/// fn greet_all(events: &[Event]) -> Result<Vec<Answer>, Failure> {
///     let names: Vec<String> = events.iter().map(Event::json).collect::<Result<_, _>>()?;
///     http::post("https://mail.example.com/greetings").json(&names)?.send()?.require_ok()?;
///     Ok(events.iter().map(|_| Ok(Done)).collect())
/// }
///
/// outbox_sdk::testing::respond(http::Response::new(202));
/// let events = ["Ada", "Bob"].map(|name| Event::for_test("User", "UserRegistered").with_json(&name));
/// assert_eq!(ThisPlugin::on_events(&events), [Ok(Done), Ok(Done)]);
/// assert_eq!(outbox_sdk::testing::requests()[0].body, br#"["Ada","Bob"]"#);
/// ```
///
/// Such a function gets the events of its route that follow each other; events of other routes go to their own functions one by
/// one, and so do all events of a call that broke off. So the route of a batch is listed among the others as well. Emitting and
/// keeping state belong to one event and are refused in such a call; a message says which event it is
/// [for](crate::Message::for_event), and a request [may](crate::http::Request::for_event).
///
/// A listener that returns no `Answer` is refused by the compiler, and so is a batch whose route is not listed:
///
/// ```compile_fail
/// use outbox_sdk::prelude::*;
/// listener! { "User" / "UserRegistered" => greet }
/// fn greet(event: &Event) {}
/// ```
///
/// ```compile_fail
/// use outbox_sdk::prelude::*;
/// listener! {
///     "User" / "UserRegistered" => |_: &Event| Ok(Done),
///     batches: { "User" / "UserDeleted" => |events: &[Event]| events.iter().map(|_| Ok(Done)).collect::<Vec<Answer>>() },
/// }
/// ```
#[macro_export]
macro_rules! listener {
    (
        $(name: $name:expr,)?
        $(version: $version:expr,)?
        $(check: $check:expr,)?
        $($aggregate_type:literal / $event_type:literal => $handler:expr),+
        $(, batches: { $($batch_aggregate:literal / $batch_event:literal => $batch:expr),+ $(,)? })?
        $(,)?
    ) => {
        /// The plugin that this crate is.
        struct ThisPlugin;

        impl ThisPlugin {
            /// Aggregate type and event type of each route.
            const ROUTES: &[(&str, &str)] = &[$(($aggregate_type, $event_type)),+];
        }

        impl $crate::Plugin for ThisPlugin {
            fn describe() -> $crate::Description {
                $crate::Description {
                    name: ::std::string::String::from($crate::__or!([$($name)?] ::core::env!("CARGO_PKG_NAME"))),
                    version: ::std::string::String::from($crate::__or!([$($version)?] ::core::env!("CARGO_PKG_VERSION"))),
                    routes: $crate::routes(ThisPlugin::ROUTES),
                }
            }

            fn on_event(event: &$crate::Event) -> $crate::Answer {
                $crate::begin_call();
                match (event.route.aggregate_type.as_str(), event.route.event_type.as_str()) {
                    $(($aggregate_type, $event_type) => $crate::Handler::handle(&$handler, event),)+
                    _ => $crate::unknown_route(event),
                }
            }
        }

        // Natively nothing is exported (a native linker does not take a component's export names), so this use alone keeps the
        // functions from being called dead code.
        const _: fn(&$crate::Event) -> $crate::Answer = <ThisPlugin as $crate::Plugin>::on_event;

        #[cfg(target_family = "wasm")]
        $crate::bindings::export!(ThisPlugin with_types_in $crate::bindings);

        $(
            impl $crate::SettingsCheck for ThisPlugin {
                fn check_settings() -> ::core::result::Result<(), $crate::Failure> {
                    $check()
                }
            }

            #[cfg(target_family = "wasm")]
            $crate::bindings::settings_check::export_settings_check!(
                ThisPlugin with_types_in $crate::bindings::settings_check
            );
        )?

        $(
            const _: () = ::core::assert!(
                $crate::all_listed(&[$(($batch_aggregate, $batch_event)),+], ThisPlugin::ROUTES),
                "each route of `batches` must be among the routes of `listener!` as well"
            );

            impl $crate::BatchPlugin for ThisPlugin {
                fn on_events(events: &[$crate::Event]) -> ::std::vec::Vec<$crate::Answer> {
                    $crate::begin_call();
                    $crate::answer_all(
                        events,
                        |events| match (events[0].route.aggregate_type.as_str(), events[0].route.event_type.as_str()) {
                            $(($batch_aggregate, $batch_event) => {
                                ::core::option::Option::Some($crate::BatchHandler::handle_all(&$batch, events))
                            })+
                            _ => ::core::option::Option::None,
                        },
                        <ThisPlugin as $crate::Plugin>::on_event,
                    )
                }
            }

            const _: fn(&[$crate::Event]) -> ::std::vec::Vec<$crate::Answer> = <ThisPlugin as $crate::BatchPlugin>::on_events;

            #[cfg(target_family = "wasm")]
            $crate::bindings::batch_handler::export_batch_handler!(
                ThisPlugin with_types_in $crate::bindings::batch_handler
            );
        )?
    };
}

/// The first expression if there is one, else the second; for [`listener!`](crate::listener!).
#[doc(hidden)]
#[macro_export]
macro_rules! __or {
    ([] $default:expr) => {
        $default
    };
    ([$given:expr] $default:expr) => {
        $given
    };
}
