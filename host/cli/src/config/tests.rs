use super::layers::Origin;
use super::*;

fn composed(file: &str, environment: &[(&str, &str)], flags: &[Override]) -> Result<(Config, Layers), Vec<String>> {
    composed_for(Checks::ALL, file, environment, flags)
}

fn composed_for(
    checks: Checks<'_>,
    file: &str,
    environment: &[(&str, &str)],
    flags: &[Override],
) -> Result<(Config, Layers), Vec<String>> {
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    compose(
        Some(("outbox.toml", file)),
        environment,
        flags,
        &|source, name| match (source, name) {
            ("env", "TOKEN" | "DB_PASSWORD" | "OUTBOX_DATABASE_PASSWORD") => Ok("hunter2".to_owned()),
            _ => Err(format!("${{{source}:{name}}} is not there")),
        },
        checks,
    )
}

#[test]
fn flags_win_over_the_environment_and_the_environment_over_the_file() {
    let file = "[dispatcher]\nworkers = 2\nlease = \"40s\"\ndeadline = \"30s\"\n[poller]\nbatch_size = 7\n";
    let environment = [("OUTBOX_DISPATCHER__WORKERS", "8"), ("OUTBOX_DISPATCHER__LEASE", "50s"), ("OTHER", "x")];
    let flags = [Override::new("dispatcher.workers", "16", "--workers")];
    let (config, layers) = composed(file, &environment, &flags).unwrap();
    assert_eq!((config.dispatcher.workers, config.dispatcher.lease.as_secs(), config.poller.batch_size), (16, 50, 7));
    assert_eq!(config.poller.interval, Duration::from_millis(250), "a section that is half written keeps our defaults");
    let origin = |key: &str| layers.origin(key).unwrap().to_string();
    assert_eq!(origin("dispatcher.workers"), "--workers");
    assert_eq!(origin("dispatcher.lease"), "OUTBOX_DISPATCHER__LEASE");
    assert_eq!(origin("poller.batch_size"), "outbox.toml:6");
    assert_eq!(origin("poller.interval"), "default");
    let shown = &layers.leaves[&["dispatcher".to_owned(), "workers".to_owned()][..]].written;
    assert_eq!(shown.as_integer(), Some(16), "text of a flag is shown as what it means");
}

#[test]
fn all_faults_are_told_at_once_each_with_its_line() {
    let file = "mode = \"solo\"\n[dispatcher]\nwrokers = 3\nlease = \"soon\"\n\n[dispacher]\nmax_attempts = 1\n[poller]\nbatch_size = -1\n";
    let faults = composed(file, &[("OUTBOX_POLLER__INTERVALL", "1s")], &[]).unwrap_err().join("\n");
    for part in [
        "outbox.toml:1: mode: it is `solo`, but must be `single_node`, `multi_node`",
        "outbox.toml:3: dispatcher.wrokers is not a setting; did you mean dispatcher.workers?",
        "outbox.toml:4: dispatcher.lease: `soon` is not a duration",
        "outbox.toml:7: dispacher.max_attempts is not a setting; did you mean dispatcher.max_attempts?",
        "outbox.toml:9: poller.batch_size: it is -1, but must be a whole number from 0 to",
        "OUTBOX_POLLER__INTERVALL: poller.intervall is not a setting; did you mean poller.interval?",
    ] {
        assert!(faults.contains(part), "{part}\n---\n{faults}");
    }
}

