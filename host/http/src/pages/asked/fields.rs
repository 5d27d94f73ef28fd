//! The fields of a form or an address.

use axum::extract::{FromRequest, Query, Request};
use axum::http::Uri;

use crate::body;
use crate::pages::Pages;
use crate::problem::Problem;

/// The largest form, in bytes: a token or a filter and a reason.
const MAX_FORM: usize = 64 << 10;

/// The form of a request. It is read within the limits of every body: a client that sends half a form must not keep a connection.
pub(crate) struct Form(pub(crate) Fields);

impl FromRequest<Pages> for Form {
    type Rejection = Problem;

    async fn from_request(request: Request, pages: &Pages) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let body = body::whole(&parts.headers, body, MAX_FORM, pages.host.config.body_timeout).await?;
        Ok(Self(Fields::of_form(body::text(&body)?)))
    }
}

/// Names and values, decoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// The fields of an address; none if it cannot be read.
    pub(crate) fn of_address(uri: &Uri) -> Self {
        Self(Query::try_from_uri(uri).map(|Query(pairs)| pairs).unwrap_or_default())
    }

    /// The fields of a form's body, which is written like the query of an address; none if it cannot be read.
    pub(crate) fn of_form(body: &str) -> Self {
        Uri::builder().path_and_query(format!("/?{body}")).build().map(|uri| Self::of_address(&uri)).unwrap_or_default()
    }

    /// The text of a field, without spaces around it; empty if the field is missing.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.trim())
    }

    /// The number in a field; `None` if there is none.
    pub(crate) fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.text(name).parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_as_a_browser_writes_it() {
        let fields = Fields::of_form("reason=it+works+again%3A+%C3%BC%0D%0A&count=17&error=a%26b&after=");
        assert_eq!(
            (fields.text("reason"), fields.number("count"), fields.text("error")),
            ("it works again: ü", Some(17_u64), "a&b")
        );
        assert_eq!((fields.text("nothing"), fields.number::<u64>("after")), ("", None));
        assert_eq!(Fields::of_form("a b\n<>").text("a"), "", "no form of a browser");
    }
}
