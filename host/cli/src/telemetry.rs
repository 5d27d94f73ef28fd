//! The export of traces and metrics that the environment asks for. A build without the feature `otel` exports nothing.

#[cfg(feature = "otel")]
pub(crate) use exporting::{Telemetry, faults, start};
#[cfg(not(feature = "otel"))]
pub(crate) use silent::{Telemetry, faults, start};

#[cfg(feature = "otel")]
mod exporting {
    use std::sync::Arc;

    use outbox::telemetry::TelemetryError;
    use outbox::{OutboxBuilder, Store};

    use crate::config::otel;
    use crate::failure::{Exit, Failure};

    pub(crate) use crate::config::otel::faults;

    /// A running exporter.
    #[derive(Clone, Debug)]
    pub(crate) struct Telemetry(outbox::telemetry::Telemetry);

    /// Starts the exporter. `None` if the environment asks for no export.
    pub(crate) fn start() -> Result<Option<Telemetry>, Failure> {
        let Some(config) = otel::telemetry()? else { return Ok(None) };
        let telemetry = outbox::telemetry::Telemetry::start(&config).map_err(|error| {
            let TelemetryError::Config(faults) = error else {
                return Failure::new(Exit::Config, "telemetry cannot be exported").because(error);
            };
            Failure::new(Exit::Config, "the variables of OpenTelemetry are not valid").details(faults)
        })?;
        Ok(Some(Telemetry(telemetry)))
    }

    impl Telemetry {
        /// Makes a host export through this exporter.
        pub(crate) fn attach(&self, builder: OutboxBuilder<Arc<dyn Store>>) -> OutboxBuilder<Arc<dyn Store>> {
            builder.telemetry(&self.0)
        }

        /// The exporter itself, for the hosts of a benchmark.
        pub(crate) const fn exporter(&self) -> &outbox::telemetry::Telemetry {
            &self.0
        }

        /// Flushes what is queued and stops.
        pub(crate) async fn shutdown(self) {
            self.0.shutdown().await;
        }
    }
}

#[cfg(not(feature = "otel"))]
mod silent {
    use std::sync::Arc;

    use outbox::{OutboxBuilder, Store};

    use crate::failure::Failure;

    /// Has no value: this build cannot export.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Telemetry {}

    /// Starts no exporter.
    pub(crate) const fn start() -> Result<Option<Telemetry>, Failure> {
        Ok(None)
    }

    /// Finds no fault: no variable of OpenTelemetry is read.
    pub(crate) const fn faults() -> Vec<String> {
        Vec::new()
    }

    impl Telemetry {
        pub(crate) fn attach(&self, _: OutboxBuilder<Arc<dyn Store>>) -> OutboxBuilder<Arc<dyn Store>> {
            match *self {}
        }

        #[expect(clippy::unused_async, reason = "has the signature of the exporter")]
        pub(crate) async fn shutdown(self) {
            match self {}
        }
    }
}