#[test]
fn values_that_do_not_go_together_are_told_beside_values_that_are_wrong_alone() {
    let token =
        |name: &str, role: &str| format!("[[http.tokens]]\nname = {name:?}\nsha256 = {:?}\nrole = {role:?}\n", "0".repeat(64));
    let file = format!(
        "mode = \"solo\"\n[http]\nlisten = \"0.0.0.0:80\"\nmax_events = 0\n[dispatcher]\nlease = \"soon\"\ndeadline = \"60s\"\n\
         workers = 0\n{}{}{}",
        token("", "admn"),
        token("b", "admin"),
        token("b", "viewr").replace("sha256 = \"0", "sha256 = \"x")
    );
    let faults = composed(&file, &[], &[]).unwrap_err();
    let said = faults.join("\n");
    for part in [
        "outbox.toml:1: mode: it is `solo`",
        "outbox.toml:4: http.max_events is 0",
        "outbox.toml:6: dispatcher.lease: `soon` is not a duration",
        "outbox.toml:8: dispatcher.workers is 0",
        "outbox.toml:10: http.tokens[0].name is \"\"",
        "outbox.toml:12: http.tokens[0].role: it is `admn`",
        "outbox.toml:18: http.tokens[2].name is \"b\", like that of http.tokens[1]",
        "outbox.toml:19: http.tokens[2].sha256: it is not a SHA-256",
        "outbox.toml:20: http.tokens[2].role: it is `viewr`",
    ] {
        assert!(said.contains(part), "{part}\n---\n{said}");
    }
    // That the deadline is not below the lease, or that there is no token, is not known.
    assert_eq!(faults.len(), 9, "{said}");
}

#[test]
fn values_that_do_not_go_together_are_told_with_the_line_of_the_first() {
    let faults = composed("[dispatcher]\nlease = \"10s\"\ndeadline = \"15s\"\nworkers = 0\n", &[], &[]).unwrap_err();
    assert!(faults.iter().any(|fault| fault.starts_with("outbox.toml:4: dispatcher.workers is 0")), "{faults:?}");
    assert!(
        faults.iter().any(|fault| fault.starts_with("outbox.toml:3: dispatcher.deadline (15s) is not below")),
        "{faults:?}"
    );
}

#[test]
fn what_is_wrong_within_a_list_or_a_section_is_told_with_its_place() {
    let token = |role: &str| format!("[[http.tokens]]\nname = \"a\"\nsha256 = \"{}\"\nrole = \"{role}\"\n", "0".repeat(64));
    let file = format!("{}{}", token("viewer"), token("admn"));
    let faults = composed(&file, &[], &[]).unwrap_err();
    assert!(faults[0].starts_with("outbox.toml:6: http.tokens[1].name is \"a\", like that of http.tokens[0]"), "{faults:?}");
    let role =
        "outbox.toml:8: http.tokens[1].role: it is `admn`, but must be `viewer`, `operator` or `admin`; did you mean `admin`?";
    assert_eq!(faults[1..], [role]);
    let file = "sinks = 5\n[routes]\n\"Order/*\" = \"a\"\n";
    let faults = composed(file, &[], &[]).unwrap_err().join("\n");
    for part in [
        "outbox.toml:1: sinks.NAME is a section, not a value; write [sinks.NAME] and its settings below it",
        "outbox.toml:3: routes.\"Order/*\" is a section, not a value; write [routes.\"Order/*\"]",
    ] {
        assert!(faults.contains(part), "{part}\n---\n{faults}");
    }
    let file = "[sinks.a]\nkind = \"nats\"\nurl = 5\nsubjct = \"x\"\ntimeout = 5\n[routes.\"Order/*\"]\nsinc = \"a\"\n";
    let faults = composed(file, &[], &[]).unwrap_err().join("\n");
    for part in [
        "outbox.toml:3: sinks.a.url: it is a number, but must be text; put it in quotes",
        "outbox.toml:4: sinks.a.subjct: there is no such field; did you mean `subject`?",
        "outbox.toml:5: sinks.a.timeout: `5` has no unit",
        "outbox.toml:7: routes.\"Order/*\".sinc: there is no such field; did you mean `sink`?",
    ] {
        assert!(faults.contains(part), "{part}\n---\n{faults}");
    }
}

#[test]
fn what_a_flag_sets_is_told_as_what_was_typed() {
    let fault = |key: &str, value: &str| composed("", &[], &[Override::new(key, value, "--set")]).unwrap_err().join("\n");
    for (key, value, part) in [
        ("poller.interval", "1", "--set: poller.interval: `1` has no unit; write it like \"30s\""),
        ("dispatcher.workers", "-1", "--set: dispatcher.workers: it is -1, but must be a whole number of 0 or more"),
        ("purge.enabled", "yes", "--set: purge.enabled: it is the text \"yes\", but must be true or false"),
        ("http.tokens", "s3cret", "--set: http.tokens: it is text, but must be a list"),
    ] {
        assert!(fault(key, value).contains(part), "{part}\n---\n{}", fault(key, value));
    }
    assert!(!fault("http.tokens", "s3cret").contains("s3cret"), "it may be a secret");
}

