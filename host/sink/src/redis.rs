//! Redis: a message as an entry of a stream, added by XADD; the server's answer is the entry's id.
//!
//! Redis does not remove duplicates: consumers do it by the field `id`. Whether a confirmed entry survives a crash depends on the
//! server's `appendfsync`.
//!
//! A batch is one pipeline, whose answers come together and in its order. An entry that the server refuses fails alone; one that it
//! is slow to answer holds up those behind it, since a server does one thing after another. In a cluster a batch is one pipeline for
//! each node.

mod cluster;
mod entry;
mod named;
mod server;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::{Pipeline, RedisConnectionInfo, RedisError, RedisResult, Value};
use async_trait::async_trait;
use futures_util::future::join_all;
use outbox_event::units::duration;
use serde::{Deserialize, Serialize};
use url::Url;

use cluster::{Node, NodeBreakers, Nodes, Redirect};
use entry::Entry;
use server::{KindText, Open, Options, Server};

use super::batching::{Batch, Limits, Link};
use super::breaker::{Down, OpenBreakers};
use super::common::TIMEOUT;
use super::connection::Connection;
use super::headers::{carried, own};
use super::kind::Kind;
use super::rests::Rests;
use super::{CommonConfig, Message, Secret, SinkError, Template, target, tls};

const LIMITS: Limits = Limits { messages: 256, bytes: 1 << 20, in_flight: 2 };

const SCHEMES: [&str; 2] = ["redis", "rediss"];

/// A connection to Redis whose messages become entries of streams.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// Where the server is: `redis://host:6379/0`, or `rediss://` with TLS. Several addresses, separated by commas, are nodes of a
    /// cluster, or Sentinels. Required.
    pub url: String,
    /// The name of the master, if the addresses are Sentinels; `None` if they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel: Option<String>,
    /// The user of the server's access list; `None` for the default one. Not used for a Sentinel: its user is in its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The password; `None` to log in without one. Not used for a Sentinel: its password is in its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// Certificates in PEM to trust instead of the system's; `None` for the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The stream of a message that has no subject. Default `outbox:{aggregate_type}`. In what an event says, spaces become `_`.
    pub stream: Template,
    /// Which streams a message may choose for itself, as patterns. Default none: any other key of the database could be one.
    pub subjects: Vec<String>,
    /// About how many entries a stream keeps; older ones go. `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maxlen: Option<u64>,
    /// The time within which the server must have answered. Default 10 s; above zero.
    #[serde(with = "duration")]
    pub timeout: Duration,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            sentinel: None,
            user: None,
            password: None,
            ca_file: None,
            stream: "outbox:{aggregate_type}".parse().expect("a template of ours"),
            subjects: Vec::new(),
            maxlen: None,
            timeout: TIMEOUT,
        }
    }
}

impl Kind for RedisConfig {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn target(&self) -> String {
        target::shown(&self.url)
    }

    fn common(&self) -> CommonConfig {
        CommonConfig { timeout: self.timeout, subjects: self.subjects.clone(), max_age: None }
    }

    fn faults(&self, prefix: &str) -> Vec<String> {
        let mut faults: Vec<_> = self.urls().filter_map(|url| target::fault(&format!("{prefix}.url"), url, &SCHEMES)).collect();
        faults.extend(tls::fault(prefix, self.ca_file.as_deref(), self.urls(), "rediss"));
        if self.urls().any(is_encrypted) && !self.urls().all(is_encrypted) {
            faults.push(format!("{prefix}.url has addresses with TLS and without; all must be rediss://, or all redis://"));
        }
        if self.sentinel.as_ref().is_some_and(String::is_empty) {
            faults.push(format!("{prefix}.sentinel is empty; write the name of the master, such as mymaster, or leave it out"));
        }
        if self.urls().filter_map(|url| url.parse::<Url>().ok()).any(|url| url.fragment().is_some()) {
            faults.push(format!(
                "{prefix}.url has a `#`; a certificate is always checked, and ca_file says against which authority"
            ));
        }
        if self.stream.as_str().is_empty() {
            faults.push(format!("{prefix}.stream is empty; write it like outbox:{{aggregate_type}}"));
        }
        if self.maxlen == Some(0) {
            faults.push(format!("{prefix}.maxlen is 0; it must be at least 1, or left out"));
        }
        faults
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    fn link(&self, name: &str, rests: Rests) -> Result<Arc<dyn Link>, String> {
        let same = rests.get::<NodeBreakers>().filter(|breakers| breakers.belong_to(&self.target()));
        let breakers = same.unwrap_or_else(|| Arc::new(NodeBreakers::new(name, self.target())));
        Ok(Arc::new(Redis::new(self.clone(), breakers)?))
    }
}

/// Whether an address means TLS.
fn is_encrypted(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("rediss"))
}

