//! One component, as people read it.

use std::time::Duration;

use serde::Serialize;

use crate::output::{self, lines, number, routes, shown, size, whole_size};
use crate::plugins::{Anatomy, CoreModule, Limits, PluginReport};

/// A page of WebAssembly's memories.
const PAGE_BYTES: u64 = 64 << 10;

/// One below the other; `-` for none.
fn list(entries: &[String]) -> String {
    let shown: Vec<_> = entries.iter().map(|entry| shown(entry)).collect();
    if shown.is_empty() { "-".to_owned() } else { shown.join("\n") }
}

/// A component taken apart, and what it says of itself.
#[derive(Debug, Serialize)]
pub(crate) struct Inspected {
    #[serde(flatten)]
    pub(crate) anatomy: Anatomy,
    /// `None` when it was not asked, or does not load.
    pub(crate) report: Option<PluginReport>,
    /// Why it does not load.
    pub(crate) error: Option<String>,
}

pub(crate) fn inspected(inspected: &Inspected) -> String {
    let Inspected { anatomy, report, error } = inspected;
    let memory = |(least, most): &(u64, Option<u64>)| {
        let least = size(least.saturating_mul(PAGE_BYTES));
        match most {
            Some(most) => format!("memory of {least} to {}", size(most.saturating_mul(PAGE_BYTES))),
            None => format!("memory of {least} and more"),
        }
    };
    let table = |(least, most): &(u64, Option<u64>)| match most {
        Some(most) if most == least => format!("table of {least} elements"),
        Some(most) => format!("table of {least} to {most} elements"),
        None => format!("table of {least} elements and more"),
    };
    let module = |(number, module): (usize, &CoreModule)| {
        let mut parts = vec![size(module.size_bytes), format!("{} functions", module.functions)];
        parts.extend(module.memories.iter().map(memory));
        parts.extend(module.tables.iter().map(table));
        format!("{number}: {}", parts.join(", "))
    };
    let modules: Vec<String> = anatomy.modules.iter().enumerate().map(module).collect();
    let sections: Vec<String> = anatomy.sections.iter().map(|(kind, bytes)| format!("{kind}: {}", size(*bytes))).collect();
    let mut pairs = vec![
        ("world", anatomy.world.clone()),
        ("digest", anatomy.digest.clone()),
        ("size", whole_size(anatomy.size_bytes)),
        ("imports", list(&anatomy.imports)),
        ("exports", list(&anatomy.exports)),
        ("core modules", list(&modules)),
        ("sections", list(&sections)),
    ];
    if !anatomy.differences.is_empty() {
        pairs.push(("does not fit", list(&anatomy.differences)));
    }
    if let Some(report) = report {
        let limits = &report.limits;
        pairs.extend([
            ("names itself", format!("{} {}", shown(&report.described_name), shown(&report.version))),
            ("routes", routes(&report.routes)),
            ("granted", list(&report.granted)),
            ("not granted", list(&report.not_granted)),
            ("limits", told_limits(limits)),
        ]);
    }
    if let Some(error) = error {
        pairs.push(("does not load", lines(error)));
    }
    output::pairs(&pairs)
}

pub(crate) fn described(report: &PluginReport) -> String {
    let limits = &report.limits;
    let isolation = serde_json::to_string(&report.isolation).unwrap_or_default();
    let pairs = [
        ("name", shown(&report.name).into_owned()),
        ("names itself", format!("{} {}", shown(&report.described_name), shown(&report.version))),
        ("digest", report.digest.clone()),
        ("routes", routes(&report.routes)),
        ("granted", list(&report.granted)),
        ("not granted", list(&report.not_granted)),
        ("imports", if report.imports.is_empty() { "-".to_owned() } else { shown(&report.imports.join(", ")).into_owned() }),
        ("size", whole_size(report.size_bytes)),
        (
            if report.is_from_cache { "read from cache in" } else { "compiled in" },
            format!("{:?}", milliseconds(report.compile)),
        ),
        ("isolation", isolation.trim_matches('"').to_owned()),
        ("limits", told_limits(limits)),
    ];
    output::pairs(&pairs)
}

/// A duration without what is below a millisecond.
fn milliseconds(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

fn told_limits(limits: &Limits) -> String {
    format!("fuel {} instructions, deadline {:?}, memory {}", number(limits.fuel), limits.deadline, size(limits.memory.0))
}