#[test]
fn text_that_is_no_toml_is_told_with_its_line() {
    let faults = composed("mode = \"ordred\"\n[poller\ninterval = 3\n", &[], &[]).unwrap_err();
    assert!(faults.iter().any(|fault| fault.starts_with("outbox.toml:2: ")), "{faults:?}");
}

#[test]
fn behind_an_error_in_the_text_of_a_file_nothing_is_told_that_may_follow_from_it() {
    let text = "[poller]\nintervall = \"1s\"\n[database\nurl = \"sqlite:a.db\"\n";
    let faults = of_text(text).expect_err("refused");
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(faults.iter().any(|fault| fault.starts_with("outbox.toml:2: poller.intervall is not a setting")), "{faults:?}");
    assert!(faults.iter().any(|fault| fault.starts_with("outbox.toml:3: ")), "{faults:?}");
}

#[test]
fn an_address_that_is_given_later_goes_before_the_parts_that_were_given_earlier() {
    let file = "[database]\nurl = \"postgres://db/shop\"\nuser = \"app\"\npassword = \"${env:NOT_THERE}\"\n";
    let url = |flag: &str| {
        let flag = Override::new("database.url", flag, "--database-url");
        composed(file, &[], &[flag]).map(|(config, _)| config.database.url)
    };
    assert_eq!(url("postgres://joe:other@there/shop").expect("good"), "postgres://joe:other@there/shop");
    assert_eq!(url("sqlite:try.db").expect("good"), "sqlite:try.db");
    assert_eq!(url("postgres://joe@there/shop").expect("it may need no password"), "postgres://joe@there/shop");
    assert!(composed(file, &[], &[]).expect_err("the file's own address needs it")[0].contains("NOT_THERE"));
    let file = file.replace("${env:NOT_THERE}", "hunter2");
    let flag = Override::new("database.url", "postgres://joe@there/shop", "--database-url");
    let (config, _) = composed(&file, &[], &[flag]).expect("good");
    assert_eq!(config.database.url, "postgres://joe:hunter2@there/shop", "a password that is known is meant for it");
    let (config, _) =
        composed("[database]\nurl = \"postgres://db/shop\"\n", &[("OUTBOX_DATABASE__USER", "joe")], &[]).expect("good");
    assert_eq!(config.database.url, "postgres://joe@db/shop");
}

#[test]
fn an_address_of_no_database_is_refused_without_its_password() {
    for (url, part) in [
        ("oracle://app:s3cret@db/shop", "not a database address"),
        ("outbox.db", "not a database address"),
        ("sqlite::memory:", "would lose its events"),
    ] {
        let faults = composed("", &[("OUTBOX_DATABASE_URL", url)], &[]).unwrap_err().join("\n");
        assert!(faults.contains(part) && faults.contains("OUTBOX_DATABASE_URL") && !faults.contains("s3cret"), "{faults}");
    }
}

#[test]
fn references_are_resolved_and_stay_out_of_what_is_shown() {
    let file = "[database]\nurl = \"sqlite:${env:TOKEN}.db\"\n[plugins.mailer.config]\ntoken = \"${env:TOKEN}\"\n";
    let (config, layers) = composed(file, &[], &[]).unwrap();
    assert_eq!(config.database.url, "sqlite:hunter2.db");
    assert!(config.plugins.manifests.contains_key("mailer"));
    assert!(!format!("{:?}", layers.leaves).contains("hunter2"), "what is shown is what was written");
    let faults = composed("[database]\nurl = \"${file:/nowhere}\"\n", &[], &[]).unwrap_err().join("\n");
    assert!(faults.starts_with("outbox.toml:2: database.url: ${file:/nowhere} is not there"), "{faults}");
    assert!(composed("[plugins.mailer.config]\ntoken = \"${env:NOPE}\"\n", &[], &[]).is_err());
}