impl RedisConfig {
    fn urls(&self) -> impl Iterator<Item = &str> {
        self.url.split(',').map(str::trim)
    }

    /// The servers of the addresses, and how to log in to those that they name: nodes of a cluster, or the master.
    fn servers(&self) -> Result<(Vec<Server>, RedisConnectionInfo), String> {
        let mut servers = self.urls().map(Server::of).collect::<Result<Vec<_>, _>>()?;
        let first = servers.first().ok_or("url is missing")?.settings.clone();
        if self.sentinel.is_none() {
            for server in &mut servers {
                server.settings = self.with_credentials(server.settings.clone());
            }
            return Ok((servers, self.with_credentials(first)));
        }
        // The credentials in an address are for the Sentinel; its database is that of the master.
        for server in &mut servers {
            server.settings = server.settings.clone().set_db(0);
        }
        Ok((servers, self.with_credentials(RedisConnectionInfo::default().set_db(first.db()))))
    }

    fn with_credentials(&self, mut settings: RedisConnectionInfo) -> RedisConnectionInfo {
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password.reveal());
        }
        settings
    }
}

/// A connection to Redis.
struct Redis {
    options: Options,
    entry: Entry,
    connection: Connection<Open>,
    nodes: Nodes,
}

/// Messages of a batch that go to one server together.
struct Group {
    /// `None` for the server that the sink's addresses lead to.
    node: Option<Arc<Node>>,
    asking: bool,
    /// The indexes of the messages in the batch.
    messages: Vec<usize>,
}

/// The most servers that a message is sent to, one after the other, before it waits.
const MAX_HOPS: usize = 5;

impl Redis {
    fn new(config: RedisConfig, breakers: Arc<NodeBreakers>) -> Result<Self, String> {
        let (servers, login) = config.servers()?;
        let tls = config.urls().any(is_encrypted).then(|| tls::client(config.ca_file.as_deref())).transpose()?.map(Arc::new);
        let entry = Entry::new(servers, config.sentinel.clone(), login.clone());
        let options = Options { config, tls };
        Ok(Self { options, entry, connection: Connection::default(), nodes: Nodes::new(login, breakers) })
    }

    /// The server, as it may be shown.
    fn shown(&self, node: Option<&Arc<Node>>) -> String {
        match node {
            Some(node) => format!("Redis at {}", node.server.address()),
            None => format!("Redis at {}", self.options.config.target()),
        }
    }

    async fn connect(&self, node: Option<&Arc<Node>>) -> Result<Open, SinkError> {
        let opening = async {
            match node {
                Some(node) => node.server.open(&self.options).await,
                None => self.entry.open(&self.options, self.nodes.some()).await,
            }
        };
        let opened = tokio::time::timeout(self.options.patience(), opening).await;
        opened
            .unwrap_or_else(|_| Err("it does not answer".to_owned()))
            .map_err(|reason| SinkError::down(format!("{} cannot be connected to: {reason}", self.shown(node))))
    }

