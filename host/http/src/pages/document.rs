//! The document around every page: head, navigation with counts, status line, search. Pure: a frame in, markup out.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

mod assets;

pub(super) use assets::{icon, icon_path, policy, script, script_path};

use maud::{DOCTYPE, Markup, PreEscaped, html};
use outbox::readiness::Unready;
use outbox_event::units::{count, number};
use outbox_store::Severity;

use crate::pages::known::findings::{Finding, calm, findings};
use crate::pages::known::plugins;
use crate::pages::known::sinks;
use crate::pages::known::snapshot::Known;
use crate::pages::link::encoded;
use crate::pages::words::when;

/// The colour scheme that the visitor chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Theme {
    /// The system's.
    #[default]
    System,
    Light,
    Dark,
}

impl Theme {
    pub(crate) fn of(text: &str) -> Self {
        match text {
            "light" => Self::Light,
            "dark" => Self::Dark,
            _ => Self::System,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// The next scheme of the switch.
    const fn next(self) -> Self {
        match self {
            Self::System => Self::Dark,
            Self::Dark => Self::Light,
            Self::Light => Self::System,
        }
    }
}

/// What the document around a page needs.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The way to the root of the pages: see [`root`](crate::pages::link::root).
    pub(crate) root: String,
    /// The path and the query of this page, from the root.
    pub(crate) here: String,
    pub(crate) theme: Theme,
    /// Which entry of the navigation this is.
    pub(crate) entry: &'static str,
    /// The kind of the database and the mode of the host.
    pub(crate) place: String,
    /// The visitor's name, where there are tokens.
    pub(crate) visitor: Option<String>,
    /// Whether the visitor may change anything.
    pub(crate) may_act: bool,
    pub(crate) known: Known,
    /// The ID of this host.
    pub(crate) owner: String,
    /// Why this host is not ready; empty if it is.
    pub(crate) unready: Vec<Unready>,
    /// How many events this host delivers per second.
    pub(crate) rate: Option<f64>,
    /// What the visitor has just done; shown above the page.
    pub(crate) notice: Option<Cow<'static, str>>,
    /// The live parts that the visitor's script has, by the marks of their content; `None` for a request for the whole page.
    pub(crate) has: Option<Vec<(String, String)>>,
}

const ENTRIES: [(&str, &str); 8] = [
    ("Overview", ""),
    ("Events", "events"),
    ("Dead", "dead"),
    ("Routes", "routes"),
    ("Plugins", "plugins"),
    ("Sinks", "sinks"),
    ("Hosts", "hosts"),
    ("Audit log", "audit"),
];

impl Frame {
    /// A link to somewhere in the pages.
    pub(crate) fn to(&self, path: &str) -> String {
        format!("{}{path}", self.root)
    }

    /// A link to one event.
    pub(crate) fn event(&self, id: impl std::fmt::Display) -> String {
        self.to(&format!("events/{}", encoded(&id.to_string())))
    }

    /// A live part of a page. The script asks for the live parts every two seconds and says which it has: parts that have not
    /// changed are left out of the answer.
    pub(crate) fn live(&self, id: &'static str, body: &Markup) -> Markup {
        let mut hasher = DefaultHasher::new();
        body.0.hash(&mut hasher);
        let mark = format!("{:016x}", hasher.finish());
        if self.has.as_ref().is_some_and(|has| has.iter().any(|(known, content)| known == id && *content == mark)) {
            return html! {};
        }
        // Screen readers read out changes of the status line only.
        html! { div id=(id) data-live=(mark) aria-live=[(id == "status").then_some("polite")] { (body) } }
    }

    /// When the events were counted, where that is longer ago than a visitor would think. The status line tells of a database that
    /// does not answer.
    pub(crate) fn counted(&self) -> Option<Markup> {
        let snapshot = self.known.snapshot.as_ref().filter(|_| self.known.outage.is_none())?;
        snapshot.time_if_old().map(|at| html! { "counted " (when(at, self.known.now())) })
    }

    fn badge(&self, entry: &str) -> Option<Markup> {
        let snapshot = self.known.snapshot.as_ref()?;
        let dead = snapshot.stats.dead;
        match entry {
            "Dead" if dead > 0 => Some(html! { span.badge.dead { (number(dead)) } }),
            "Plugins" => {
                let served = plugins::of_all(&snapshot.nodes);
                let fails = served.iter().any(|served| served.plugin.error.is_some());
                fails.then(|| html! { span.badge.dead title="a plugin failed" { "!" } })
            }
            "Sinks" => {
                let is_any_down = sinks::is_any_down(snapshot);
                is_any_down.then(|| html! { span.badge.dead title="a sink is down" { "!" } })
            }
            "Routes" => {
                let paused = snapshot.routes.iter().filter(|route| route.paused_at.is_some()).count() as u64;
                (paused > 0).then(|| html! { span.badge.parked title="paused" { "‖" (number(paused)) } })
            }
            "Hosts" if self.known.outage.is_none() && !snapshot.nodes.iter().any(|node| node.alive) => {
                Some(html! { span.badge.waiting { "0" } })
            }
            _ => None,
        }
    }

