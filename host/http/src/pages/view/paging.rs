//! Long lists, a page at a time: a list may be of any length, and a page stays small. Pure.

use maud::{Markup, html};
use outbox_event::units::number;

use crate::pages::asked::fields::Fields;
use crate::pages::document::Frame;
use crate::pages::link::query;

/// One page of a list of known length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paging {
    /// The first row, from 0.
    from: usize,
    size: usize,
    total: usize,
}

impl Paging {
    /// The page that the address asks for, from 1; the last one where there are fewer. `size` is at least 1.
    pub(crate) fn of(asked: &Fields, size: usize, total: usize) -> Self {
        let wanted = asked.number::<usize>("page").unwrap_or(1).saturating_sub(1);
        Self { from: wanted.min(total.saturating_sub(1) / size) * size, size, total }
    }

    /// The page that begins with this row; the last rows where there are fewer.
    pub(crate) fn from(row: usize, size: usize, total: usize) -> Self {
        let from = if row < total { row } else { total.saturating_sub(size) };
        Self { from, size, total }
    }

    /// The elements of this page.
    pub(crate) fn slice<'a, T>(&self, all: &'a [T]) -> &'a [T] {
        all.get(self.from..all.len().min(self.from + self.size)).unwrap_or_default()
    }

    /// `101–200 of 30,000`, and links to the pages around it by their numbers; nothing where there is one page. `pairs` is the
    /// rest of the address.
    pub(crate) fn show(&self, frame: &Frame, path: &str, pairs: &[(&str, &str)]) -> Markup {
        self.show_by(frame, path, pairs, |row| ("page", (row / self.size + 1).to_string()))
    }

    /// As [`show`](Self::show); `name` says how the address names the page that begins with a row.
    pub(crate) fn show_by(
        &self,
        frame: &Frame,
        path: &str,
        pairs: &[(&str, &str)],
        name: impl Fn(usize) -> (&'static str, String),
    ) -> Markup {
        let end = self.total.min(self.from + self.size);
        let link = |row: usize| {
            let (name, value) = name(row);
            let pairs: Vec<_> = pairs.iter().copied().chain([(name, value.as_str())]).collect();
            frame.to(&format!("{path}?{}", query(&pairs)))
        };
        html! {
            @if self.total > self.size {
                div.pages {
                    @if self.from > 0 { a href=(link(self.from.saturating_sub(self.size))) rel="prev" { "← Previous" } }
                    span.quiet { (number(self.from as u64 + 1)) "–" (number(end as u64)) " of " (number(self.total as u64)) }
                    @if end < self.total { a href=(link(end)) rel="next" { "Next →" } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::fake::frame;

    #[test]
    fn every_element_is_on_one_page_and_no_address_leads_beyond_the_last() {
        let all: Vec<usize> = (0..250).collect();
        let page = |wanted: &str| Paging::of(&Fields::of_form(&format!("page={wanted}")), 100, all.len());
        let seen: Vec<usize> = ["1", "2", "3"].iter().flat_map(|wanted| page(wanted).slice(&all).to_vec()).collect();
        assert_eq!(seen, all);
        assert_eq!([page(""), page("0"), page("-1"), page("x")].map(|paging| paging.slice(&all)[0]), [0; 4]);
        assert_eq!(page("18446744073709551615"), page("3"));
        assert_eq!(Paging::of(&Fields::default(), 100, 0).slice(&all[..0]), &all[..0]);

        let text = |paging: Paging| paging.show(&frame(), "routes", &[("q", "a&b"), ("state", "")]).into_string();
        assert!(
            text(page("1")).contains("1–100 of 250") && text(page("1")).contains("routes?q=a%26b&amp;page=2"),
            "{}",
            text(page("1"))
        );
        assert!(!text(page("1")).contains("rel=\"prev\"") && !text(page("3")).contains("rel=\"next\""));
        assert!(
            text(page("3")).contains("201–250 of 250") && text(page("3")).contains("page=2\" rel=\"prev\""),
            "{}",
            text(page("3"))
        );
        assert_eq!(text(Paging::of(&Fields::default(), 100, 100)), "", "one page needs no links");
    }
}
