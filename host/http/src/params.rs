//! What stands in the address of a request: parameters of the query, names in the path.

use std::str::FromStr;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use outbox_event::EventId;
use serde::de::DeserializeOwned;

use super::problem::{FieldError, Kind, Problem};

/// The largest page.
pub(super) const MAX_PAGE: u32 = 200;
/// A page without a wish.
const PAGE: u32 = 50;

/// The parameters of the query. Each is taken once; what is left in the end is unknown, and an error: a filter that is spelt
/// wrong must not mean everything.
#[derive(Debug, Default)]
pub(super) struct Params {
    pairs: Vec<(String, String)>,
    errors: Vec<FieldError>,
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let Query(pairs) =
            query.map_err(|error| Problem::new(Kind::BadRequest, format!("the query cannot be read: {error}")))?;
        if let Some((name, _)) = pairs.iter().find(|(_, value)| value.contains('\0')) {
            return Err(Problem::field(name, "it contains a NUL character, which no text of an event contains"));
        }
        // A filter from a variable that is not set must not mean everything.
        if let Some((name, _)) = pairs.iter().find(|(_, value)| value.is_empty()) {
            return Err(Problem::field(name, "it is empty; give it a value, or leave it out"));
        }
        Ok(Self { pairs, errors: Vec::new() })
    }
}

impl Params {
    /// The text of a parameter that is called one of these names.
    pub(super) fn text(&mut self, names: &[&str]) -> Option<String> {
        let place = self.pairs.iter().position(|(name, _)| names.contains(&name.as_str()))?;
        let (name, value) = self.pairs.remove(place);
        if self.pairs.iter().any(|(name, _)| names.contains(&name.as_str())) {
            self.errors.push(FieldError::new(name, "it is there twice"));
            self.pairs.retain(|(name, _)| !names.contains(&name.as_str()));
        }
        Some(value)
    }

    /// A parameter that reads as something.
    pub(super) fn value<T: FromStr>(&mut self, name: &str, hint: &str) -> Option<T> {
        let text = self.text(&[name])?;
        let value = text.parse().ok();
        if value.is_none() {
            self.errors.push(FieldError::new(name, format!("it is `{text}`; {hint}")));
        }
        value
    }

    /// A parameter that is one of these words.
    pub(super) fn one_of(&mut self, name: &str, known: &[&str]) -> Option<String> {
        let text = self.text(&[name])?;
        let is_known = known.contains(&text.as_str());
        if !is_known {
            self.fault(name, format!("it is `{text}`; write one of {}", known.join(", ")));
        }
        is_known.then_some(text)
    }

    /// The parameter whose name begins with `prefix`: the rest of its name, and its text.
    pub(super) fn named(&mut self, prefix: &str) -> Option<(String, String)> {
        let place = self.pairs.iter().position(|(name, _)| name.len() > prefix.len() && name.starts_with(prefix))?;
        let (name, value) = self.pairs.remove(place);
        Some((name[prefix.len()..].to_owned(), value))
    }

    /// A yes or no; no when it is not there.
    pub(super) fn is_set(&mut self, name: &str) -> bool {
        self.value(name, "write true or false").unwrap_or(false)
    }

    /// How many rows a page has.
    pub(super) fn limit(&mut self) -> u32 {
        let limit = self.value::<u32>("limit", "write a number from 1 to 200");
        if let Some(limit) = limit.filter(|limit| !(1..=MAX_PAGE).contains(limit)) {
            self.errors.push(FieldError::new("limit", format!("it is {limit}; write a number from 1 to {MAX_PAGE}")));
        }
        limit.unwrap_or(PAGE)
    }

    /// Notes that a parameter breaks its rule.
    pub(super) fn fault(&mut self, name: &str, detail: impl Into<String>) {
        self.errors.push(FieldError::new(name, detail));
    }

    /// Nothing may be left, and nothing may have been wrong.
    ///
    /// # Errors
    /// 422 with every parameter that is unknown, or does not read as it should.
    pub(super) fn finish(self) -> Result<(), Problem> {
        let unknown = self.pairs.into_iter().map(|(name, _)| FieldError::new(name, "this parameter is unknown"));
        let errors: Vec<FieldError> = self.errors.into_iter().chain(unknown).collect();
        if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(errors)) }
    }
}

/// What stands in the path.
///
/// # Errors
/// 404: a path that cannot be read leads nowhere.
pub(super) struct Named<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let named: Result<Path<T>, PathRejection> = Path::from_request_parts(parts, state).await;
        named.map(|Path(named)| Self(named)).map_err(|error| Problem::new(Kind::NotFound, error.body_text()))
    }
}

/// The event that the path names.
pub(super) struct Id(pub(super) EventId);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Named(text) = Named::<String>::from_request_parts(parts, state).await?;
        text.parse().map(Self).map_err(|error| Problem::new(Kind::NotFound, format!("no event is called so: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    async fn params(query: &str) -> Params {
        let (mut parts, ()) = Request::builder().uri(format!("/x?{query}")).body(()).unwrap().into_parts();
        Params::from_request_parts(&mut parts, &()).await.expect("reads")
    }

    #[tokio::test]
    async fn what_is_unknown_twice_or_wrong_is_told_all_at_once() {
        let mut params = params("type=A&event_type=B&limit=201&after=x&typ=C").await;
        assert_eq!(params.text(&["type", "event_type"]).as_deref(), Some("A"));
        params.limit();
        assert_eq!(params.value::<u64>("after", "write the seq of a row"), None);
        let problem = params.finish().expect_err("refused");
        assert_eq!(problem.code(), "invalid");
        for part in ["type: it is there twice", "and 3 more"] {
            assert!(problem.detail().contains(part), "{}", problem.detail());
        }
    }

    #[tokio::test]
    async fn an_empty_value_is_no_value() {
        let (mut parts, ()) = Request::builder().uri("/x?limit=1&type=").body(()).unwrap().into_parts();
        let problem = Params::from_request_parts(&mut parts, &()).await.expect_err("refused");
        assert_eq!((problem.code(), problem.detail()), ("invalid", "type: it is empty; give it a value, or leave it out"));
    }

    #[tokio::test]
    async fn a_header_is_named_by_the_rest_of_its_parameter() {
        let mut params = params("header.source=shop%20a&after=7").await;
        assert_eq!(params.named("header."), Some(("source".to_owned(), "shop a".to_owned())));
        assert_eq!((params.value("after", ""), params.limit()), (Some(7_u64), 50));
        params.finish().expect("nothing is left");
    }
}
