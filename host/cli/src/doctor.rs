//! `outbox doctor`: what is wrong, and what to do about it.

pub(crate) mod advice;
mod http;
mod look;

use std::cmp::Reverse;

use clap::Args;
use outbox::event::{MAX_PAYLOAD_BYTES, OwnerId, Status};
use outbox::purge::Overdue;
use outbox::store::{Expectations, Filter, Finding, Plan, Record, SetAside, Severity};
use outbox::time::{Clock, SystemClock};
use outbox::why::{MOST_WAITING, OldestWait, RecentChanges};
use outbox::{Store, StoreError};

use crate::config::{Config, Flags, Settings};
use crate::database::{self, Missing};
use crate::failure::{Exit, Failure};
use crate::output::{self, Colour, Output, count, paint, shown};

/// How many of the events that failed, were given up or wait for a listener are asked for the reason: the newest.
const LOOKED_AT: u32 = 100;

/// Check settings, plugins, database, hosts, routes and events, and suggest a fix for each problem
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  outbox doctor\n  outbox doctor --output json\n  outbox doctor --grants > grants.sql\n\n\
                        Changes nothing. Exits with 8 when it finds a problem, 5 when the database cannot be reached, and 4 when the \
                        configuration is not valid.")]
pub(crate) struct DoctorCommand {
    /// Only print SQL that grants each role the fewest privileges it needs
    #[arg(long, conflicts_with = "explain")]
    grants: bool,
    /// Only print the query plan of each important statement, and the index it needs
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    output: Output,
}

impl DoctorCommand {
    pub(crate) async fn run(self, settings: &Settings) -> Result<(), Failure> {
        let config = &settings.config;
        if self.grants {
            return output::print(&database::open(config, Missing::Refuse).await?.grants_sql());
        }
        if self.explain {
            return explain(&database::ready(config).await?.plans().await?, self.output);
        }
        let plugins = look::plugins(settings).await;
        let mut findings = look::settings(settings);
        findings.extend(advice::advice(config, &plugins.manifests, &|key| settings.layers.is_set(key)));
        findings.extend(http::http(&config.http, SystemClock.now(), &|key| settings.layers.is_set(key)));
        findings.extend(plugins.findings);
        let looked = match database::open(config, Missing::Refuse).await {
            Ok(store) => {
                let relays = config.relays().into_iter().map(|(route, _)| route).collect();
                let (plugins_dir, flags) = (config.plugins.dir.clone(), config.flags.clone());
                let (answered, has_no_plugins, failed) = (plugins.routes, plugins.none_here, plugins.failed);
                let here = look::Here { answered, relays, plugins_dir, has_no_plugins, failed, flags };
                database(&*store, config, &here, &mut findings).await
            }
            Err(failure) => Err(failure),
        };
        if let Err(failure) = &looked {
            findings.push(match database::missing_file(config) {
                Some(file) => look::missing_file(&file, settings),
                None => {
                    let fix = "correct this, then run `outbox doctor` again: the other checks need the database";
                    Finding::fault("connection", failure.chain(), fix)
                }
            });
        }
        // Stable: findings that affect as many events stay in the order of the checks.
        findings.sort_by_key(|finding| Reverse((finding.severity, finding.events)));
        show(&findings, self.output)?;
        looked?;
        if findings.iter().all(|finding| finding.severity == Severity::Good) {
            Ok(())
        } else {
            Err(Failure::silent(Exit::Findings))
        }
    }
}

/// What needs the database. What was found before an error is kept.
async fn database(store: &dyn Store, config: &Config, here: &look::Here, findings: &mut Vec<Finding>) -> Result<(), Failure> {
    let expectations = Expectations {
        lease: config.dispatcher.lease,
        deadline: config.dispatcher.deadline,
        max_payload: MAX_PAYLOAD_BYTES,
        connections: database::most_connections(config)?,
        index: config.mode.index(),
    };
    let completed = |finding| with_grant(with_flags(finding, &here.flags), config);
    findings.extend(store.diagnose(&expectations).await?.into_iter().map(completed));
    // The examination has said what is wrong with the schema; without it there is nothing more to look at.
    if store.check_schema().await.is_err() {
        return Ok(());
    }
    match contents(store, config, here, findings).await {
        // Said already, too, with everything else that this user may not do.
        Err(StoreError::Forbidden { .. }) => Ok(()),
        looked => Ok(looked?),
    }
}

/// The store knows nothing of the flags without which its commands would meet another database.
fn with_flags(finding: Finding, flags: &Flags) -> Finding {
    let line = |line: &str| if line.starts_with("outbox ") { flags.command(line) } else { line.to_owned() };
    let fix = finding.fix.map(|fix| fix.lines().map(line).collect::<Vec<_>>().join("\n"));
    Finding { fix, ..finding }
}

/// A fix that grants a role, as this user needs it.
fn with_grant(finding: Finding, config: &Config) -> Finding {
    let role = "outbox_dispatcher";
    let granted = |fix: String| fix.replace(&format!("GRANT {role} TO this user"), &database::grant_sql(role, config));
    Finding { fix: finding.fix.map(granted), ..finding }
}