#[test]
fn a_password_with_any_character_is_written_as_it_is_and_shown_nowhere() {
    let file = "[database]\nurl = \"postgres://app@db/shop\"\npassword = \"s3@cr:et/?#%\"\n";
    let (config, _) = composed(file, &[], &[]).unwrap();
    assert_eq!(config.database.url, "postgres://app:s3%40cr%3Aet%2F%3F%23%25@db/shop");
    let (config, _) = composed(file, &[("OUTBOX_DATABASE__PASSWORD", "other")], &[]).unwrap();
    assert_eq!(config.database.url, "postgres://app:other@db/shop", "three ways, like every setting");
    let twice = composed(&file.replace("app@db", "app:x@db"), &[], &[]).unwrap_err().join("\n");
    assert!(twice.starts_with("outbox.toml:3: database.password is set, but database.url has one as well"), "{twice}");
    let fault = composed("[database]\nurl = \"postgres://app:s3/cret@db/shop\"\n", &[], &[]).unwrap_err().join("\n");
    assert!(fault.starts_with("outbox.toml:2: database.url: ") && fault.contains("set database.password"), "{fault}");
    assert!(!fault.contains("cret"), "{fault}");
}

#[test]
fn manifests_of_plugins_are_checked_where_they_stand() {
    let faults = composed("[plugins.mailer.limits]\nfule = 3\nmemory = \"16MiB\"\n", &[], &[]).unwrap_err();
    assert!(
        faults.len() == 1
            && faults[0].starts_with("outbox.toml:2: plugins.mailer.limits.fule: there is no such field; did you mean `fuel`?"),
        "{faults:?}"
    );
    let faults = composed("[plugins]\ndri = \"x\"\n", &[], &[]).unwrap_err();
    assert!(faults[0].contains("did you mean plugins.dir?"), "{faults:?}");
    let (config, _) = composed("[plugins.quiet]\n[plugins.\"a.b\"]\nisolation = \"batch\"\n", &[], &[]).unwrap();
    assert_eq!(
        config.plugins.manifests.len(),
        2,
        "an empty section counts: it stands in place of the file beside the component"
    );
}

#[test]
fn a_mistyped_variable_is_refused_and_one_like_no_setting_is_only_told_of() {
    let faults =
        composed("", &[("OUTBOX_DATABSE_URL", "postgres://db/shop"), ("OUTBOX_DISPATCHER_WORKERS", "8")], &[]).unwrap_err();
    assert_eq!(
        faults,
        [
            "OUTBOX_DATABSE_URL is not a setting; did you mean OUTBOX_DATABASE_URL?",
            "OUTBOX_DISPATCHER_WORKERS is not a setting; write OUTBOX_DISPATCHER__WORKERS",
        ]
    );
    let others =
        [("OUTBOX_PORT", "tcp://10.0.0.7:80"), ("OUTBOX_SERVICE_HOST", "10.0.0.7"), ("OUTBOX_FOO", "1"), ("OTHER", "x")];
    let (_, layers) = composed("", &others, &[]).unwrap();
    assert_eq!(layers.warnings().map(|warning| &warning.variable).collect::<Vec<_>>(), ["OUTBOX_FOO"]);
}

#[test]
fn a_variable_that_a_setting_refers_to_may_have_any_name() {
    let password = [("OUTBOX_DATABASE_PASSWORD", "hunter2")];
    let file = crate::init::template(Kind::Postgres).replace("DB_PASSWORD", "OUTBOX_DATABASE_PASSWORD");
    let (config, layers) = composed(&file, &password, &[]).unwrap();
    assert!(config.database.url.contains("outbox:hunter2@"), "{}", config.database.url);
    assert_eq!(layers.warnings().count(), 0);
    let url = Override::new("database.url", "postgres://me:other@db/shop", "--database-url");
    let (config, _) = composed(&file, &password, &[url]).expect("the file refers to it still");
    assert_eq!(config.database.url, "postgres://me:other@db/shop");
    assert!(composed("", &password, &[]).is_err(), "nothing refers to it");
}

