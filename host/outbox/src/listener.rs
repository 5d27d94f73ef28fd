//! Listeners: the [`Listener`] trait, its [`Outcome`]s, and the registry that finds the one listener of a route.
//!
//! A listener is a Rust closure, a plugin or a relay; its caller cannot tell which. The types are declared in the package
//! `outbox-listener`.

#[doc(inline)]
pub use outbox_event::{Answer, Cause, DispatchResult, Failure, FailureKind, Outcome, Owner, dead, retry_after};
#[doc(inline)]
pub use outbox_listener::{
    BreakerConfig, Concurrency, Context, Exponential, Fixed, Jittered, JsonListener, Listener, Listeners, OrFail, Registration,
    RegistryEntry, Reply, RetryPolicy, RouteConflict, Visit, awaited, error_kind, is_unroutable,
};
pub(crate) use outbox_listener::{HAD_LISTENER, NO_LISTENER_AT_ALL, NoListener, waits_for_one};
