//! The reports of `outbox doctor` and of the overview page.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::program::Ended;

/// Both reports, at one time.
#[derive(Debug)]
pub(super) struct Reports {
    pub(super) doctor: Doctor,
    /// `None` if there is no problem.
    pub(super) first_problem: Option<String>,
}

/// The problems that `outbox doctor` found.
#[derive(Debug)]
pub(super) struct Doctor {
    code: Option<i32>,
    /// The checks with their findings.
    findings: Vec<(String, String)>,
}

impl Doctor {
    /// Of a run with `--output json`.
    pub(super) fn of(ended: &Ended) -> Self {
        let findings: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap_or_default();
        let text = |finding: &Value, name: &str| finding[name].as_str().unwrap_or_default().to_owned();
        let bad = findings.iter().filter(|finding| finding["severity"] != "good");
        Self { code: ended.code, findings: bad.map(|finding| (text(finding, "check"), text(finding, "found"))).collect() }
    }

    /// Whether it ended as with problems, and one finding, `CHECK: …`, has all of these parts.
    pub(super) fn names(&self, parts: &[String]) -> bool {
        let mut lines = self.findings.iter().map(|(check, found)| format!("{check}: {found}"));
        self.code == Some(8) && lines.any(|line| has_all(&line, parts))
    }

    /// Whether it found something that it had not found before, or could not find all.
    pub(super) fn is_worse_than(&self, before: &Self) -> bool {
        let checks = |doctor: &Self| doctor.findings.iter().map(|(check, _)| check.clone()).collect::<BTreeSet<_>>();
        self.code != before.code || !checks(self).is_subset(&checks(before))
    }
}

pub(super) fn has_all(text: &str, parts: &[String]) -> bool {
    parts.iter().all(|part| text.contains(part.as_str()))
}

/// The first problem on a page, without tags. `None` if the page shows no problem.
///
/// # Panics
/// If this is no page.
pub(super) fn first_problem(page: &str) -> Option<String> {
    assert!(page.starts_with("HTTP/1.1 200 "), "the host answers: {page}");
    let starts = ["<p class=\"status fault\">", "<p class=\"status warning\">"].into_iter().filter_map(|tag| page.find(tag));
    let (problem, _) = page[starts.min()?..].split_once("</p>")?;
    // The text behind each tag.
    Some(problem.split('<').filter_map(|part| Some(part.split_once('>')?.1)).collect())
}

#[test]
fn the_first_problem_of_a_page_is_found() {
    let page = |status: &str| format!("HTTP/1.1 200 OK\r\n\r\n<main><p class=\"status {status}</p></main>");
    let problem = "fault\"><span aria-hidden=\"true\">✕</span> 1 event is dead: <em>no</em> <a href=\"/dead\">Show</a>";

    assert_eq!(first_problem(&page(problem)).as_deref(), Some("✕ 1 event is dead: no Show"));
    assert_eq!(first_problem(&page("well\">All well")), None);
}
