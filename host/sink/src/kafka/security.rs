//! TLS and authentication.

use std::path::{Path, PathBuf};

use data_encoding::BASE64URL_NOPAD;
use krafka::KrafkaError;
use krafka::auth::oidc::{ClientCredentials, OidcTokenProvider};
use krafka::auth::{AuthConfig, OAuthBearerToken, TlsConfig};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;

use super::config::{KafkaConfig, Mechanism};
use crate::{Secret, target, tls};

/// The faults in the settings of TLS and authentication.
pub(super) fn faults(config: &KafkaConfig, prefix: &str) -> Vec<String> {
    let mut faults: Vec<String> = [("ca_file", &config.ca_file), ("cert_file", &config.cert_file)]
        .into_iter()
        .filter_map(|(name, file)| tls::file_fault(&format!("{prefix}.{name}"), file.as_deref()?))
        .collect();
    if let Some(file) = &config.key_file
        && let Err(error) = PrivateKeyDer::from_pem_file(file)
    {
        faults.push(format!(
            "{prefix}.key_file: the key in {} cannot be read: {error}; a key must be in PEM and not encrypted",
            file.display()
        ));
    }
    if config.cert_file.is_some() != config.key_file.is_some() {
        faults.push(format!("{prefix} has only one of cert_file and key_file; set both"));
    }
    let files = [("ca_file", config.ca_file.is_some()), ("cert_file", config.cert_file.is_some())];
    if let Some((name, _)) = files.into_iter().find(|(_, is_set)| *is_set && !config.is_tls()) {
        faults.push(format!(
            "{prefix}.{name} is set, but {prefix}.brokers is without TLS; write it like tls://host:port, or leave {name} out"
        ));
    }
    faults.extend(credential_faults(config, prefix));
    faults
}

fn credential_faults(config: &KafkaConfig, prefix: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if config.user.is_some() != config.password.is_some() {
        faults.push(format!("{prefix} has only one of user and password; set both"));
    }
    let is_oauth = config.mechanism == Some(Mechanism::OAuthBearer);
    let has_token = config.token_file.is_some() || config.token_url.is_some();
    match (is_oauth, has_token) {
        (true, false) => {
            faults.push(format!("{prefix}.mechanism is OAUTHBEARER; set {prefix}.token_file or {prefix}.token_url"))
        }
        (false, true) => {
            faults.push(format!(
                "{prefix} has a token_file or token_url; set {prefix}.mechanism to OAUTHBEARER, or leave it out"
            ));
        }
        _ => {}
    }
    if !is_oauth && config.mechanism.is_some() && config.user.is_none() {
        faults.push(format!("{prefix}.mechanism is set, but {prefix}.user is not; set user and password"));
    }
    if config.token_file.is_some() && (config.token_url.is_some() || config.user.is_some()) {
        faults.push(format!("{prefix}.token_file excludes token_url, user and password; keep one way to authenticate"));
    }
    if let Some(url) = &config.token_url {
        faults.extend(target::fault(&format!("{prefix}.token_url"), url, &["https"]));
        if config.user.is_none() {
            faults.push(format!("{prefix}.token_url is set, but {prefix}.user is not; set user and password to the client's"));
        }
    }
    if config.token_scope.is_some() && config.token_url.is_none() {
        faults.push(format!("{prefix}.token_scope is set, but {prefix}.token_url is not"));
    }
    faults
}

/// The client's settings for TLS and authentication. Reads no file.
///
/// # Errors
/// Settings that [`faults`] refuses.
pub(super) fn of(config: &KafkaConfig) -> Result<AuthConfig, KrafkaError> {
    let user = config.user.as_deref().unwrap_or_default();
    let password = config.password.as_ref().map(Secret::reveal).unwrap_or_default();
    let mechanism = config.mechanism.or_else(|| config.user.is_some().then_some(Mechanism::ScramSha512));
    let security = match mechanism {
        None => AuthConfig::plaintext(),
        Some(Mechanism::Plain) => AuthConfig::sasl_plain(user, password),
        Some(Mechanism::ScramSha256) => AuthConfig::sasl_scram_sha256(user, password),
        Some(Mechanism::ScramSha512) => AuthConfig::sasl_scram_sha512(user, password),
        Some(Mechanism::OAuthBearer) => match &config.token_file {
            Some(file) => {
                let file = file.clone();
                AuthConfig::sasl_oauthbearer_provider(move || read_token(file.clone()))
            }
            None => AuthConfig::sasl_oauthbearer_provider(token_endpoint(config, user, password)?),
        },
    };
    Ok(if config.is_tls() { security.with_tls(tls_of(config)) } else { security })
}

fn tls_of(config: &KafkaConfig) -> TlsConfig {
    let tls = match &config.ca_file {
        Some(file) => TlsConfig::new().with_ca_cert(text(file)),
        None => TlsConfig::new().with_native_roots(),
    };
    match (&config.cert_file, &config.key_file) {
        (Some(certificate), Some(key)) => tls.with_client_cert(text(certificate), text(key)),
        _ => tls,
    }
}

