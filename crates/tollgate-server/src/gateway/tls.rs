//! TLS in both directions: the certificate for clients, and the trusted certificates of servers.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The files of the certificate for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate chain as PEM.
    pub cert: PathBuf,
    /// Its private key, as PEM.
    pub key: PathBuf,
}

/// Why TLS is not available.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// A file does not contain what it should.
    Empty {
        /// The file.
        path: PathBuf,
        /// What it should contain.
        what: &'static str,
    },
    /// The contents of a file are invalid.
    Bad {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The certificate and the key do not match.
    Mismatch {
        /// The files.
        files: CertificateFiles,
        /// What is wrong.
        why: String,
    },
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, cause } => write!(
                f,
                "`{}` cannot be read: {cause}\nhint: check that the file exists and that this process may read it",
                path.display()
            ),
            Self::Empty { path, what } => write!(
                f,
                "`{}` has no {what}\nhint: give a PEM file with a `-----BEGIN …-----` line for it",
                path.display()
            ),
            Self::Bad { path, why } => write!(
                f,
                "`{}` is invalid: {why}\nhint: give a PEM file as it was issued",
                path.display()
            ),
            Self::Mismatch { files, why } => write!(
                f,
                "the certificate `{}` and the key `{}` cannot be used together: {why}\nhint: give the key that the certificate was issued for",
                files.cert.display(),
                files.key.display()
            ),
        }
    }
}

impl std::error::Error for TlsError {}

/// Reads a file.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|cause| TlsError::Unreadable {
        path: path.into(),
        cause,
    })
}

/// The certificates in `text`, which was read from `path`.
fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let all = all.map_err(|error| TlsError::Bad {
        path: path.into(),
        why: error.to_string(),
    })?;
    if all.is_empty() {
        return Err(TlsError::Empty {
            path: path.into(),
            what: "certificate",
        });
    }
    Ok(all)
}

/// The configuration for clients, with both versions of HTTP.
///
/// # Errors
/// What is wrong with the files.
pub(crate) fn server_config(files: &CertificateFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates(&files.cert, &read(&files.cert)?)?;
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => TlsError::Empty {
            path: files.key.clone(),
            what: "private key",
        },
        error => TlsError::Bad {
            path: files.key.clone(),
            why: error.to_string(),
        },
    })?;
    let mismatch = |error: rustls::Error| TlsError::Mismatch {
        files: files.clone(),
        why: error.to_string(),
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(mismatch)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(mismatch)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The configuration for servers, with the certificates in `ca` (a file and its contents) or those of the system.
///
/// # Errors
/// What is wrong with the file.
pub(crate) fn client_config(
    ca: Option<(&Path, &[u8])>,
    protocol: &[u8],
) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some((path, text)) => {
            for certificate in certificates(path, text)? {
                roots.add(certificate).map_err(|error| TlsError::Bad {
                    path: path.into(),
                    why: error.to_string(),
                })?;
            }
        }
        None => {
            // The library may not parse some certificates of the system; the others are used.
            let found = rustls_native_certs::load_native_certs().certs;
            roots.add_parsable_certificates(found);
        }
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Bad {
            path: ca.map_or(Path::new(""), |(path, _)| path).into(),
            why: error.to_string(),
        })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(Arc::new(config))
}