/// What the tables tell of hosts, routes and events.
async fn contents(
    store: &dyn Store,
    config: &Config,
    here: &look::Here,
    findings: &mut Vec<Finding>,
) -> Result<(), StoreError> {
    let nodes = outbox::node::hosts(store).await?;
    let missing = findings.iter_mut().find(|finding| here.has_no_plugins && finding.check == "plugins");
    if let (Some(missing), Some(elsewhere)) = (missing, look::served_elsewhere(&nodes, &here.plugins_dir, &here.flags)) {
        *missing = elsewhere;
    }
    look::served_by_hosts(findings, &here.failed, &nodes);
    let without_lock = store.free_sessions(&OwnerId::generate("doctor")).await?;
    // Before the hosts: a lease that ends between the two questions is not one that ended.
    let now = store.now().await?;
    // This check reports killed hosts itself, so it needs them as alive as their leases say.
    let (mut by_lease, held) = (store.nodes().await?, store.held_without_lease().await?);
    by_lease.iter_mut().for_each(|node| node.alive |= held.contains(&node.owner));
    findings.extend(look::nodes(&by_lease, &without_lock));
    findings.extend(look::without_lease(&by_lease, now));
    findings.extend(look::vanished(&by_lease, now, config.dispatcher.lease));
    findings.extend(look::refused(&nodes, &here.flags));
    findings.extend(look::locked(&nodes, &here.flags, now));
    findings.extend(look::slow(&nodes, &here.flags, now));
    findings.extend(look::unclaimed(&nodes, &here.flags, now));
    findings.extend(look::aside(&nodes, now));
    findings.extend(look::clocks(&nodes));
    let routes = store.count_routes().await?;
    look::lower_plugin_severities(findings, &here.failed, &config.plugins.required, &routes);
    // They explain findings. Without the right to read them, the findings are still listed.
    let changes = RecentChanges::read(store, now).await.unwrap_or_default().changes;
    let waits = store.wait_reasons(MOST_WAITING).await?;
    findings.extend(look::sinks(&nodes, &routes, &waits, &changes, &here.flags, now));
    findings.extend(look::breakers(&nodes, &routes, &here.flags, now));
    let stats = store.stats().await?;
    let of = |status| Filter { status: Some(status), ..Filter::default() };
    let parked = Filter { set_aside: Some(SetAside::Parked), ..Filter::default() };
    let parked = newest(store, stats.parked, parked).await?;
    let now = store.now().await?;
    findings.extend(look::routes(&routes, &parked, here, now));
    findings.extend(look::waits(&waits, &nodes, &routes, &changes, &here.flags, now));
    findings.push(look::retries(stats.retry, &newest(store, stats.retry, of(Status::Retry)).await?, &here.flags));
    let dead = newest(store, stats.dead, of(Status::Dead)).await?;
    findings.push(look::dead(stats.dead, &dead, &nodes, &changes, &here.flags, now));
    findings.extend(look::events(&stats, OldestWait::of(&stats, &nodes, now), &here.flags));
    for overdue in Overdue::read(store, &config.purge, now).await? {
        // A purge may have deleted them meanwhile.
        let events = store.count_purgeable(overdue.status, overdue.finished_before).await?.count;
        findings.extend((events > 0).then(|| look::overdue(&overdue, events, &here.flags)));
    }
    Ok(())
}

/// The newest of the `matching` events.
async fn newest(store: &dyn Store, matching: u64, filter: Filter) -> Result<Vec<Record>, StoreError> {
    if matching == 0 {
        return Ok(Vec::new());
    }
    store.list(&Filter { newest_first: true, ..filter }, LOOKED_AT).await
}

fn show(findings: &[Finding], output: Output) -> Result<(), Failure> {
    output::many(findings, output.output, text)?;
    let number = |severity| u64::try_from(findings.iter().filter(|one| one.severity == severity).count()).unwrap_or(u64::MAX);
    let (warnings, faults) = (number(Severity::Warning), number(Severity::Fault));
    let all = count(u64::try_from(findings.len()).unwrap_or(u64::MAX), "check");
    if warnings + faults == 0 {
        eprintln!("{all}, all good");
    } else {
        eprintln!("{all}: {}, {}", count(faults, "fault"), count(warnings, "warning"));
    }
    Ok(())
}

/// One line a finding, and its fix below it.
fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let (mark, colour) = match finding.severity {
            Severity::Good => ("✓", Colour::Green),
            Severity::Warning => ("!", Colour::Yellow),
            Severity::Fault => ("✗", Colour::Red),
        };
        for (number, line) in finding.found.lines().enumerate() {
            let (mark, check) = if number == 0 { (paint(mark, colour), finding.check) } else { (" ".into(), "") };
            text.push_str(&format!("{mark} {check:width$}  {}\n", shown(line)));
        }
        if let Some(fix) = &finding.fix {
            for line in fix.lines() {
                text.push_str(&format!("  {:width$}  {} {}\n", "", paint("→", Colour::Faint), shown(line)));
            }
        }
    }
    text
}

fn explain(plans: &[Plan], output: Output) -> Result<(), Failure> {
    output::many(plans, output.output, |plans| {
        let mut text = String::new();
        for plan in plans {
            let (mark, colour) = if plan.good { ("✓", Colour::Green) } else { ("✗", Colour::Red) };
            text.push_str(&format!("{} {}  on {}\n", paint(mark, colour), plan.statement, plan.index));
            for line in plan.text.lines() {
                text.push_str(&format!("    {}\n", paint(line, Colour::Faint)));
            }
        }
        text
    })?;
    if plans.iter().all(|plan| plan.good) {
        return Ok(());
    }
    eprintln!("a statement that does not use its index reads the whole table; `outbox doctor` looks for missing ones");
    Err(Failure::silent(Exit::Findings))
}
