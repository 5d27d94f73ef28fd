//! TLS to brokers and endpoints: rustls with ring, and the system's certificates or a file of the operator.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;

use outbox_event::chain::chain;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};

use super::error::quoted;

/// The certificates of a PEM file.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bad = |error: &dyn std::fmt::Display| format!("the certificates in {} cannot be read: {error}", file.display());
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).map_err(|error| bad(&error))?.collect();
    let found = found.map_err(|error| bad(&error))?;
    if found.is_empty() { Err(format!("{} holds no certificate in PEM", file.display())) } else { Ok(found) }
}

/// The fault of a file of certificates, if it has one. `name` is the setting that names the file.
pub(super) fn file_fault(name: &str, file: &Path) -> Option<String> {
    certificates(file).err().map(|error| format!("{name}: {error}"))
}

/// What is wrong with a sink's file of certificates, if anything. `tls` is the scheme of those of its addresses that mean TLS.
#[cfg_attr(
    not(any(feature = "amqp", feature = "http", feature = "nats", feature = "redis")),
    allow(dead_code, reason = "Kafka has a list of brokers instead of an address")
)]
pub(super) fn fault<'u>(
    prefix: &str,
    file: Option<&Path>,
    urls: impl IntoIterator<Item = &'u str>,
    tls: &str,
) -> Option<String> {
    if let Some(fault) = file_fault(&format!("{prefix}.ca_file"), file?) {
        return Some(fault);
    }
    // An operator who names an authority wants the server to be checked; without TLS it is not.
    let is_open = |url: &str| url.trim().split_once("://").is_some_and(|(scheme, _)| !scheme.eq_ignore_ascii_case(tls));
    urls.into_iter().any(is_open).then(|| {
        format!(
            "{prefix}.ca_file is set, but {prefix}.url is without TLS; write it like {tls}://host:port, or leave ca_file out"
        )
    })
}

/// A client that trusts the certificates of this file, or those of the system.
///
/// # Errors
/// When a certificate cannot be read or used; the text says which.
pub fn client(ca_file: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(file) => {
            for certificate in certificates(file)? {
                roots
                    .add(certificate)
                    .map_err(|error| format!("a certificate in {} cannot be used: {error}", file.display()))?;
            }
        }
        // Without any certificate, connections without TLS still work; a connection with TLS fails and says why.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions.map_err(|error| format!("TLS cannot be set up: {error}"))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Why a connection failed, for an operator: the error with its causes, and what to do if that is TLS. `ca_file` is the sink's.
#[cfg_attr(
    not(any(feature = "amqp", feature = "http", feature = "nats", feature = "redis")),
    allow(dead_code, reason = "the errors of Kafka's client repeat their causes")
)]
pub(super) fn reason(error: &(dyn Error + 'static), ca_file: Option<&Path>) -> String {
    let text = quoted(&chain(error));
    match advice(error, ca_file, "the server asks for a client certificate; sinks of this kind have none") {
        Some(advice) => format!("{text}; {advice}"),
        None => text,
    }
}

/// Advice about a connection that failed; `None` unless TLS is the reason. `ca_file` is the sink's; `client_certificate` is the advice if
/// the server rejects the client's certificate or misses one.
pub(super) fn advice(error: &(dyn Error + 'static), ca_file: Option<&Path>, client_certificate: &str) -> Option<String> {
    use AlertDescription::{
        BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked, CertificateUnknown, UnknownCA,
    };
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
    Some(match (failure(error)?, ca_file) {
        (InvalidCertificate(CertificateError::UnknownIssuer), None) => {
            "this machine does not know the authority of its certificate; if it is one of your own, name a file of it in ca_file"
                .to_owned()
        }
        (InvalidCertificate(CertificateError::UnknownIssuer), Some(file)) => {
            format!("none of the authorities in ca_file ({}) issued its certificate", file.display())
        }
        (InvalidCertificate(CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }), _) => {
            "its certificate is for another name; put one of the certificate's names into the address".to_owned()
        }
        (InvalidMessage(_), _) => "the server does not speak TLS at this address".to_owned(),
        // A server that runs on Java, such as Kafka, reports a missing certificate as a bad one.
        (
            AlertReceived(
                BadCertificate | CertificateExpired | CertificateRequired | CertificateRevoked | CertificateUnknown | UnknownCA,
            ),
            _,
        ) => client_certificate.to_owned(),
        _ => return None,
    })
}

/// The TLS failure among the causes of an error.
fn failure<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(failure) = cause.downcast_ref() {
            return Some(failure);
        }
        // The `source` of these skips the error that they hold.
        next = if let Some(held) = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(held)
        } else if let Some(held) = cause.downcast_ref::<Arc<io::Error>>() {
            Some(&**held)
        } else if let Some(held) = cause.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
            Some(&**held)
        } else {
            cause.source()
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_tls_is_found_wherever_a_client_keeps_it_and_said_with_what_to_do() {
        let wants_one = || rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
        let wants_one_in_java = rustls::Error::AlertReceived(AlertDescription::BadCertificate);
        let held: Arc<dyn Error + Send + Sync> = Arc::new(io::Error::other(wants_one()));
        let errors: [Box<dyn Error>; 6] = [
            Box::new(wants_one()),
            Box::new(wants_one_in_java),
            Box::new(io::Error::other(wants_one())),
            Box::new(Arc::new(io::Error::other(wants_one()))),
            Box::new(held.clone()),
            Box::new(Caused(held)),
        ];
        for error in errors {
            let reason = reason(&*error, None);
            assert!(reason.ends_with("; the server asks for a client certificate; sinks of this kind have none"), "{reason}");
        }
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(reason(&refused, None), "connection refused", "nothing of TLS is said of anything else");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot connect")]
    struct Caused(#[source] Arc<dyn Error + Send + Sync>);
}
