//! A page of metrics, as Prometheus would read it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

/// What stands for a program that checks metrics and rules, set by `cargo xtask test`.
const PROMTOOL: &str = "OUTBOX_TEST_PROMTOOL";

/// A page of metrics.
#[derive(Clone, Debug, Default)]
pub struct Scrape {
    samples: BTreeMap<String, f64>,
    kinds: BTreeMap<String, String>,
}

impl Scrape {
    /// Reads a page.
    ///
    /// # Panics
    /// When a scraper would refuse it, or read something else than was meant: a sample that is no number, or stands away from its
    /// metric, or twice; a metric without help or type; a histogram whose buckets are not in order or do not add up.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut scrape = Self::default();
        let mut helped = BTreeSet::new();
        let mut family = String::new();
        assert!(text.ends_with('\n'), "the last line has no end");
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').unwrap_or_else(|| panic!("no help: {line}"));
                assert!(helped.insert(name.to_owned()), "{name} is there twice");
                assert!(!help.is_empty(), "{line}");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap_or_else(|| panic!("no type: {line}"));
                assert!(helped.contains(name), "{name} has no help");
                assert!(scrape.kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} has two types");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
                family = name.to_owned();
            } else {
                scrape.sample(&family, line);
            }
        }
        scrape.check_histograms();
        scrape
    }

    fn sample(&mut self, family: &str, line: &str) {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
        let value: f64 = value.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
        let name = series.split('{').next().unwrap_or_default();
        let is_of_family = match self.kinds.get(family).map(String::as_str) {
            Some("histogram") => ["_bucket", "_sum", "_count"].iter().any(|suffix| name == format!("{family}{suffix}")),
            _ => name == family,
        };
        assert!(is_of_family, "{name} stands below {family}");
        assert!(self.samples.insert(series.to_owned(), value).is_none(), "{series} is there twice");
    }

    fn check_histograms(&self) {
        for (series, count) in self.samples.iter().filter(|(series, _)| series.contains("_count")) {
            let Some((family, labels)) = series.split_once("_count{") else { continue };
            let labels = labels.trim_end_matches('}');
            let start = format!("{family}_bucket{{{labels},le=\"");
            let mut buckets: Vec<(f64, f64)> = self
                .samples
                .iter()
                .filter_map(|(series, value)| Some((series.strip_prefix(&start)?, value)))
                .map(|(le, value)| {
                    let le = le.trim_end_matches("\"}");
                    (if le == "+Inf" { f64::INFINITY } else { le.parse().expect("a bound is a number") }, *value)
                })
                .collect();
            buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
            assert!(buckets.is_sorted_by(|(_, one), (_, other)| one <= other), "{series}: {buckets:?}");
            assert_eq!(buckets.last(), Some(&(f64::INFINITY, *count)), "{series}");
        }
    }

    /// The value of one series, written as in the page: `outbox_queue_depth{queue="hot"}`. `None` when it is not there.
    #[must_use]
    pub fn value(&self, series: &str) -> Option<f64> {
        self.samples.get(series).copied()
    }

    /// The sum of all series that begin like this.
    #[must_use]
    pub fn sum(&self, start: &str) -> f64 {
        self.samples.iter().filter(|(series, _)| series.starts_with(start)).map(|(_, value)| value).sum()
    }

    /// How many series there are.
    #[must_use]
    pub fn series(&self) -> usize {
        self.samples.len()
    }

    /// Every name by which a query may ask: those of histograms with their endings.
    #[must_use]
    pub fn names(&self) -> BTreeSet<String> {
        let endings = |kind: &str| if kind == "histogram" { &["_bucket", "_sum", "_count"][..] } else { &[""] };
        let names =
            |(name, kind): (&String, &String)| endings(kind).iter().map(|ending| format!("{name}{ending}")).collect::<Vec<_>>();
        self.kinds.iter().flat_map(names).collect()
    }
}

/// Runs `promtool check WHAT` with this on standard input, or with these arguments; says so where it is not installed, and
/// leaves the check out. Under `cargo xtask test` it is there.
///
/// # Panics
/// When it finds a fault, or should be there and is not.
pub fn promtool(arguments: &[&str], input: &str) {
    #[expect(clippy::disallowed_methods, reason = "tests are configured by cargo xtask test, through the environment")]
    let named = std::env::var(PROMTOOL).ok();
    let program = named.clone().unwrap_or_else(|| "promtool".to_owned());
    let started =
        Command::new(&program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: promtool {arguments:?}, since promtool is not installed (package prometheus)"
            );
            return;
        }
        Err(error) => panic!("{program} cannot be started: {error}"),
    };
    // It need not read what it does not want.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?}: {said}\n{input}");
}
