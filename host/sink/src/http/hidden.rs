//! What an endpoint may repeat of the address and the headers that it was given, and nobody is shown.

use http::HeaderMap;
use percent_encoding::percent_decode_str;
use url::Url;

/// What nobody is shown of a sink's configuration, though the endpoint may repeat it in its answer.
#[derive(Debug)]
pub(super) struct Hidden(Vec<String>);

impl Hidden {
    /// The path, the query, the password, and the values of these headers, with their parts; as written, and percent-decoded. Not
    /// what is too short to be a secret.
    pub(super) fn of(url: &Url, headers: &HeaderMap) -> Self {
        const SHORTEST: usize = 8;
        let path = url.path().split('/').chain([url.path()]);
        let query = url.query().into_iter().flat_map(|query| query.split(['&', '=']).chain([query]));
        let values = headers.values().filter_map(|value| value.to_str().ok());
        let values = values.flat_map(|value| value.split_ascii_whitespace().chain([value]));
        let written = path.chain(query).chain(url.password()).chain(values);
        let parts = written.flat_map(|part| [part.to_owned(), percent_decode_str(part).decode_utf8_lossy().into_owned()]);
        let mut parts: Vec<String> = parts.filter(|part| part.len() >= SHORTEST).collect();
        // The whole before its parts.
        parts.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        parts.dedup();
        Self(parts)
    }

    /// A text of the other side without them.
    pub(super) fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, part| text.replace(part, "***"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(address: &str) -> Hidden {
        Hidden::of(&address.parse().unwrap(), &HeaderMap::new())
    }

    #[test]
    fn what_the_other_side_repeats_of_an_address_is_hidden() {
        let secret = hidden("https://a/services/T000/s3cr3t-t0ken?key=an0ther%2Fs3cret");
        assert_eq!(secret.hide("Cannot POST /services/T000/s3cr3t-t0ken/o/42"), "Cannot POST ***/o/42");
        assert_eq!(secret.hide("no s3cr3t-t0ken, no an0ther%2Fs3cret, no an0ther/s3cret"), "no ***, no ***, no ***");
        assert_eq!(hidden("https://a/x/").hide("no /x/"), "no /x/");
    }

    #[test]
    fn what_the_other_side_repeats_of_a_header_is_hidden() {
        let headers = [("authorization", "Bearer sk_live_s3cret"), ("x-short", "abc")];
        let headers =
            headers.map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).into_iter().collect();
        let hidden = Hidden::of(&"https://a".parse().unwrap(), &headers);
        assert_eq!(hidden.hide("invalid token sk_live_s3cret"), "invalid token ***");
        assert_eq!(hidden.hide("authorization: Bearer sk_live_s3cret, x-short: abc"), "authorization: ***, x-short: abc");
    }
}
