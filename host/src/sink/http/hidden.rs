//! What an endpoint may repeat of its address, and nobody is shown.

use url::Url;

/// The parts of an address that nobody is shown, though the other side may repeat them in its answer.
#[derive(Debug)]
pub(super) struct Hidden(Vec<String>);

impl Hidden {
    /// The path, the query, and their parts; not what is too short to be a secret.
    pub(super) fn of(url: &Url) -> Self {
        const SHORTEST: usize = 8;
        let path = url.path().split('/').chain([url.path()]);
        let query = url.query().into_iter().flat_map(|query| query.split(['&', '=']).chain([query]));
        let password = url.password().into_iter();
        let parts = path.chain(query).chain(password).filter(|part| part.len() >= SHORTEST);
        let mut parts: Vec<String> = parts.map(str::to_owned).collect();
        // The whole before its parts.
        parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
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

    #[test]
    fn what_the_other_side_repeats_of_an_address_is_hidden() {
        let hidden = Hidden::of(&"https://a/services/T000/s3cr3t-t0ken?key=an0ther-s3cret".parse().unwrap());
        assert_eq!(hidden.hide("Cannot POST /services/T000/s3cr3t-t0ken/o/42"), "Cannot POST ***/o/42");
        assert_eq!(hidden.hide("no s3cr3t-t0ken, no an0ther-s3cret"), "no ***, no ***");
        assert_eq!(Hidden::of(&"https://a/x/".parse().unwrap()).hide("no /x/"), "no /x/");
    }
}
