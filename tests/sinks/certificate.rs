//! Certificates, made by openssl.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// An authority, and a certificate of it for 127.0.0.1 with its key; all in PEM.
pub(crate) struct Certificate {
    pub(crate) authority: PathBuf,
    /// An authority that has nothing to do with the certificate.
    pub(crate) stranger: PathBuf,
    pub(crate) certificate: String,
    pub(crate) key: String,
    /// The same two, as files: a client may show them too.
    pub(crate) certificate_file: PathBuf,
    pub(crate) key_file: PathBuf,
    _directory: tempfile::TempDir,
}

const MAKE: &str = "set -e
for name in authority stranger; do
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=$name -keyout $name.key -out $name.crt
done
printf 'subjectAltName=IP:127.0.0.1' > server.ext
openssl req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr
openssl x509 -req -in server.csr -CA authority.crt -CAkey authority.key -CAcreateserial -days 2 -extfile server.ext -out server.crt";

/// Made once for all tests.
pub(crate) fn certificate() -> &'static Certificate {
    static MADE: OnceLock<Certificate> = OnceLock::new();
    MADE.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let made = Command::new("sh").args(["-c", MAKE]).current_dir(directory.path()).output().expect("sh is there");
        assert!(made.status.success(), "openssl is installed: {}", String::from_utf8_lossy(&made.stderr));
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect("openssl made it");
        Certificate {
            authority: directory.path().join("authority.crt"),
            stranger: directory.path().join("stranger.crt"),
            certificate: read("server.crt"),
            key: read("server.key"),
            certificate_file: directory.path().join("server.crt"),
            key_file: directory.path().join("server.key"),
            _directory: directory,
        }
    })
}

impl Certificate {
    /// A server's side of TLS, with this certificate.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::new(self.server()))
    }

    /// The same, for a server that speaks HTTP/2.
    pub(crate) fn http2_acceptor(&self) -> TlsAcceptor {
        let mut config = self.server();
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    fn server(&self) -> ServerConfig {
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes());
        let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().expect("known").with_no_client_auth();
        config.with_single_cert(chain, key).expect("they belong together")
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.authority).expect("a certificate")).expect("an authority");
        roots
    }

    /// A client's side of TLS, which trusts the authority alone.
    pub(crate) fn client(&self) -> ClientConfig {
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().expect("known");
        config.with_root_certificates(self.roots()).with_no_client_auth()
    }

    /// The same, to connect with.
    pub(crate) fn connector(&self) -> TlsConnector {
        TlsConnector::from(Arc::new(self.client()))
    }
}
