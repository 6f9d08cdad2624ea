//! Certificates for a server with TLS, made for each and removed with its directory.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::HOST;
use crate::error::{Error, Result};

/// Certificates of one server, as PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificates {
    /// The certificate authority: what a client has to trust.
    pub ca_file: PathBuf,
    /// The server's certificate, for 127.0.0.1 and `localhost`.
    pub server_cert_file: PathBuf,
    /// Its key.
    pub server_key_file: PathBuf,
    /// A certificate that a client may show.
    pub client_cert_file: PathBuf,
    /// Its key.
    pub client_key_file: PathBuf,
}

impl Certificates {
    /// Makes them in `folder`.
    pub fn make(folder: &Path) -> Result<Certificates> {
        Certificates::make_valid(folder, (2020, 2100))
    }

    /// The same, valid in these years.
    pub fn make_valid(folder: &Path, years: (i32, i32)) -> Result<Certificates> {
        let (server_cert, server_key, client_cert, client_key, ca) = sign(years)
            .map_err(|error| Error::Invalid(format!("no certificates could be made: {error}")))?;
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(Error::io("write a certificate"))?;
            Ok(path)
        };
        Ok(Certificates {
            ca_file: write("ca.pem", ca)?,
            server_cert_file: write("server.pem", server_cert)?,
            server_key_file: write("server.key", server_key)?,
            client_cert_file: write("client.pem", client_cert)?,
            client_key_file: write("client.key", client_key)?,
        })
    }
}

/// The server's certificate and key, the client's, and the authority's certificate.
fn sign(
    years: (i32, i32),
) -> std::result::Result<(String, String, String, String, String), rcgen::Error> {
    let mut ca = named("the authority of a test", Vec::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate()?;
    let ca_pem = ca.self_signed(&ca_key)?.pem();
    let issuer = Issuer::new(ca, ca_key);
    let issue = |name: &str, addresses: Vec<String>| {
        let key = KeyPair::generate()?;
        let mut certificate = named(name, addresses)?;
        certificate.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        certificate.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        let certificate = certificate.signed_by(&key, &issuer)?;
        Ok::<_, rcgen::Error>((certificate.pem(), key.serialize_pem()))
    };
    let (server_cert, server_key) =
        issue("a server of a test", vec![HOST.into(), "localhost".into()])?;
    let (client_cert, client_key) = issue("a client of a test", Vec::new())?;
    Ok((server_cert, server_key, client_cert, client_key, ca_pem))
}

/// A certificate with the name of its signer would look self-signed: each has its own.
fn named(
    name: &str,
    addresses: Vec<String>,
) -> std::result::Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(addresses)?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}
