//! The server that a sink's addresses lead to.

use ::redis::{RedisConnectionInfo, Value, cmd};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::named::may_be_named;
use super::server::{KindText, Open, Options, Server};
use crate::error::quoted;

/// The first server that a sink connects to: the only one, the master that a Sentinel names, or any node of a cluster.
pub(super) struct Entry {
    /// The servers of the sink's addresses; at least one.
    servers: Vec<Server>,
    /// The name of the master, if the servers are Sentinels; and how to log in to it.
    master: Option<(String, RedisConnectionInfo)>,
}

impl Entry {
    /// `sentinel` is the name of the master, and `login` how to log in to it, if the servers are Sentinels.
    pub(super) fn new(servers: Vec<Server>, sentinel: Option<String>, login: RedisConnectionInfo) -> Self {
        Self { servers, master: sentinel.map(|name| (name, login)) }
    }

    /// Connects to all servers at once, as some may be away, and takes the first that answers. `nodes` are further nodes of the cluster.
    ///
    /// # Errors
    /// Why none can be used, for an operator.
    pub(super) async fn open(&self, options: &Options, nodes: Vec<Server>) -> Result<Open, String> {
        let servers = self.servers.iter().chain(&nodes);
        let mut opening: FuturesUnordered<_> = servers.map(|server| self.open_by(server, options)).collect();
        let mut reasons = Vec::new();
        while let Some(opened) = opening.next().await {
            match opened {
                Ok(open) => return Ok(open),
                Err(reason) => reasons.push(reason),
            }
        }
        reasons.dedup();
        Err(reasons.join("; "))
    }

    async fn open_by(&self, server: &Server, options: &Options) -> Result<Open, String> {
        let open = server.open(options).await.map_err(|reason| match &self.master {
            Some(_) => format!("the Sentinel at {} cannot be asked: {reason}", server.address()),
            None => reason,
        })?;
        match &self.master {
            Some((name, login)) => {
                let master = master(open, server, name, login).await?;
                let opening = async { is_master(master.open(options).await?, server).await };
                let opened = opening.await;
                opened.map_err(|reason| format!("the master `{}` at {}: {reason}", quoted(name), master.address()))
            }
            None if self.servers.len() > 1 => is_in_cluster(open, server).await,
            None => Ok(open),
        }
    }
}

/// The master that a Sentinel names.
async fn master(mut sentinel: Open, at: &Server, name: &str, login: &RedisConnectionInfo) -> Result<Server, String> {
    let mut asking = cmd("SENTINEL");
    asking.arg("get-master-addr-by-name").arg(name);
    let answer: Result<Option<(String, u16)>, _> = asking.query_async(&mut sentinel.connection).await;
    match answer {
        Ok(Some((host, port))) if may_be_named(&host) => Ok(Server { host, port, settings: login.clone(), is_named: true }),
        Ok(Some((host, _))) => {
            Err(format!("the Sentinel at {} names `{}`, where no master can be", at.address(), quoted(&host)))
        }
        Ok(None) => {
            Err(format!("the Sentinel at {} knows no master `{}`; correct the setting sentinel", at.address(), quoted(name)))
        }
        Err(error) => Err(format!("{} does not answer as a Sentinel: {}", at.address(), error.kind_text())),
    }
}

/// The connection, unless its server says that it is no master. A Sentinel that was cut off from the others names the old master, and may be
/// the first to answer at every try.
async fn is_master(mut open: Open, sentinel: &Server) -> Result<Open, String> {
    let answer: Result<Vec<Value>, _> = cmd("ROLE").query_async(&mut open.connection).await;
    // A failure concerns this command alone: a user may have no right to it.
    match answer.as_deref().map(<[Value]>::first) {
        Ok(Some(Value::BulkString(role))) if role != b"master" => Err(format!(
            "its role is `{}`; the Sentinel at {} has missed a failover",
            quoted(&String::from_utf8_lossy(role)),
            sentinel.address()
        )),
        _ => Ok(open),
    }
}

/// The connection, unless its server says that it belongs to no cluster: of several servers without one, each would get some messages.
async fn is_in_cluster(mut open: Open, server: &Server) -> Result<Open, String> {
    let answer: Result<Value, _> = cmd("CLUSTER").arg("INFO").query_async(&mut open.connection).await;
    // Any other failure concerns this command alone: a user may have no right to it.
    match answer {
        Err(error) if error.to_string().contains("cluster support disabled") => Err(format!(
            "{} belongs to no cluster; several addresses are the nodes of one, or Sentinels, and then sentinel names the master",
            server.address()
        )),
        _ => Ok(open),
    }
}
