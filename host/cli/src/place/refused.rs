//! Why a request to a host did not do what it should, and how a command ends with that.

use outbox::wording::placed;
use serde::Deserialize;

use crate::failure::{Exit, Failure};

/// Why a request did not do what it should.
#[derive(Debug)]
pub(super) enum Refused {
    /// The host says no, and why.
    Problem(Problem),
    /// There is no answer of a host.
    Failure(Failure),
    /// There was no connection: nothing was sent.
    Unsent(Failure),
}

/// A refusal, as the API tells it.
#[derive(Debug, Deserialize)]
pub(super) struct Problem {
    pub(super) code: String,
    pub(super) detail: String,
    #[serde(default)]
    pub(super) errors: Vec<FieldError>,
    /// How many events it is, where that is what changed.
    #[serde(default)]
    pub(super) count: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct FieldError {
    #[serde(default)]
    index: Option<usize>,
    pub(super) field: String,
    detail: String,
}

impl Refused {
    /// The code of the refusal; `None` where no host answered.
    pub(super) fn code(&self) -> Option<&str> {
        match self {
            Self::Problem(problem) => Some(&problem.code),
            Self::Failure(_) | Self::Unsent(_) => None,
        }
    }

    /// Whether it may have been done all the same: the answer was lost, or the host does not know itself.
    pub(super) fn may_be_done(&self) -> bool {
        match self {
            Self::Problem(problem) => matches!(problem.code.as_str(), "database_unavailable" | "stopping" | "internal"),
            Self::Failure(_) => true,
            Self::Unsent(_) => false,
        }
    }

    /// One that may be over later without anybody doing anything.
    pub(super) fn passing(self) -> Self {
        match self {
            Self::Failure(failure) => Self::Failure(failure.passing()),
            other => other,
        }
    }

    /// As a command ends with it. `base` is the address of the host.
    pub(super) fn failure(self, base: &str) -> Failure {
        let problem = match self {
            Self::Failure(failure) | Self::Unsent(failure) => return failure,
            Self::Problem(problem) => problem,
        };
        let (exit, fix) = match problem.code.as_str() {
            "unauthorized" => (
                Exit::Config,
                "give a token of this host with OUTBOX_TOKEN or --token '${file:PATH}'; `outbox token new` creates one",
            ),
            "token_expired" => {
                (Exit::Config, "create another with `outbox token new`, and put its lines into the host's outbox.toml")
            }
            "forbidden" => (Exit::Config, "use a token with that role; `outbox token new --help` says what each role may do"),
            "foreign_host" => {
                (Exit::Config, "use the address on which the host listens, or add the name to its http.allowed_hosts")
            }
            "not_found" => (Exit::NotFound, ""),
            "wrong_state" | "count_changed" => (Exit::Conflict, ""),
            "bad_request" | "malformed_json" | "invalid" | "method_not_allowed" | "unsupported_media_type" => (Exit::Usage, ""),
            "database_unavailable" => {
                (Exit::Unreachable, "try again when the host can reach its database again; its log says what is wrong")
            }
            "starting" | "stopping" | "busy" => (Exit::Unreachable, "try again in a moment"),
            "too_large" => (Exit::Failed, "raise http.max_body or http.max_events of the host, or write to its database"),
            _ => (Exit::Failed, ""),
        };
        let mut details: Vec<String> = problem.errors.iter().skip(1).map(FieldError::told).collect();
        details.extend((!fix.is_empty()).then(|| fix.to_owned()));
        let failure = Failure::new(exit, format!("the host at {base} refused: {}", outbox::deceptive::shown(&problem.detail)));
        let failure = failure.details(details);
        if exit == Exit::Unreachable { failure.passing() } else { failure }
    }
}

impl FieldError {
    fn told(&self) -> String {
        let event = self.index.map_or_else(String::new, |index| format!("event {index}: "));
        outbox::deceptive::shown(&format!("{event}{}", placed(&self.field, &self.detail))).into_owned()
    }
}
