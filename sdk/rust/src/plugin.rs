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
    /// Asked when the plugin is loaded, with its settings. The message of a failure keeps this version from serving and is shown to the
    /// operator; the version before it goes on serving.
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
/// [`Handler`](crate::Handler). A listener that returns no `Answer` is refused by the compiler:
///
/// ```compile_fail
/// use outbox_sdk::prelude::*;
/// listener! { "User" / "UserRegistered" => greet }
/// fn greet(event: &Event) {}
/// ```
#[macro_export]
macro_rules! listener {
    (
        $(name: $name:expr,)?
        $(version: $version:expr,)?
        $(check: $check:expr,)?
        $($aggregate_type:literal / $event_type:literal => $handler:expr),+ $(,)?
    ) => {
        /// The plugin that this crate is.
        struct ThisPlugin;

        impl $crate::Plugin for ThisPlugin {
            fn describe() -> $crate::Description {
                $crate::Description {
                    name: ::std::string::String::from($crate::__or!([$($name)?] ::core::env!("CARGO_PKG_NAME"))),
                    version: ::std::string::String::from($crate::__or!([$($version)?] ::core::env!("CARGO_PKG_VERSION"))),
                    routes: ::std::vec![$($crate::Route {
                        aggregate_type: ::std::string::String::from($aggregate_type),
                        event_type: ::std::string::String::from($event_type),
                    }),+],
                }
            }

            fn on_event(event: &$crate::Event) -> $crate::Answer {
                $crate::log::begin_call();
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