    /// The stream of a message.
    fn stream<'m>(&self, message: &'m Message) -> Cow<'m, str> {
        self.options.config.stream.subject_of(message, |value| value.replace(char::is_whitespace, "_"))
    }

    /// Adds one command for a message.
    fn add(&self, pipeline: &mut Pipeline, message: &Message) {
        let command = pipeline.cmd("XADD").arg(self.stream(message).as_bytes());
        if let Some(maxlen) = self.options.config.maxlen {
            command.arg("MAXLEN").arg("~").arg(maxlen);
        }
        command.arg("*").arg("id").arg(&message.id);
        for (name, value) in own(message) {
            command.arg(name).arg(value);
        }
        if let Some(key) = message.key() {
            command.arg("key").arg(key);
        }
        command.arg("content-type").arg(&message.content_type).arg("body").arg(&message.body[..]);
        let headers: serde_json::Map<String, serde_json::Value> =
            carried(message, |_| false).map(|(name, value)| (name.to_owned(), value.into())).collect();
        if !headers.is_empty() {
            command.arg("headers").arg(serde_json::Value::Object(headers).to_string());
        }
    }

    /// The meaning of a server's error for its message. A few errors are the fault of the message, a few that of its stream or of the rights
    /// to it. All others, such as `BUSY` while a script runs, concern every message and may pass.
    fn refused(&self, error: &RedisError, node: Option<&Arc<Node>>) -> SinkError {
        let reason = format!("{}: {}", self.shown(node), error.kind_text());
        match error.code() {
            Some("ERR" | "CROSSSLOT") => SinkError::rejected(reason),
            Some("WRONGTYPE" | "NOPERM") => SinkError::closed(reason),
            _ => SinkError::down(reason),
        }
    }

    /// The groups in which these messages are sent.
    fn groups(&self, batch: &Batch) -> Vec<Group> {
        if !self.nodes.are_known() {
            return vec![Group { node: None, asking: false, messages: (0..batch.messages().len()).collect() }];
        }
        let mut groups = Vec::new();
        for (index, message) in batch.messages().iter().enumerate() {
            group(&mut groups, self.nodes.of(&self.stream(message)), false, index);
        }
        groups
    }

    /// Sends a group by `deadline`, and answers its messages but for those that another server is to get.
    async fn send_group(&self, batch: &Batch, sent: &Group, deadline: Instant) -> Vec<(usize, Redirect)> {
        let node = sent.node.as_ref();
        let fail = |error: &SinkError| {
            sent.messages.iter().for_each(|index| batch.answer(*index, Err(error.clone())));
            Vec::new()
        };
        let pass = match node.map(|node| node.breaker.admit(Instant::now())).transpose() {
            Ok(pass) => pass,
            Err(error) => return fail(&error),
        };
        let (host, answers) = match tokio::time::timeout_at(deadline.into(), self.query(batch, sent)).await {
            Ok(Ok(answers)) => answers,
            failed => {
                self.forget(node);
                let error = match failed {
                    Ok(Err(error)) => error,
                    _ => SinkError::down(format!("{} does not answer", self.shown(node))),
                };
                if let Some(pass) = pass {
                    let reason = error.to_string();
                    let rest = pass.record(Some(Down { reason: &reason, rest: Duration::ZERO }), Instant::now());
                    return fail(&SinkError::unavailable_for(rest, reason));
                }
                let is_partial = self.nodes.are_known() || sent.messages.len() < batch.messages().len();
                return fail(&of_some(error, is_partial));
            }
        };
        if let Some(pass) = pass {
            pass.record(None, Instant::now());
        }
        let is_partial = self.nodes.are_known() || answers.iter().any(Result::is_ok);
        let mut redirects = Vec::new();
        let mut is_down = false;
        for (index, answer) in sent.messages.iter().zip(answers) {
            let Err(error) = answer else {
                if node.is_none() && self.nodes.are_known() {
                    self.nodes.entry_has(&self.stream(&batch.messages()[*index]));
                }
                batch.answer(*index, Ok(()));
                continue;
            };
            if let Some(redirect) = self.nodes.redirect(&error, &host) {
                redirects.push((*index, redirect));
                continue;
            }
            let refused = self.refused(&error, node);
            is_down |= refused.is_down();
            batch.answer(*index, Err(of_some(refused, is_partial)));
        }
        // A master may have become a replica; a new connection may reach the new master.
        if is_down {
            self.forget(node);
        }
        redirects
    }

    /// The answers of a server for a group, and the server's host.
    async fn query(&self, batch: &Batch, group: &Group) -> Result<(Arc<str>, Vec<RedisResult<Value>>), SinkError> {
        let node = group.node.as_ref();
        let connection = node.map_or(&self.connection, |node| &node.connection);
        let Open { mut connection, lifeline, host } = connection.get(|_| true, self.connect(node)).await?;
        lifeline.allow();
        let mut pipeline = Pipeline::with_capacity(group.messages.len());
        for index in &group.messages {
            if group.asking {
                pipeline.cmd("ASKING");
            }
            self.add(&mut pipeline, &batch.messages()[*index]);
        }
        let answers: RedisResult<Vec<RedisResult<Value>>> = pipeline.ignore_errors().query_async(&mut connection).await;
        let answers = answers.map_err(|error| SinkError::down(format!("{}: {}", self.shown(node), error.kind_text())))?;
        // Each message has an answer of its own behind that to ASKING.
        let (skipped, step) = if group.asking { (1, 2) } else { (0, 1) };
        Ok((host, answers.into_iter().skip(skipped).step_by(step).collect()))
    }

    fn forget(&self, node: Option<&Arc<Node>>) {
        match node {
            Some(node) => self.nodes.forget(node),
            None => self.connection.forget(),
        }
    }
}

