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
    /// The checks with their findings. The error if it failed or its output cannot be parsed.
    findings: Result<Vec<(String, String)>, String>,
}

impl Doctor {
    /// Of a run with `--output json`.
    pub(super) fn of(ended: &Ended) -> Self {
        let all = match ended.code {
            Some(0 | 8) => serde_json::from_str::<Vec<Value>>(&ended.stdout).map_err(|error| error.to_string()),
            _ => Err(ended.stderr.clone()),
        };
        let text = |finding: &Value, name: &str| finding[name].as_str().unwrap_or_default().to_owned();
        let findings = all.map(|all| {
            let bad = all.iter().filter(|finding| finding["severity"] != "good");
            bad.map(|finding| (text(finding, "check"), text(finding, "found"))).collect::<Vec<_>>()
        });
        Self { code: ended.code, findings }
    }

    /// Whether it ended as with problems, and one finding, `CHECK: …`, has all of these parts.
    pub(super) fn names(&self, parts: &[String]) -> bool {
        let mut lines = self.findings.iter().flatten().map(|(check, found)| format!("{check}: {found}"));
        self.code == Some(8) && lines.any(|line| has_all(&line, parts))
    }

    /// Whether it failed, or found something that it had not found before.
    pub(super) fn is_worse_than(&self, before: &Self) -> bool {
        let checks = |doctor: &Self| doctor.findings.iter().flatten().map(|(check, _)| check.clone()).collect::<BTreeSet<_>>();
        let has_first_problem = self.code == Some(8) && before.code == Some(0);
        self.findings.is_err() || has_first_problem || !checks(self).is_subset(&checks(before))
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
fn a_doctor_that_failed_is_worse_than_one_that_found_a_problem_again() {
    let run = |code, stdout: &str| Doctor::of(&Ended { code, stdout: stdout.to_owned(), stderr: String::new() });
    let finding = |check: &str| format!(r#"[{{"check":"{check}","severity":"fault","found":"1 event"}}]"#);
    let (well, found) = (run(Some(0), "[]"), run(Some(8), &finding("dead")));

    assert!(!well.is_worse_than(&well) && !well.is_worse_than(&found) && !found.is_worse_than(&found));
    assert!(found.is_worse_than(&well) && run(Some(8), &finding("hosts")).is_worse_than(&found));
    for failed in [run(Some(101), ""), run(Some(0), ""), run(None, "[]")] {
        assert!(failed.is_worse_than(&found), "{failed:?}");
    }
}

#[test]
fn the_first_problem_of_a_page_is_found() {
    let page = |status: &str| format!("HTTP/1.1 200 OK\r\n\r\n<main><p class=\"status {status}</p></main>");
    let problem = "fault\"><span aria-hidden=\"true\">✕</span> 1 event is dead: <em>no</em> <a href=\"/dead\">Show</a>";

    assert_eq!(first_problem(&page(problem)).as_deref(), Some("✕ 1 event is dead: no Show"));
    assert_eq!(first_problem(&page("well\">All well")), None);
}