    /// The whole page; for a request of the script, only the live parts.
    pub(crate) fn document(&self, title: &str, body: Markup) -> Markup {
        let findings = findings(&self.known, &self.unready, &self.owner);
        let mark = if findings.iter().any(|finding| finding.severity == Severity::Fault) { "✕ " } else { "" };
        let title = format!("{mark}{title} · outbox");
        if self.has.is_some() {
            return html! { title { (title) } (self.navigation()) (self.status_line(&findings)) (body) };
        }
        shell(
            &self.root,
            self.theme,
            &title,
            html! {
                a.skip href="#main" { "Skip to the content" }
                header {
                    div.top {
                        a.brand href=(self.to("")) { strong { "outbox" } " " span.quiet { "· " (self.place) } }
                        form.search role="search" action=(self.to("search")) {
                            label.unseen for="search" { "Search" }
                            input #search type="search" name="q" placeholder="id, aggregate, type" autocomplete="off" spellcheck="false";
                        }
                        (self.switch())
                        @if let Some(visitor) = &self.visitor {
                            form method="post" action=(self.to("logout")) { button.plain title=(format!("{visitor}: log out")) { "Log out" } }
                        }
                    }
                    nav aria-label="Pages" { (self.navigation()) }
                }
                (self.status_line(&findings))
                main #main tabindex="-1" data-now=(self.known.now()) {
                    @if let Some(notice) = &self.notice { p.notice role="status" { (notice) } }
                    (body)
                }
                dialog #keys aria-label="Keyboard shortcuts" {
                    p { strong { "Keyboard shortcuts" } }
                    dl.keys {
                        dt { kbd { "/" } } dd { "search" }
                        dt { kbd { "j" } " " kbd { "k" } } dd { "next and previous row" }
                        dt { kbd { "Enter" } } dd { "open the row" }
                        dt { kbd { "?" } } dd { "show these shortcuts" }
                    }
                    form method="dialog" { button { "Close" } }
                }
            },
        )
    }

    fn navigation(&self) -> Markup {
        let links = html! {
            @for (name, path) in ENTRIES {
                a href=(self.to(path)) aria-current=[(name == self.entry).then_some("page")] { (name) @if let Some(badge) = self.badge(name) { " " (badge) } }
            }
        };
        self.live("nav", &links)
    }

    fn switch(&self) -> Markup {
        let next = self.theme.next();
        html! {
            form.switch method="post" action=(self.to("theme")) {
                input type="hidden" name="theme" value=(next.as_str());
                input type="hidden" name="back" value=(self.here);
                button.plain title=(format!("Colours: {}. Press for {}.", self.theme.as_str(), next.as_str())) aria-label=(format!("Colours: {}, change to {}", self.theme.as_str(), next.as_str())) { "◐" }
            }
        }
    }

    /// The worst finding, and how many more there are.
    fn status_line(&self, findings: &[Finding]) -> Markup {
        let line = html! {
            @match (findings.split_first(), &self.known.snapshot) {
                (Some((first, more)), _) => {
                    (self.finding(first))
                    @if !more.is_empty() && self.entry != "Overview" {
                        p.quiet { a href=(self.to("")) { "and " (count(more.len() as u64, "more problem")) } }
                    }
                    @if self.entry == "Overview" { @for finding in more { (self.finding(finding)) } }
                }
                (None, Some(snapshot)) if snapshot.is_anybody_alive() => {
                    p.status.well { span aria-hidden="true" { "●" } " " (calm(snapshot, self.rate)) }
                },
                (None, Some(snapshot)) => p.status { (calm(snapshot, self.rate)) },
                (None, None) => p.status { "No data yet." },
            }
            // By this the style sheet shows that the page is out of date.
            @if self.known.outage.is_some() { span.gone {} }
        };
        self.live("status", &line)
    }

    fn finding(&self, finding: &Finding) -> Markup {
        let (class, shape) = match finding.severity {
            Severity::Fault => ("fault", "✕"),
            Severity::Warning | Severity::Good => ("warning", "!"),
        };
        html! {
            p.status.(class) {
                span aria-hidden="true" { (shape) } " " (finding.sentence)
                @if let Some(said) = &finding.said { " " em { (said) } }
                @if let Some(preceding) = &finding.preceding { " (" (preceding) ")" }
                " " a href=(self.to(&finding.link.to)) { (finding.link.word) }
            }
        }
    }
}

/// A document without navigation: for the login, and for requests that failed.
pub(crate) fn shell(root: &str, theme: Theme, title: &str, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" data-theme=(theme.as_str()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" href=(format!("{root}{}", assets::icon_path()));
                // Inline, so that the page can be shown after one round trip.
                style { (PreEscaped(assets::STYLE)) }
                script src=(format!("{root}{}", assets::script_path())) defer {}
            }
            body { (body) }
        }
    }
}

/// A page that says what went wrong, and what to do.
pub(crate) fn plain(root: &str, theme: Theme, title: &str, sentence: &str) -> Markup {
    shell(
        root,
        theme,
        &format!("{title} · outbox"),
        html! {
            main.alone #main {
                h1 { (title) }
                p { (sentence) }
                p { a href=(root) { "Back to the overview" } }
            }
        },
    )
}
