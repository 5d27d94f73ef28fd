//! A report as JUnit XML, which every CI server reads.

use std::fmt::Write;

use super::report::{Finding, Report, Verdict};

/// One test of a suite.
struct Test<'r> {
    name: &'r str,
    class: String,
    verdict: Verdict,
    note: Option<&'r str>,
    findings: &'r [Finding],
    advice: Option<&'r str>,
}

pub(super) fn written(report: &Report) -> String {
    let rules = report.rules.iter().map(|rule| Test {
        name: rule.id,
        class: format!("{}.rules", report.plugin),
        verdict: rule.verdict,
        note: rule.note.as_deref(),
        findings: &rule.findings,
        advice: rule.advice,
    });
    let cases = report.cases.iter().map(|case| Test {
        name: &case.name,
        class: format!("{}.cases", report.plugin),
        verdict: case.verdict,
        note: None,
        findings: &case.findings,
        advice: None,
    });
    let counts = |count: fn(&Report, Verdict) -> usize| {
        let (failed, skipped) = (count(report, Verdict::Failed), count(report, Verdict::Skipped));
        let tests = failed + skipped + count(report, Verdict::Passed);
        format!("tests=\"{tests}\" failures=\"{failed}\" errors=\"0\" skipped=\"{skipped}\" time=\"0\"")
    };
    let counts = counts(Report::count);
    let name = escaped(&format!("{} {}", report.plugin, report.version));
    // `testsuites` has no count of skipped tests in the usual schema.
    let all = counts.split(" skipped").next().unwrap_or_default();
    let mut xml = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"outbox plugin test\" {all}>\n");
    let _ = writeln!(xml, "  <testsuite name=\"{name}\" {counts}>");
    for test in rules.chain(cases) {
        write_test(&mut xml, &test);
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

fn write_test(xml: &mut String, test: &Test<'_>) {
    let (name, class) = (escaped(test.name), escaped(&test.class));
    let _ = write!(xml, "    <testcase name=\"{name}\" classname=\"{class}\" time=\"0\"");
    match test.verdict {
        Verdict::Passed => xml.push_str("/>\n"),
        Verdict::Skipped => {
            let why = escaped(test.note.unwrap_or_default());
            let _ = writeln!(xml, ">\n      <skipped message=\"{why}\"/>\n    </testcase>");
        }
        Verdict::Failed => {
            let first = test.findings.first().map(|finding| format!("{}: {}", finding.at, finding.found)).unwrap_or_default();
            let text = test.findings.iter().map(told).chain(test.advice.map(str::to_owned)).collect::<Vec<_>>().join("\n");
            let (first, text) = (escaped(&first), escaped(&text));
            let _ =
                writeln!(xml, ">\n      <failure message=\"{first}\" type=\"conformance\">{text}</failure>\n    </testcase>");
        }
    }
}

fn told(finding: &Finding) -> String {
    let Finding { at, found, expected } = finding;
    match expected {
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
            c if c.is_control() || is_reordering(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                let _ = write!(escaped, "\\u{{{:x}}}", u32::from(c));
            }
            c => escaped.push(c),
        }
        escaped
    })
}

fn is_reordering(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
