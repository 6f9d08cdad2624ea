//! Plain and TLS connections.
//!
//! A certificate is accepted if it names the host of the target and a trusted authority signed it: one of the system, or only those of a
//! file. Verification cannot be disabled: a load that reaches the wrong server measures nothing.

use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::error::LoadError;
use crate::target::{Target, TargetProtocol};

/// The trusted certificates.
#[derive(Clone, Debug)]
pub(crate) struct TlsRoots(ClientConfig);

impl TlsRoots {
    /// The certificates of this file, or those of the system.
    ///
    /// # Errors
    /// There is no certificate.
    pub(crate) fn new(file: Option<&[u8]>) -> Result<TlsRoots, LoadError> {
        let mut roots = RootCertStore::empty();
        match file {
            Some(pem) => {
                let wrong = |why: String| {
                    let hint =
                        "name a file with certificates in PEM: `-----BEGIN CERTIFICATE-----`";
                    LoadError::new(format!("`--ca` cannot be used: {why}"), hint)
                };
                for certificate in CertificateDer::pem_slice_iter(pem) {
                    let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
                    roots
                        .add(certificate)
                        .map_err(|error| wrong(error.to_string()))?;
                }
                if roots.is_empty() {
                    return Err(wrong("there is no certificate in the file".into()));
                }
            }
            None => {
                let found = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(found.certs);
                if roots.is_empty() {
                    return Err(LoadError::new(
                        "this system has no trusted certificates",
                        "install `ca-certificates`, or name the issuer of the server's certificate: `--ca FILE`",
                    ));
                }
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| {
            let hint = "report it: this is a bug";
            LoadError::new(format!("cannot set up TLS: {error}"), hint)
        })?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Ok(TlsRoots(config))
    }

    /// The endpoint of a target.
    ///
    /// # Errors
    /// A name that no certificate can have.
    pub(crate) fn endpoint_for(&self, target: &Target) -> Result<TlsEndpoint, LoadError> {
        let name = ServerName::try_from(target.name().to_owned()).map_err(|_| {
            let what = format!("no certificate can name `{}`", target.name());
            LoadError::new(
                what,
                "write the name or the address that the server's certificate has",
            )
        })?;
        let mut config = self.0.clone();
        config.alpn_protocols = match target.protocol {
            TargetProtocol::Resp => Vec::new(),
            TargetProtocol::Http => vec![b"http/1.1".to_vec()],
            TargetProtocol::Grpc => vec![b"h2".to_vec()],
        };
        Ok(TlsEndpoint {
            connector: Arc::new(config).into(),
            name,
        })
    }
}

/// How to connect to a server over TLS.
#[derive(Clone)]
pub(crate) struct TlsEndpoint {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl TlsEndpoint {
    pub(crate) async fn begin(&self, stream: TcpStream) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(
            self.connector.connect(self.name.clone(), stream).await?,
        ))
    }
}

/// A plain or TLS connection. One virtual call for each system call.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}
