//! `outbox plugin list`: the plugins of the hosts that run, or those that lie in the directory.

use super::tell_of_strays;
use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::host;
use crate::output::{self, Output, lines, or_dash, short, shown};
use crate::place::{self, Listed};
use crate::plugins::{self, PluginState, PluginStatus};

pub(super) async fn list(here: bool, output: Output, config: &Config) -> Result<(), Failure> {
    let is_remote = config.remote.is_some();
    if here && is_remote {
        return Err(Failure::new(Exit::Usage, "--here lists the plugins directory of this machine; leave out --url"));
    }
    let (told, unknown) = if here { (Vec::new(), None) } else { told(config).await? };
    let asked = is_remote || !told.is_empty();
    let only_relays = !asked && !host::wants_plugins(config);
    let plugins = if asked || only_relays { told } else { loaded(config).await? };
    output::many(&plugins, output.output, |plugins| if plugins.is_empty() { String::new() } else { table(plugins) })?;
    let dir = config.plugins.dir.display();
    if let Some(failure) = unknown {
        tell_of_strays(&config.plugins.dir);
        return Err(failure.detail(format!("this list shows the plugins in {dir}; the plugins of running hosts are unknown")));
    }
    match (asked, plugins.is_empty()) {
        (true, true) => eprintln!("the running hosts serve no plugins"),
        (false, true) if only_relays => eprintln!("no plugins directory: this host only relays to sinks"),
        (false, true) => eprintln!("{dir} holds no plugins; copy a component there as NAME.wasm"),
        (false, false) if !here => eprintln!("no host runs on this table: these are the plugins in {dir}"),
        _ => {}
    }
    if !asked {
        tell_of_strays(&config.plugins.dir);
    }
    // The list has told what is wrong.
    let fault = plugins.iter().any(|plugin| plugin.status.error.is_some());
    if fault { Err(Failure::silent(Exit::Findings)) } else { Ok(()) }
}

/// The plugins of running hosts, and why they are unknown if the database cannot be read.
pub(super) async fn told(config: &Config) -> Result<(Vec<Listed>, Option<Failure>), Failure> {
    let told = async { place::open(config).await?.plugins().await };
    match told.await {
        Err(failure) if config.remote.is_none() => Ok((Vec::new(), Some(failure))),
        told => Ok((told?, None)),
    }
}

/// What lies in the directory. That it loads does not mean that a host serves it.
pub(super) async fn loaded(config: &Config) -> Result<Vec<Listed>, Failure> {
    let plugins = plugins::inspect(config)
        .await
        .map_err(|error| Failure::new(Exit::Config, "the plugins cannot be listed").because(error))?;
    let listed = |mut status: PluginStatus| {
        status.state = match status.state {
            PluginState::Serving => PluginState::Loads,
            PluginState::ServingOlder => PluginState::OlderLoads,
            other => other,
        };
        Listed { host: None, status }
    };
    Ok(plugins.into_iter().map(listed).collect())
}

fn table(plugins: &[Listed]) -> String {
    let hosts = plugins.iter().any(|plugin| plugin.host.is_some());
    let rows = plugins.iter().map(|Listed { host, status }| {
        let columns = [
            short(&status.name, 32),
            or_dash(status.version.as_deref()),
            or_dash(status.short_digest()),
            status.state.word().to_owned(),
            answered(status),
        ];
        hosts.then(|| short(host.as_deref().unwrap_or("-"), 40)).into_iter().chain(columns).collect::<Vec<_>>()
    });
    let header = [&["host"][usize::from(!hosts)..], &["name", "version", "digest", "state", "routes"]].concat();
    let mut text = output::table(&header, rows);
    // A reason is a sentence or two: below the table it can be read, in a column it would tear it apart.
    for Listed { host, status } in plugins {
        for reason in status.error.iter().chain(&status.details.pending) {
            let on = host.as_deref().map(|host| format!(" on {}", shown(host))).unwrap_or_default();
            text.push_str(&format!("\n{}{on}: {}\n", shown(&status.name), lines(reason)));
        }
    }
    text
}

/// What a plugin answers, on a line that fits: the first of its routes, and how many there are beside.
pub(crate) fn answered(status: &PluginStatus) -> String {
    output::some_of_all(&status.routes, status.more_routes)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use outbox::Route;

    use super::*;

    fn status(routes: usize, more_routes: usize) -> PluginStatus {
        PluginStatus {
            name: "mailer".to_owned(),
            version: None,
            digest: None,
            state: PluginState::Serving,
            routes: (0..routes).map(|number| Route::new("Order", format!("Event{number:02}")).unwrap()).collect(),
            more_routes,
            error: None,
            file: PathBuf::from("plugins/mailer.wasm"),
            details: Default::default(),
        }
    }

    #[test]
    fn the_reason_why_a_new_version_does_not_serve_yet_is_below_the_table() {
        let mut status = status(1, 0);
        status.details.pending = Some("the new version is being loaded".to_owned());

        let text = table(&[Listed { host: Some("web-1".to_owned()), status }]);

        assert!(text.ends_with("\nmailer on web-1: the new version is being loaded\n"), "{text}");
    }

    #[test]
    fn the_error_of_a_plugin_whose_next_version_is_being_loaded_is_shown_too() {
        let mut status = status(1, 0);
        status.error = Some("the manifest is unreadable".to_owned());
        status.details.pending = Some("the new version is being loaded".to_owned());

        let text = table(&[Listed { host: None, status }]);

        assert!(text.ends_with("\nmailer: the manifest is unreadable\n\nmailer: the new version is being loaded\n"), "{text}");
    }

    #[test]
    fn a_line_of_the_list_tells_how_many_routes_it_leaves_out() {
        assert_eq!(answered(&status(0, 0)), "-");
        assert_eq!(answered(&status(2, 0)), "Order/Event00, Order/Event01");
        let long = answered(&status(20, 980));
        assert!(long.starts_with("Order/Event00, ") && long.ends_with(" and 994 more"), "{long}");
        assert_eq!(long.matches("Order/").count(), 6);
    }
}
