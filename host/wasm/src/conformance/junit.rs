//! A report as JUnit XML, which every CI server reads.
//!
//! Not `quick-junit`: it counts skipped tests on `testsuites`, which Jenkins' schema forbids, and leaves line breaks in attributes as
//! they are, where readers see spaces.

use std::fmt::Write;
use std::time::Duration;

use outbox_event::deceptive::is_deceptive;

use super::report::{Finding, Report, Verdict};

/// One test of a suite.
struct Test<'r> {
    name: &'r str,
    class: String,
    verdict: Verdict,
    note: Option<&'r str>,
    findings: &'r [Finding],
    /// What is expected where a finding does not say it.
    promise: Option<&'r str>,
    /// What to do when it fails.
    advice: String,
    took: Duration,
}

impl Report {
    /// The report as JUnit XML: one test case for each rule, and one for each case that the author wrote.
    #[must_use]
    pub fn junit(&self) -> String {
        let rules = self.rules.iter().map(|rule| Test {
            name: rule.id,
            class: format!("{}.rules", self.plugin),
            verdict: rule.verdict,
            note: rule.note.as_deref(),
            findings: &rule.findings,
            promise: Some(rule.promise),
            advice: rule.advice.unwrap_or_default().to_owned(),
            took: rule.took,
        });
        let cases = self.cases.iter().map(|case| Test {
            name: &case.name,
            class: format!("{}.cases", self.plugin),
            verdict: case.verdict,
            note: None,
            findings: &case.findings,
            promise: None,
            advice: match &case.file {
                Some(file) => format!("Mend the plugin, or what the case expects in {file}."),
                None => "Mend the plugin, or what the case expects.".to_owned(),
            },
            took: case.took,
        });
        let counts = |count: fn(&Report, Verdict) -> usize| {
            let (failed, skipped) = (count(self, Verdict::Failed), count(self, Verdict::Skipped));
            let tests = failed + skipped + count(self, Verdict::Passed);
            (format!("tests=\"{tests}\" failures=\"{failed}\" errors=\"0\""), format!("skipped=\"{skipped}\""))
        };
        // `testsuites` has no count of skipped tests in the usual schema.
        let ((counts, skipped), time) = (counts(Report::count), time(self.took()));
        let name = escaped(&format!("{} {}", self.plugin, self.version));
        let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
        let _ = writeln!(xml, "<testsuites name=\"outbox plugin test\" {counts} {time}>");
        let _ = writeln!(xml, "  <testsuite name=\"{name}\" {counts} {skipped} {time}>");
        for test in rules.chain(cases) {
            write_test(&mut xml, &test);
        }
        xml.push_str("  </testsuite>\n</testsuites>\n");
        xml
    }
}

/// The attribute, in seconds.
fn time(took: Duration) -> String {
    format!("time=\"{:.6}\"", took.as_secs_f64())
}

fn write_test(xml: &mut String, test: &Test<'_>) {
    let (name, class) = (escaped(test.name), escaped(&test.class));
    let _ = write!(xml, "    <testcase name=\"{name}\" classname=\"{class}\" {}", time(test.took));
    match test.verdict {
        Verdict::Passed => xml.push_str("/>\n"),
        Verdict::Skipped => {
            let why = escaped(test.note.unwrap_or_default());
            let _ = writeln!(xml, ">\n      <skipped message=\"{why}\"/>\n    </testcase>");
        }
        Verdict::Failed => {
            let told = test.findings.iter().map(|finding| told(finding, test.promise));
            let text = told.chain([test.advice.clone()]).collect::<Vec<_>>().join("\n");
            let (message, text) = (escaped(&message(test)), escaped(&text));
            let _ =
                writeln!(xml, ">\n      <failure message=\"{message}\" type=\"conformance\">{text}</failure>\n    </testcase>");
        }
    }
}

/// The first finding with what was expected, and what to do: all that many CI servers show.
fn message(test: &Test<'_>) -> String {
    let Some(Finding { at, found, expected }) = test.findings.first() else { return test.advice.clone() };
    let expected = expected.as_deref().or(test.promise);
    let expected = expected.map_or_else(String::new, |expected| format!("expected: {expected}; "));
    let more = match test.findings.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    format!("{at}: {expected}got: {found}{more}. {}", test.advice)
}

fn told(finding: &Finding, promise: Option<&str>) -> String {
    let Finding { at, found, expected } = finding;
    match expected.as_deref().or(promise) {
        Some(expected) => format!("{at}\n  expected: {expected}\n  got:      {found}"),
        None => format!("{at}\n  {found}"),
    }
}

/// Text for content and attributes alike. Characters that XML 1.0 cannot hold, not even as a reference, become `\u{…}`; so do
/// those that would show the text in another order.
fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, c| {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            // Unescaped, a reader may turn them into spaces in an attribute.
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            c if is_deceptive(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                let _ = write!(escaped, "\\u{{{:x}}}", u32::from(c));
            }
            c => escaped.push(c),
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_guest_says_breaks_the_document() {
        assert_eq!(
            escaped("a<b>&\"c'\0\u{1b}[2J\u{fffe}\r\n"),
            "a&lt;b&gt;&amp;&quot;c&apos;\\u{0}\\u{1b}[2J\\u{fffe}\\u{d}&#10;"
        );
        assert_eq!(escaped("Grüße 🐦"), "Grüße 🐦");
    }
}