#[test]
fn what_init_writes_is_every_default() {
    let template = crate::init::template(Kind::Sqlite);
    let (_, untouched) = composed(&template, &[], &[]).unwrap();
    assert!(untouched.leaves.values().all(|leaf| leaf.origin == Origin::Default), "nothing is set before somebody sets it");
    let setting = |line: &str| line.strip_prefix('#').filter(|rest| !rest.starts_with([' ', '#'])).map(str::to_owned);
    let file: String = template.lines().map(|line| setting(line).unwrap_or_else(|| line.to_owned()) + "\n").collect();
    let (config, layers) = composed(&file, &[], &[]).unwrap();
    let unset: Vec<_> = layers.leaves.iter().filter(|(_, leaf)| leaf.origin == Origin::Default).collect();
    assert!(unset.is_empty(), "not in the template: {unset:?}");
    let written = |config: &Config| toml::to_string(config).unwrap();
    assert_eq!(written(&config), written(&Config::default()));
}

#[test]
fn every_example_that_init_writes_is_a_setting() {
    let template = crate::init::template(Kind::Sqlite);
    let file: String =
        template.lines().map(|line| line.strip_prefix("##").unwrap_or(line).trim_start().to_owned() + "\n").collect();
    let variables = ["MAIL_TOKEN", "NATS_PASSWORD", "WEBHOOK_SECRET", "HOOKS_TOKEN"].map(|name| (name, "hunter2"));
    if let Err(faults) = composed(&file, &variables, &[]) {
        assert!(!faults.iter().any(|fault| fault.contains("is not a setting")), "{faults:?}");
    }
}

#[test]
fn what_init_writes_for_a_server_sets_its_address_and_password_alone() {
    for (kind, scheme) in [(Kind::Postgres, "postgres://"), (Kind::Mysql, "mysql://")] {
        let file: toml::Table = crate::init::template(kind).parse().unwrap();
        let database = file["database"].as_table().unwrap();
        assert_eq!(database.len(), 2, "{database:?}");
        assert!(database["url"].as_str().is_some_and(|url| url.starts_with(scheme)), "{database:?}");
        assert!(database["password"].as_str().is_some_and(|password| password.starts_with("${env:")), "{database:?}");
        assert!(file.iter().all(|(name, value)| name == "database" || value.as_table().is_some_and(toml::Table::is_empty)));
        let (config, _) = composed(&crate::init::template(kind), &[], &[]).unwrap();
        assert!(config.database.url.contains("outbox:hunter2@"), "{}", config.database.url);
    }
}

#[test]
fn what_has_no_default_is_set_by_file_environment_and_flag() {
    let days = |days: u64| Some(Duration::from_secs(days * 24 * 3_600));
    let retention = |file: &str, environment: &[(&str, &str)], flags: &[Override]| {
        composed(file, environment, flags).unwrap().0.purge.dead_retention
    };
    let file = "[purge]\ndead_retention = \"30days\"\n";
    let environment = [("OUTBOX_PURGE__DEAD_RETENTION", "60days")];
    assert_eq!(retention(file, &[], &[]), days(30));
    assert_eq!(retention(file, &environment, &[]), days(60));
    assert_eq!(retention(file, &environment, &[Override::new("purge.dead_retention", "90days", "--set")]), days(90));
}

#[test]
fn the_breaker_is_set_by_file_environment_and_flag() {
    let file = "[breaker]\nwindow = 8\nthreshold = 4\npause = \"5s\"\n";
    let environment = [("OUTBOX_BREAKER__THRESHOLD", "3")];
    let flags = [Override::new("breaker.pause", "1m", "--set")];
    let breaker = composed(file, &environment, &flags).unwrap().0.breaker;
    assert_eq!((breaker.window, breaker.threshold, breaker.pause.as_secs()), (8, 3, 60));
    let faults = composed("[breaker]\nwindow = 4\n", &[], &[]).unwrap_err();
    assert!(faults[0].contains("breaker.threshold (10) is above breaker.window (4)"), "{faults:?}");
}

#[test]
fn deleting_what_was_never_delivered_is_refused_where_something_delivers() {
    let file = "[purge]\nundelivered_retention = \"7days\"\n";
    let faults = composed(file, &[], &[]).unwrap_err();
    assert!(
        faults[0].starts_with("outbox.toml:2: purge.undelivered_retention is set, but the mode is single_node"),
        "{faults:?}"
    );
    assert!(composed(file, &[("OUTBOX_MODE", "writer_only")], &[]).is_ok());
}