/// The answer for messages that a server did not take. If others of their batch may be confirmed, these wait by themselves: their
/// attempts do not count, and the sink is not down.
fn of_some(error: SinkError, is_partial: bool) -> SinkError {
    match error {
        SinkError::Down { reason, .. } if is_partial => SinkError::unavailable(reason),
        error => error,
    }
}

/// Puts a message into the group for its server.
fn group(groups: &mut Vec<Group>, node: Option<Arc<Node>>, asking: bool, index: usize) {
    let same =
        |group: &&mut Group| group.asking == asking && group.node.as_ref().map(Arc::as_ptr) == node.as_ref().map(Arc::as_ptr);
    match groups.iter_mut().find(same) {
        Some(group) => group.messages.push(index),
        None => groups.push(Group { node, asking, messages: vec![index] }),
    }
}

#[async_trait]
impl Link for Redis {
    async fn send(&self, batch: &Batch, deadline: Instant) {
        let mut groups = self.groups(batch);
        for _ in 0..MAX_HOPS {
            let sending = groups.iter().map(|group| self.send_group(batch, group, deadline));
            let mut redirects: Vec<_> = join_all(sending).await.into_iter().flatten().collect();
            if redirects.is_empty() {
                return;
            }
            // In their order, also where they were sent to several nodes.
            redirects.sort_unstable_by_key(|(index, _)| *index);
            groups.clear();
            for (index, Redirect { node, asking }) in redirects {
                group(&mut groups, Some(node), asking, index);
            }
        }
        let error = SinkError::unavailable(
            "each server of the Redis cluster names another one for the stream; its slots are being moved",
        );
        groups.iter().flat_map(|group| &group.messages).for_each(|index| batch.answer(*index, Err(error.clone())));
    }

    fn destination<'m>(&self, message: &'m Message) -> Option<Cow<'m, str>> {
        Some(self.stream(message))
    }

    fn reaches_each_destination(&self) -> bool {
        true
    }

    fn open_breakers(&self) -> OpenBreakers {
        self.nodes.breakers().open()
    }

    fn rests(&self) -> Rests {
        Rests::new(self.nodes.breakers().clone())
    }

    fn cut_off(&self) {
        self.connection.forget();
        self.nodes.forget_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> RedisConfig {
        serde_json::from_str(text).expect("readable")
    }

    #[test]
    fn faults_name_the_setting_and_no_secret() {
        let faults =
            config(r#"{"url": "redis://:s3cret@a, rediss://b, http://c", "sentinel": "", "maxlen": 0}"#).faults("sinks.a");
        assert_eq!(faults.len(), 4, "{faults:#?}");
        assert!(faults.iter().all(|fault| fault.starts_with("sinks.a") && !fault.contains("s3cret")), "{faults:#?}");
        assert!(faults.iter().any(|fault| fault.contains("with TLS and without")), "{faults:#?}");
        assert_eq!(config(r#"{"url": "redis://a, redis://b:7000"}"#).faults("sinks.a"), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_link_that_replaces_another_keeps_the_breakers_of_its_nodes_unless_its_addresses_are_others() {
        let breakers = |link: &dyn Link| link.rests().get::<NodeBreakers>().expect("it has some");
        let first = config(r#"{"url": "redis://a, redis://b"}"#).link("log", Rests::default()).expect("no faults");
        let changed = config(r#"{"url": "redis://a, redis://b", "password": "new"}"#);
        let second = changed.link("log", first.rests()).expect("no faults");
        assert!(Arc::ptr_eq(&breakers(&*first), &breakers(&*second)));
        let moved = config(r#"{"url": "redis://c"}"#).link("log", second.rests()).expect("no faults");
        assert!(!Arc::ptr_eq(&breakers(&*second), &breakers(&*moved)), "the nodes of another cluster do not rest");
    }

    #[test]
    fn credentials_in_the_address_of_a_sentinel_are_for_the_sentinel_alone() {
        let of = |text: &str| {
            let (servers, login) = config(text).servers().expect("no faults");
            [&servers[0].settings, &login]
                .map(|settings| (settings.username().map(str::to_owned), settings.password().map(str::to_owned), settings.db()))
        };
        let some = |text: &str| Some(text.to_owned());
        let both = of(r#"{"url": "redis://u:p@a/3, redis://b", "user": "app"}"#);
        assert_eq!(both, [(some("app"), some("p"), 3), (some("app"), some("p"), 3)]);
        let [sentinel, master] = of(r#"{"url": "redis://u:p@a/3", "sentinel": "m", "user": "app", "password": "q"}"#);
        assert_eq!(sentinel, (some("u"), some("p"), 0));
        assert_eq!(master, (some("app"), some("q"), 3));
    }
}
