//! TLS and authentication as Kafka has them, in front of a relay.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};
use servers::KafkaGates;

use super::{Relay, broker};
use crate::certificate::certificate;

/// The user that a gate admits.
pub(crate) const USER: &str = "app";
pub(crate) const PASSWORD: &str = "s3cret";

/// An address that admits clients as a broker of Kafka does.
pub(crate) struct Gate {
    scheme: &'static str,
    port: u16,
    /// The broker behind it; gone with this value.
    _relay: Relay,
}

/// Whether a gate encrypts connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    None,
    /// Shows the tests' certificate.
    Server,
    /// Requires a certificate of the tests' authority from clients too.
    Mutual,
}

impl Gate {
    /// Admits the user by this mechanism alone. `None` admits everyone.
    pub(crate) async fn open(tls: Tls, mechanism: Option<&str>) -> Self {
        let relay = Relay::before(broker()).await;
        let protocol = match (tls, mechanism) {
            (Tls::None, None) => "PLAINTEXT",
            (Tls::None, Some(_)) => "SASL_PLAINTEXT",
            (_, None) => "SSL",
            (_, Some(_)) => "SASL_SSL",
        };
        let mut config = Map::from_iter([("security.protocol".to_owned(), json!(protocol))]);
        if tls != Tls::None {
            config.extend(encryption(tls));
        }
        if let Some(mechanism) = mechanism {
            config.extend(authentication(mechanism));
        }
        let settings = json!({"broker": relay.port(), "users": {USER: PASSWORD}, "config": config}).to_string();
        let port = tokio::task::block_in_place(|| gates().open(&settings).expect("it opens"));
        relay.advertise(port);
        Self { scheme: if tls == Tls::None { "" } else { "tls://" }, port, _relay: relay }
    }

    pub(crate) fn brokers(&self) -> String {
        format!("{}127.0.0.1:{}", self.scheme, self.port)
    }
}

/// The process that all tests of this program share.
fn gates() -> &'static KafkaGates {
    static SHARED: OnceLock<KafkaGates> = OnceLock::new();
    SHARED.get_or_init(|| KafkaGates::start().expect("it starts"))
}

/// Kafka's settings for TLS.
fn encryption(tls: Tls) -> [(String, Value); 6] {
    let pem = certificate();
    let authority = std::fs::read_to_string(&pem.authority).expect("readable");
    let client_certificate = if tls == Tls::Mutual { "required" } else { "none" };
    [
        ("ssl.keystore.type", "PEM"),
        ("ssl.keystore.certificate.chain", &pem.certificate),
        ("ssl.keystore.key", &pem.key),
        ("ssl.truststore.type", "PEM"),
        ("ssl.truststore.certificates", &authority),
        ("ssl.client.auth", client_certificate),
    ]
    .map(|(name, value)| (name.to_owned(), json!(value)))
}

/// Kafka's settings for SASL.
fn authentication(mechanism: &str) -> [(String, Value); 2] {
    let package = "org.apache.kafka.common.security";
    let login = match mechanism {
        "PLAIN" => format!("{package}.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";"),
        // Admits the tokens of `token`, which carry no signature.
        "OAUTHBEARER" => format!("{package}.oauthbearer.OAuthBearerLoginModule required;"),
        _ => format!("{package}.scram.ScramLoginModule required;"),
    };
    let name = format!("listener.name.gate.{}.sasl.jaas.config", mechanism.to_lowercase());
    [("sasl.enabled.mechanisms".to_owned(), json!(mechanism)), (name, json!(login))]
}