#[test]
fn a_word_that_is_no_level_is_not_taken_for_a_module() {
    let fault = composed("[log]\nlevel = \"info,loud\"\n", &[], &[]).unwrap_err().join("\n");
    assert!(
        fault.starts_with("outbox.toml:2: log.level is `info,loud`, but `loud` is not a level; write error, warn"),
        "{fault}"
    );
    for level in ["DEBUG", "off", "info,outbox::poller=debug"] {
        assert!(composed("", &[("OUTBOX_LOG", level)], &[]).is_ok(), "{level}");
    }
}

#[test]
fn what_the_ordered_mode_does_not_have_is_refused() {
    let faults = composed("mode = \"ordered\"\n[dispatcher]\nworkers = 8\nmax_attempts = 1\n", &[], &[]).unwrap_err();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("outbox.toml:3: dispatcher.workers is set, but in the mode ordered"), "{faults:?}");
}

#[test]
fn sinks_and_relays_are_read_with_their_references_and_none_of_their_secrets_is_shown() {
    let file = "[sinks.hooks]\nkind = \"http\"\nurl = \"https://hooks.example.com\"\nsecrets = [\"whsec_${env:KEY}\"]\n\
                headers = { authorization = \"Bearer s3cret\" }\n[routes.\"Order/*\"]\nsink = \"hooks\"\nsubject = \"a.{event_type}\"\n";
    let environment = [("OUTBOX_SINKS__HOOKS__MAX_IN_FLIGHT", "3")];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter();
    let key = |source: &str, name: &str| match (source, name) {
        ("env", "KEY") => Ok("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned()),
        _ => Err("not there".to_owned()),
    };
    let (config, layers) = compose(Some(("outbox.toml", file)), environment, &[], &key, Checks::ALL).unwrap();
    let outbox::sink::SinkConfig::Http(hooks) = &config.sinks()["hooks"] else { panic!("another kind") };
    assert_eq!((hooks.max_in_flight, hooks.secrets.len()), (3, 1));
    assert_eq!(hooks.secrets[0].reveal(), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let relays = config.relays();
    assert_eq!((relays[0].0.to_string().as_str(), relays[0].1.sink.as_str()), ("Order/*", "hooks"));
    assert!(!format!("{:?}", layers.leaves).contains("MfKQ9r8"), "what is shown is what was written");
}

#[test]
fn references_of_sinks_and_plugins_may_be_unset_for_a_command_that_uses_neither() {
    let file = "[sinks.a]\nkind = \"nats\"\nurl = \"${env:A_URL}\"\n[sinks.b]\nkind = \"${env:B_KIND}\"\n[sinks.c]\nkind = \"stdout\"\n\
                [routes.\"Order/*\"]\nsink = \"a\"\n[routes.\"User/*\"]\nsink = \"b\"\n\
                [plugins.mailer.secrets]\ntoken = \"${env:MAIL_TOKEN}\"\n";

    let (config, layers) = composed_for(Checks::WITHOUT_SINKS_AND_PLUGINS, file, &[], &[]).unwrap();
    let faults = composed(file, &[], &[]).unwrap_err();

    assert_eq!((config.sinks.len(), config.relays().len()), (1, 2));
    assert!(config.plugins.manifests.contains_key("mailer"));
    let written = layers.written("sinks.a.url").map(|(_, url)| url);
    assert_eq!(written, Some("${env:A_URL}"), "`config show` shows it");
    assert_eq!(
        faults,
        [
            "outbox.toml:3: sinks.a.url: ${env:A_URL} is not there",
            "outbox.toml:5: sinks.b.kind: ${env:B_KIND} is not there",
            "outbox.toml:13: plugins.mailer.secrets.token: ${env:MAIL_TOKEN} is not there",
        ]
    );
}

#[test]
fn other_faults_of_sinks_and_plugins_are_told_to_every_command() {
    let file = "[sinks.a]\nkind = \"nats\"\nurl = \"https://a\"\n[sinks.b]\nkind = \"nats\"\nurl = \"${env:B_URL}\"\n\
                [routes.\"Order/*\"]\nsink = \"c\"\n[database]\ntable = \"${env:TABLE}\"\n";

    let faults = composed_for(Checks::WITHOUT_SINKS_AND_PLUGINS, file, &[], &[]).unwrap_err().join("\n");

    for part in ["sinks.a.url begins with `https://`", "sink is `c`; the sinks are: a, b", "database.table: ${env:TABLE}"] {
        assert!(faults.contains(part), "{part}\n---\n{faults}");
    }
    assert!(!faults.contains("B_URL"), "{faults}");
}

#[test]
fn every_fault_of_a_sink_and_of_a_relay_is_told_with_its_line() {
    let file = "[sinks.a]\nkind = \"nats\"\nurl = \"https://s3cret@a\"\ntimeout = \"1m\"\n[sinks.B]\nkind = \"stdout\"\n";
    let faults = composed(file, &[], &[]).unwrap_err().join("\n");
    for part in ["outbox.toml:3: sinks.a.url begins with `https://`", "sinks.\"B\" is not a valid name of a sink"] {
        assert!(faults.contains(part), "{part}\n---\n{faults}");
    }
    assert!(!faults.contains("s3cret"), "{faults}");

    let file = "[sinks.a]\nkind = \"stdout\"\n[sinks.slow]\nkind = \"nats\"\nurl = \"nats://a\"\ntimeout = \"1m\"\n\
                [routes.\"Order/*\"]\nsink = \"b\"\n[routes.\"*/*\"]\nsink = \"slow\"\n";
    let faults = composed(file, &[], &[]).unwrap_err().join("\n");
    for part in [
        "outbox.toml:6: sinks.slow.timeout is 60s; twice this time plus a second must be less than dispatcher.lease",
        "outbox.toml:8: routes.\"Order/*\".sink is `b`; the sinks are: a, slow",
    ] {
        assert!(faults.contains(part), "{part}\n---\n{faults}");
    }

    let file = "[sinks.a]\nkind = \"pigeon\"\n[sinks.c]\nkind = \"stdout\"\ncolour = 1\n[routes.Order]\nsink = \"a\"\n";
    let faults = composed(file, &[], &[]).unwrap_err().join("\n");
    for part in [
        "outbox.toml:2: sinks.a.kind: it is `pigeon`, but must be `stdout`",
        "outbox.toml:5: sinks.c.colour: there is no such field",
        "outbox.toml:7: routes.\"Order\" is not a route",
    ] {
        assert!(faults.contains(part), "{part}\n---\n{faults}");
    }
}

#[test]
fn a_command_that_is_printed_holds_no_password_that_was_typed() {
    let typed = [
        Override::new("database.url", "postgres://app:s3cret@db/shop", "--database-url"),
        Override::new("database.table", "orders_outbox", "--set"),
    ];
    let settings = Settings::read(None, false, &typed, Checks::ALL).unwrap();
    assert_eq!(
        settings.config.flags.command("outbox dead list"),
        "outbox dead list --database-url 'postgres://app:***@db/shop' --set database.table=orders_outbox"
    );
}

#[test]
fn commands_of_a_host_are_printed_with_its_address_and_never_with_its_token() {
    let remote = || Remote::new("https://outbox.example/", Some("obx_s3cret".to_owned())).unwrap();
    let command = |token| Settings::of_host(None, &[], remote(), token).unwrap().config.flags.command("outbox stats");
    assert_eq!(command(Some("obx_s3cret")), "outbox stats --url https://outbox.example");
    assert_eq!(command(None), "outbox stats --url https://outbox.example");
    let reference = "outbox stats --url https://outbox.example --token '${file:token}'";
    assert_eq!(command(Some("${file:token}")), reference);
}

#[cfg(feature = "postgres")]
#[test]
fn a_file_that_others_may_write_names_no_program() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("outbox.toml");
    let text = "[database]\nurl = \"postgres://app@db/shop\"\npassword_command = [\"true\"]\n";
    std::fs::write(&file, text).expect("writes");
    let load = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("sets the mode");
        Settings::load(Some(&file), &[], Checks::ALL).map(drop)
    };
    assert!(load(0o644).is_ok());

    let refused = load(0o666).expect_err("others could run a program");

    assert!(format!("{refused:?}").contains("other users may write to it"), "{refused:?}");
}
