//! The HTTP API of the hosts that `run` and `dev` start.

use std::net::{IpAddr, SocketAddr};

use outbox_http::{HttpConfig, Listen, ServeError, Server};

use crate::config::LogFormat;
use crate::failure::{Exit, Failure};
use crate::logging;

/// Where `outbox dev` listens unless it is told otherwise.
pub(crate) const DEV: &str = "127.0.0.1:8080";

/// Listens where the configuration says, and says so; `None` when it says nowhere.
pub(crate) async fn bind(config: HttpConfig, format: LogFormat) -> Result<Option<Server>, Failure> {
    Ok(told(Server::bind(config).await?, format))
}

/// As [`bind`], but on a free port when the usual one of `outbox dev` is taken: another one may be running.
pub(crate) async fn bind_in_dev(config: HttpConfig, format: LogFormat) -> Result<Option<Server>, Failure> {
    let usual: Option<SocketAddr> = DEV.parse().ok();
    match (Server::bind(config.clone()).await, config.listen) {
        (Err(error), Listen::At(wanted)) if error.is_taken() && Some(wanted) == usual => {
            let free = SocketAddr::new(wanted.ip(), 0);
            bind(HttpConfig { listen: Listen::At(free), ..config }, format).await
        }
        (bound, _) => Ok(told(bound?, format)),
    }
}

fn told(server: Option<Server>, format: LogFormat) -> Option<Server> {
    if let Some(server) = &server {
        logging::announce(&listening(server.address()), format);
    }
    server
}

/// Where it listens: a server that all networks reach must not seem to be a local one.
fn listening(address: SocketAddr) -> String {
    let of_all = if address.ip().is_unspecified() { ", which means every address of this machine" } else { "" };
    format!("listening on http://{address}{of_all}")
}

/// The address as somebody on this machine types it.
pub(crate) fn url(server: &Server) -> String {
    let mut address = server.address();
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { IpAddr::from([127, 0, 0, 1]) } else { IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]) });
    }
    format!("http://{address}")
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Config(faults) => Self::new(Exit::Config, "the HTTP API cannot be served").details(faults.0),
            error => {
                let fix = "with --listen ADDR, or http.listen in the configuration; --listen off serves none".to_owned();
                Self::new(Exit::Failed, error.to_string()).because(error).details(vec![fix])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_every_network_reaches_does_not_say_that_it_is_local() {
        let said = |address: &str| listening(address.parse().unwrap());

        assert_eq!(said("127.0.0.1:80"), "listening on http://127.0.0.1:80");
        assert_eq!(said("0.0.0.0:80"), "listening on http://0.0.0.0:80, which means every address of this machine");
        assert_eq!(said("[::]:80"), "listening on http://[::]:80, which means every address of this machine");
    }
}
