//! Dead events grouped by their errors: errors that differ only in their numbers are one group.

use outbox_event::time::Timestamp;
use outbox_store::Record;

/// How much of an error is compared and shown.
const MOST: usize = 160;
/// A shorter beginning would match too much to filter by.
const SHORTEST_FILTER: usize = 4;

/// Dead events of one route with one error.
#[derive(Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) aggregate_type: String,
    pub(crate) event_type: String,
    /// The error of the newest of them.
    pub(crate) error: String,
    /// A text that is in every error of the group, to filter by; `None` when there is none worth it.
    pub(crate) common: Option<String>,
    pub(crate) count: u64,
    /// When the first and the last of them became dead.
    pub(crate) first: Option<Timestamp>,
    pub(crate) last: Option<Timestamp>,
}

/// The groups of these events, the largest first.
pub(crate) fn groups(dead: &[Record]) -> Vec<Group> {
    let mut groups: Vec<(String, Group)> = Vec::new();
    for record in dead {
        let error = head(record.last_error.as_deref().unwrap_or("no error was recorded"));
        let key = without_numbers(error);
        let same = |(known, group): &&mut (String, Group)| {
            *known == key && group.event_type == record.event_type && group.aggregate_type == record.aggregate_type
        };
        match groups.iter_mut().find(same) {
            Some((_, group)) => {
                group.count += 1;
                group.first = [group.first, record.done_at].into_iter().flatten().min();
                group.last = [group.last, record.done_at].into_iter().flatten().max();
                group.common = group.common.take().map(|common| common_start(&common, error).to_owned());
            }
            None => groups.push((
                key,
                Group {
                    aggregate_type: record.aggregate_type.clone(),
                    event_type: record.event_type.clone(),
                    error: error.to_owned(),
                    common: record.last_error.is_some().then(|| error.to_owned()),
                    count: 1,
                    first: record.done_at,
                    last: record.done_at,
                },
            )),
        }
    }
    let mut groups: Vec<Group> = groups.into_iter().map(|(_, group)| group).collect();
    for group in &mut groups {
        group.common = group.common.take().filter(|common| common.chars().count() >= SHORTEST_FILTER);
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    groups
}

/// The first line of an error, without the details that the host adds after a semicolon.
pub(crate) fn head(error: &str) -> &str {
    let line = error.lines().next().unwrap_or_default();
    let first = line.split_once("; ").map_or(line, |(first, _)| first);
    let end = first.char_indices().nth(MOST).map_or(first.len(), |(end, _)| end);
    &first[..end]
}

fn without_numbers(text: &str) -> String {
    let mut key = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if !c.is_ascii_digit() => key.push(c),
            _ if key.ends_with('#') => {}
            _ => key.push('#'),
        }
    }
    key
}

fn common_start<'a>(one: &'a str, other: &str) -> &'a str {
    let end = one.char_indices().zip(other.chars()).find(|((_, a), b)| a != b).map(|((end, _), _)| end);
    &one[..end.unwrap_or(one.len().min(other.len()))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::fake::record;

    fn dead(route: (&str, &str), error: &str, second: i64) -> Record {
        let done_at = Some(Timestamp::from_micros(second * 1_000_000));
        let (aggregate_type, event_type) = (route.0.to_owned(), route.1.to_owned());
        changed!(Record { aggregate_type, event_type, last_error: Some(error.to_owned()), done_at, ..record() })
    }

    #[test]
    fn errors_that_differ_in_their_numbers_are_one_group_and_can_be_filtered_by_their_beginning() {
        let all = [
            dead(("Order", "Paid"), "HTTP 503 from 10.0.0.7; attempt 3", 30),
            dead(("Order", "Placed"), "HTTP 503 from 10.0.0.7", 25),
            dead(("Order", "Paid"), "HTTP 502 from 10.0.0.12", 20),
            dead(("Order", "Paid"), "deadline", 10),
        ];

        let groups = groups(&all);

        assert_eq!(groups.len(), 3);
        assert_eq!((groups[0].count, groups[0].error.as_str()), (2, "HTTP 503 from 10.0.0.7"));
        assert_eq!(groups[0].common.as_deref(), Some("HTTP 50"));
        assert_eq!((groups[0].first, groups[0].last), (all[2].done_at, all[0].done_at));
        assert!(all.iter().filter(|record| record.last_error.as_deref().unwrap().contains("HTTP 50")).count() == 3);
    }

    #[test]
    fn a_filter_that_would_match_anything_is_none() {
        let groups = groups(&[
            dead(("A", "B"), "5", 1),
            dead(("A", "B"), "7", 2),
            changed!(Record { last_error: None, ..dead(("C", "D"), "", 3) }),
        ]);
        assert_eq!(groups.iter().map(|group| group.common.as_deref()).collect::<Vec<_>>(), [None, None]);
        assert_eq!(groups[1].error, "no error was recorded");
    }

    #[test]
    fn a_head_ends_at_the_first_line_or_semicolon_and_within_a_character() {
        assert_eq!(head("a, b; c\nd"), "a, b");
        assert_eq!(head(&"ü".repeat(500)).chars().count(), MOST);
        assert_eq!(common_start("aüb", "aüc"), "aü");
        assert_eq!(common_start("abc", "ab"), "ab");
    }
}
