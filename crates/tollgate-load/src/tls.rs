//! Connections, in the open and over TLS.
//!
//! A certificate is believed if it names the host of the target and was signed by somebody who is believed: those of the system, or
//! only those of a file. There is no way to believe everybody: a load that goes to the wrong server measures nothing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::target::{Protocol, Target};
use crate::wrong::Wrong;

/// Who is believed.
#[derive(Clone, Debug)]
pub(crate) struct Trust(ClientConfig);

impl Trust {
    /// Those whose certificates are in this file, or whom the system believes.
    ///
    /// # Errors
    /// There is nobody to believe.
    pub(crate) fn new(file: Option<&[u8]>) -> Result<Trust, Wrong> {
        let mut roots = RootCertStore::empty();
        match file {
            Some(pem) => {
                let wrong = |why: String| {
                    let hint =
                        "name a file with certificates in PEM: `-----BEGIN CERTIFICATE-----`";
                    Wrong::new(format!("`--ca` cannot be used: {why}"), hint)
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
                    return Err(Wrong::new(
                        "this system believes nobody, so no certificate can be checked",
                        "install `ca-certificates`, or name who signed the server's: `--ca FILE`",
                    ));
                }
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| {
            let hint = "report it: this is a mistake of the tool";
            Wrong::new(format!("TLS cannot be spoken: {error}"), hint)
        })?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Ok(Trust(config))
    }

    /// How this target is reached.
    ///
    /// # Errors
    /// Its name can be in no certificate.
    pub(crate) fn of(&self, target: &Target) -> Result<TlsRoute, Wrong> {
        let name = ServerName::try_from(target.name().to_owned()).map_err(|_| {
            let what = format!("`{}` can be in no certificate", target.name());
            Wrong::new(
                what,
                "write the name or the address that the server's certificate has",
            )
        })?;
        let mut config = self.0.clone();
        config.alpn_protocols = match target.protocol {
            Protocol::Resp => Vec::new(),
            Protocol::Http => vec![b"http/1.1".to_vec()],
            Protocol::Grpc => vec![b"h2".to_vec()],
        };
        Ok(TlsRoute {
            connector: Arc::new(config).into(),
            name,
        })
    }
}

/// How a server is spoken with over TLS.
#[derive(Clone)]
pub(crate) struct TlsRoute {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl TlsRoute {
    pub(crate) async fn begin(&self, stream: TcpStream) -> io::Result<Stream> {
        let stream = self.connector.connect(self.name.clone(), stream).await?;
        Ok(Stream::Tls(Box::new(stream)))
    }
}

/// A connection.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, to),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, to),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
