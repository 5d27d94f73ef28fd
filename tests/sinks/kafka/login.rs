//! The broker's side of authentication. It is written from the standards, so that it does not share the mistakes of the client.

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};

use super::wire::{Reader, SASL_AUTHENTICATE, SASL_HANDSHAKE, Writer};

const UNSUPPORTED_MECHANISM: i16 = 33;
const FAILED: i16 = 58;
/// The fewest iterations that a client accepts. Source: RFC 7677, section 4.
const ITERATIONS: u32 = 4_096;
const SALT: &[u8] = b"salt of the test";

/// The user that the broker admits, and how the user proves it.
#[derive(Clone, Debug)]
pub(crate) enum Login {
    Plain { user: &'static str, password: &'static str },
    Scram256 { user: &'static str, password: &'static str },
    Scram512 { user: &'static str, password: &'static str },
    Bearer { token: String },
}

impl Login {
    pub(crate) fn mechanism(&self) -> &'static str {
        match self {
            Self::Plain { .. } => "PLAIN",
            Self::Scram256 { .. } => "SCRAM-SHA-256",
            Self::Scram512 { .. } => "SCRAM-SHA-512",
            Self::Bearer { .. } => "OAUTHBEARER",
        }
    }
}

/// The authentication of one connection.
pub(crate) struct Session {
    login: Login,
    /// The first messages of client and broker, for the proof of SCRAM; the client's without its header.
    first: Option<(String, String)>,
    is_in: bool,
}

impl Session {
    pub(crate) fn of(login: &Login) -> Self {
        Self { login: login.clone(), first: None, is_in: false }
    }

    pub(crate) fn is_in(&self) -> bool {
        self.is_in
    }

    /// Answers a request of a client that is not in. `None` for any other request than those of authentication.
    pub(crate) fn answer(&mut self, key: i16, request: &mut Reader<'_>) -> Option<Vec<u8>> {
        let mut answer = Writer::default();
        match key {
            SASL_HANDSHAKE => {
                let is_known = request.text().as_deref() == Some(self.login.mechanism());
                let code = if is_known { 0 } else { UNSUPPORTED_MECHANISM };
                answer.i16(code).count(1).text(Some(self.login.mechanism()));
            }
            SASL_AUTHENTICATE => match self.step(request.bytes()) {
                Some(said) => _ = answer.i16(0).text(None).bytes(&said).i64(0),
                None => _ = answer.i16(FAILED).text(Some("unknown user or password")).bytes(b"").i64(0),
            },
            _ => return None,
        }
        Some(answer.0)
    }

    /// The next message of the broker. `None` if the client is refused.
    fn step(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let message = std::str::from_utf8(message).ok()?.to_owned();
        match self.login.clone() {
            Login::Plain { user, password } => {
                self.is_in = message == format!("\0{user}\0{password}");
                self.is_in.then(Vec::new)
            }
            Login::Bearer { token } => {
                self.is_in = message == format!("n,,\x01auth=Bearer {token}\x01\x01");
                self.is_in.then(Vec::new)
            }
            Login::Scram256 { user, password } => self.scram::<Hmac<Sha256>, Sha256>(&message, user, password),
            Login::Scram512 { user, password } => self.scram::<Hmac<Sha512>, Sha512>(&message, user, password),
        }
    }

    /// Source: RFC 5802, section 3.
    fn scram<M: Mac + KeyInit, D: Digest>(&mut self, message: &str, user: &str, password: &str) -> Option<Vec<u8>> {
        let Some((client_first, server_first)) = &self.first else {
            let client_first = message.strip_prefix("n,,")?.to_owned();
            let nonce = client_first.strip_prefix(&format!("n={user},r="))?;
            let server_first = format!("r={nonce}ours,s={},i={ITERATIONS}", BASE64.encode(SALT));
            self.first = Some((client_first, server_first.clone()));
            return Some(server_first.into_bytes());
        };
        let (without_proof, proof) = message.rsplit_once(",p=")?;
        let salted = salted_password::<M>(password.as_bytes());
        let stored = D::digest(mac::<M>(&salted, b"Client Key"));
        let all = format!("{client_first},{server_first},{without_proof}");
        let signature = mac::<M>(&stored, all.as_bytes());
        let proof = BASE64.decode(proof.as_bytes()).ok()?;
        let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(one, other)| one ^ other).collect();
        self.is_in = D::digest(client_key) == stored;
        let server_signature = mac::<M>(&mac::<M>(&salted, b"Server Key"), all.as_bytes());
        self.is_in.then(|| format!("v={}", BASE64.encode(&server_signature)).into_bytes())
    }
}

fn mac<M: Mac + KeyInit>(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("a key of any length");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

fn salted_password<M: Mac + KeyInit>(password: &[u8]) -> Vec<u8> {
    let mut last = mac::<M>(password, &[SALT, &1_u32.to_be_bytes()].concat());
    let mut salted = last.clone();
    for _ in 1..ITERATIONS {
        last = mac::<M>(password, &last);
        salted.iter_mut().zip(&last).for_each(|(one, other)| *one ^= other);
    }
    salted
}
