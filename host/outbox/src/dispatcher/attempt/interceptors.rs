//! The interceptors around a call. All calls of `before` share the dispatcher's deadline, and so do all calls of `after`.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

use super::Attempt;
use super::begin::Begun;
use super::call::GRACE;
use crate::chain::panic_text;
use crate::dispatcher::interceptor::Interceptor;
use crate::event::Event;
use crate::listener::{Cause, Failure, Outcome};

type Interceptors = [Arc<dyn Interceptor>];

impl Attempt<'_> {
    /// # Errors
    /// The first failure of an interceptor; it ends the attempt.
    pub(super) async fn before(&self, begun: &Begun<'_>) -> Result<(), Failure> {
        let Self { shared, delivery, .. } = self;
        if shared.interceptors.is_empty() {
            return Ok(());
        }
        let deadline = self.interceptors_deadline(begun);
        match tokio::time::timeout(deadline, call_before(&shared.interceptors, &delivery.event)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::broken(Cause::Interceptor, took_too_long(deadline))),
        }
    }

    /// Reports the outcome to the interceptors. Their failures are logged.
    pub(super) async fn after(&self, begun: &Begun<'_>, outcome: &Outcome) {
        let Self { shared, delivery, .. } = self;
        let deadline = self.interceptors_deadline(begun);
        if tokio::time::timeout(deadline, call_after(&shared.interceptors, &delivery.event, outcome)).await.is_err() {
            log_failure(&delivery.event, &took_too_long(deadline));
        }
    }

    fn interceptors_deadline(&self, begun: &Begun<'_>) -> Duration {
        let deadline = self.shared.config.deadline;
        begun.watched.until(Instant::now() + deadline + GRACE);
        deadline
    }
}

async fn call_before(interceptors: &Interceptors, event: &Event) -> Result<(), Failure> {
    for interceptor in interceptors {
        match AssertUnwindSafe(async { interceptor.before(event).await }).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(message)) => return Err(Failure::broken(Cause::Interceptor, message)),
            Err(panic) => return Err(Failure::broken(Cause::Interceptor, panic_text(&*panic))),
        }
    }
    Ok(())
}

async fn call_after(interceptors: &Interceptors, event: &Event, outcome: &Outcome) {
    for interceptor in interceptors.iter().rev() {
        match AssertUnwindSafe(async { interceptor.after(event, outcome).await }).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(message)) => log_failure(event, &message),
            Err(panic) => log_failure(event, &panic_text(&*panic)),
        }
    }
}

fn took_too_long(deadline: Duration) -> String {
    format!("took longer than {deadline:?} and was cut off")
}

fn log_failure(event: &Event, error: &str) {
    tracing::error!(
        event.id = %event.id(), route = %event.route(), attempt = event.attempt(), error,
        "an interceptor failed after an attempt; the outcome stands"
    );
}
