//! TLS towards other sides: rustls with ring, the system's certificates, or one file of the operator's.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// The certificates of a PEM file.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bad = |error: &dyn std::fmt::Display| format!("the certificates in {} cannot be read: {error}", file.display());
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).map_err(|error| bad(&error))?.collect();
    let found = found.map_err(|error| bad(&error))?;
    if found.is_empty() { Err(format!("{} holds no certificate in PEM", file.display())) } else { Ok(found) }
}

/// What is wrong with a file of certificates, if anything.
pub(super) fn fault(name: &str, file: Option<&Path>) -> Option<String> {
    certificates(file?).err().map(|error| format!("{name}: {error}"))
}

/// A client that trusts the certificates of this file, or those of the system.
#[cfg_attr(not(any(feature = "sink-amqp", feature = "sink-http", feature = "sink-nats")), allow(dead_code))]
pub(super) fn client(ca_file: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(file) => {
            for certificate in certificates(file)? {
                roots
                    .add(certificate)
                    .map_err(|error| format!("a certificate in {} cannot be used: {error}", file.display()))?;
            }
        }
        // Without any there is a connection without TLS all the same; one with TLS says what is missing.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions.map_err(|error| format!("TLS cannot be set up: {error}"))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