/// The token endpoint, whose certificate the system's authorities or that of `ca_file` must have issued.
fn token_endpoint(config: &KafkaConfig, user: &str, password: &str) -> Result<OidcTokenProvider, KrafkaError> {
    let url = config.token_url.as_deref().unwrap_or_default();
    let mut endpoint = OidcTokenProvider::builder(url)
        .credentials(ClientCredentials::secret(user, password))
        .request_timeout(config.timeout)
        .native_roots();
    if let Some(file) = &config.ca_file {
        endpoint = endpoint.ca_cert(text(file));
    }
    if let Some(scope) = &config.token_scope {
        endpoint = endpoint.scope(scope);
    }
    endpoint.build()
}

/// The token in a file, with its own end of life if it says one.
async fn read_token(file: PathBuf) -> Result<OAuthBearerToken, KrafkaError> {
    let token = tokio::fs::read_to_string(&file).await;
    let token = token.map_err(|error| KrafkaError::auth(format!("token_file {} cannot be read: {error}", file.display())))?;
    let token = token.trim();
    if token.is_empty() {
        return Err(KrafkaError::auth(format!("token_file {} is empty", file.display())));
    }
    let bearer = OAuthBearerToken::new(token);
    Ok(match expiry_ms(token) {
        Some(expiry) => bearer.with_lifetime_ms(expiry),
        None => bearer,
    })
}

/// When a JSON web token expires, in milliseconds since 1970. `None` if it does not say, or if the token is of another kind.
fn expiry_ms(token: &str) -> Option<i64> {
    #[derive(Deserialize)]
    struct Claims {
        exp: i64,
    }
    let claims = BASE64URL_NOPAD.decode(token.split('.').nth(1)?.as_bytes()).ok()?;
    let Claims { exp } = serde_json::from_slice(&claims).ok()?;
    exp.checked_mul(1_000)
}

/// A path of a configuration, which is text.
fn text(file: &Path) -> String {
    file.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(more: &str) -> String {
        let config = format!(r#"{{"brokers": "tls://a:9093", {more}}}"#);
        super::faults(&serde_json::from_str(&config).expect("readable"), "sinks.log").join("\n")
    }

    #[test]
    fn credentials_that_do_not_fit_the_mechanism_are_refused_and_not_repeated() {
        for (more, reason) in [
            (r#""user": "app""#, "only one of user and password"),
            (r#""password": "s3cret""#, "only one of user and password"),
            (r#""mechanism": "PLAIN""#, "sinks.log.mechanism is set, but sinks.log.user is not"),
            (r#""mechanism": "OAUTHBEARER""#, "set sinks.log.token_file or sinks.log.token_url"),
            (r#""token_file": "/t""#, "set sinks.log.mechanism to OAUTHBEARER"),
            (r#""mechanism": "OAUTHBEARER", "token_file": "/t", "user": "app", "password": "s3cret""#, "token_file excludes"),
            (
                r#""mechanism": "OAUTHBEARER", "token_url": "http://s3cret@a", "user": "a", "password": "b""#,
                "sinks.log.token_url",
            ),
            (r#""mechanism": "OAUTHBEARER", "token_url": "https://a/token""#, "set user and password to the client's"),
            (r#""token_scope": "kafka""#, "sinks.log.token_scope is set, but sinks.log.token_url is not"),
            (r#""cert_file": "/no/such/file""#, "sinks.log has only one of cert_file and key_file"),
            (r#""key_file": "/no/such/file""#, "the key in /no/such/file cannot be read"),
        ] {
            let refused = faults(more);
            assert!(refused.contains(reason) && !refused.contains("s3cret"), "{more}: {refused}");
        }
        for more in [
            r#""user": "app", "password": "s3cret""#,
            r#""user": "app", "password": "s3cret", "mechanism": "SCRAM-SHA-256""#,
            r#""mechanism": "OAUTHBEARER", "token_file": "/run/token""#,
            r#""mechanism": "OAUTHBEARER", "token_url": "https://a/token", "user": "app", "password": "s3cret", "token_scope": "k""#,
        ] {
            assert_eq!(faults(more), "", "{more}");
        }
    }

    #[test]
    fn a_json_web_token_says_when_it_expires_and_no_other_token_does() {
        let token = |claims: &str| format!("e30.{}.c2ln", BASE64URL_NOPAD.encode(claims.as_bytes()));
        assert_eq!(expiry_ms(&token(r#"{"sub": "app", "exp": 1767225600}"#)), Some(1_767_225_600_000));
        for other in ["opaque", "a.b.c", &token("{}"), &token(r#"{"exp": 9223372036854775807}"#)] {
            assert_eq!(expiry_ms(other), None, "{other}");
        }
    }
}
