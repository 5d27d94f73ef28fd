//! Standard output: one JSON line for each message, for trying things out.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use outbox_event::deceptive;
use serde::{Deserialize, Serialize};

use super::batching::{Batch, Limits, Link};
use super::cloud_event::{CloudEvent, SOURCE};
use super::common::{TIMEOUT, any_subject};
use super::kind::Kind;
use super::rests::Rests;
use super::{CommonConfig, SinkError};

const LIMITS: Limits = Limits { messages: 256, bytes: 1 << 20, in_flight: 1 };

/// Prints each message as a CloudEvent in JSON, one a line; control characters are escaped, as JSON does it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StdoutConfig {
    /// The `source` of the CloudEvents. Default `outbox`.
    pub source: String,
}

impl Default for StdoutConfig {
    fn default() -> Self {
        Self { source: SOURCE.to_owned() }
    }
}

impl Kind for StdoutConfig {
    fn kind(&self) -> &'static str {
        "stdout"
    }

    fn target(&self) -> String {
        "standard output".to_owned()
    }

    fn common(&self) -> CommonConfig {
        CommonConfig { timeout: TIMEOUT, subjects: any_subject(), max_age: None }
    }

    fn faults(&self, prefix: &str) -> Vec<String> {
        let fault = || format!("{prefix}.source is empty; name the service that the events are of");
        self.source.is_empty().then(fault).into_iter().collect()
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    fn link(&self, _: &str, _: Rests) -> Result<Arc<dyn Link>, String> {
        Ok(Arc::new(Stdout(self.clone())))
    }
}

struct Stdout(StdoutConfig);

#[async_trait]
impl Link for Stdout {
    async fn send(&self, batch: &Batch, _: Instant) {
        let lines: Vec<Result<Vec<u8>, SinkError>> = batch
            .messages()
            .iter()
            .map(|message| {
                let mut line = escaped(CloudEvent::structured(message, &self.0.source)?);
                line.push(b'\n');
                Ok(line)
            })
            .collect();
        // The reader may be slow, and must not hold up the threads of the runtime.
        let printing = tokio::task::spawn_blocking(move || {
            let mut out = std::io::stdout().lock();
            let print = |line: Result<Vec<u8>, SinkError>| {
                out.write_all(&line?).map_err(|error| SinkError::down(format!("standard output cannot be written: {error}")))
            };
            let answers: Vec<_> = lines.into_iter().map(print).collect();
            match out.flush() {
                Ok(()) => answers,
                Err(error) => vec![Err(SinkError::down(format!("standard output cannot be written: {error}"))); answers.len()],
            }
        });
        // After a panic there are no answers; the caller then takes no message as confirmed.
        batch.answer_all(printing.await.unwrap_or_default());
    }
}

/// Escapes characters that JSON allows and that control a terminal: DEL, the C1 controls, marks of direction.
fn escaped(json: Vec<u8>) -> Vec<u8> {
    String::from_utf8(json).map(|json| deceptive::json(&json).into_owned().into_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_cannot_steer_a_terminal_and_is_still_the_same_json() {
        let value = serde_json::json!({"data": "\u{1b}[2J\u{9b}31m\u{202e}\u{61c}\u{2028}\u{7f}\u{e0100}\u{1d173}x"});
        let line = escaped(serde_json::to_vec(&value).expect("plain data"));
        assert!(line.is_ascii() && !line.contains(&0x1b) && !line.contains(&0x7f));
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&line).expect("is JSON"), value);
    }
}
