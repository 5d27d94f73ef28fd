//! What the HTTP clients of all plugins share: the look-ups of names, and whom TLS trusts.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::client::HttpClient;
use super::lookups::{Lookups, SystemResolver};
use crate::error::LoadError;
use crate::manifest::Http;

/// What the HTTP clients of all plugins share.
#[derive(Clone)]
pub(crate) struct Network {
    lookups: Lookups,
    ca_file: Option<PathBuf>,
    /// Read when the first plugin needs it: there may be hundreds of certificates.
    tls: Arc<OnceLock<Arc<rustls::ClientConfig>>>,
}

impl Network {
    pub(crate) fn new(ca_file: Option<PathBuf>) -> Self {
        Self { lookups: Lookups::new(Arc::new(SystemResolver)), ca_file, tls: Arc::default() }
    }

    /// A client for one plugin.
    pub(crate) fn client(&self, grant: &Http) -> Result<Arc<HttpClient>, LoadError> {
        let tls = match self.tls.get() {
            Some(tls) => tls.clone(),
            None => {
                let made = tls(self.ca_file.as_deref()).map_err(|reason| LoadError::Authorities { reason })?;
                self.tls.get_or_init(|| made).clone()
            }
        };
        Ok(Arc::new(HttpClient::new(grant.clone(), &tls, &self.lookups)))
    }
}

/// What HTTPS trusts: the system's authorities, and those of a file in PEM.
///
/// # Errors
/// What is wrong with the file.
pub(super) fn tls(extra: Option<&Path>) -> Result<Arc<rustls::ClientConfig>, String> {
    let mut roots = rustls::RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    // Some systems carry certificates that nobody can read any more.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 && extra.is_none() {
        tracing::warn!(
            target: "outbox::wasm::capability::http::network",
            "plugins: HTTPS trusts no server, since this system has no certificates of authorities"
        );
    }
    if let Some(file) = extra {
        let wrong = |why: &dyn std::fmt::Display| format!("{} has no certificates in PEM: {why}", file.display());
        let certificates = CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))?;
        let certificates = certificates.collect::<Result<Vec<_>, _>>().map_err(|error| wrong(&error))?;
        if certificates.is_empty() {
            return Err(wrong(&"it is empty"));
        }
        for certificate in certificates {
            roots.add(certificate).map_err(|error| wrong(&error))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
