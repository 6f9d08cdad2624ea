//! TLS, with certificates that are made for the test.

use std::path::Path;
use std::time::Duration;

use crate::common::{
    Server, codes, one, open, passes, prepare, server, settings, until_up, wait_async,
};
use tollgate_policy::shared::SharedStore;
use tollgate_redis::{Settings, Tls};
use tollgate_testkit::certificates::Certificates;
use tollgate_testkit::{Directory, free_port};

/// Certificates in a directory of their own.
struct CertificateSet {
    directory: Directory,
    files: Certificates,
}

impl CertificateSet {
    fn make(years: (i32, i32)) -> CertificateSet {
        let directory = Directory::new();
        let files = Certificates::make_valid(directory.path(), years).unwrap();
        CertificateSet { directory, files }
    }

    /// Puts others in their place.
    fn replace(&self, others: &CertificateSet) {
        for file in others.directory.path().read_dir().unwrap() {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            std::fs::copy(file.path(), self.directory.file(&name)).unwrap();
        }
    }

    /// A server that shows them, and its port with TLS.
    fn server(&self) -> (Server, u16) {
        let port = free_port().unwrap();
        let path = |file: &Path| file.display().to_string();
        let options = [
            ("tls-port", port.to_string()),
            ("tls-cert-file", path(&self.files.server_cert_file)),
            ("tls-key-file", path(&self.files.server_key_file)),
            ("tls-ca-cert-file", path(&self.files.ca_file)),
        ];
        let options = options
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        (server(&options), port)
    }
}

fn with(port: u16, ca: &CertificateSet, shows: &CertificateSet) -> Settings {
    let mut wanted = settings(port);
    wanted.tls = Some(Tls {
        ca_file: Some(ca.files.ca_file.clone()),
        cert_file: Some(shows.files.client_cert_file.clone()),
        key_file: Some(shows.files.client_key_file.clone()),
    });
    wanted
}

#[tokio::test]
async fn a_server_is_asked_over_tls() {
    let certificates = CertificateSet::make((2020, 2100));
    let (_server, port) = certificates.server();
    let store = open(with(port, &certificates, &certificates));
    let limits = prepare(&store, &[1]);
    until_up(&store).await;
    assert!(passes(&limits.charge(&one("a")).await.unwrap()));
    assert!(!passes(&limits.charge(&one("a")).await.unwrap()));
}

#[tokio::test]
async fn a_server_with_an_invalid_certificate_gets_no_request() {
    let certificates = CertificateSet::make((2020, 2100));
    let others = CertificateSet::make((2020, 2100));
    let expired = CertificateSet::make((2020, 2021));
    for (server, ca) in [(&certificates, &others), (&expired, &expired)] {
        let (_running, port) = server.server();
        let store = open(with(port, ca, server));
        let limits = prepare(&store, &[1]);
        wait_async("it is said", Duration::from_secs(5), async || {
            codes(&store) == ["bad-certificate"]
        })
        .await;
        assert!(limits.charge(&one("a")).await.is_err());
    }
}

#[tokio::test]
async fn certificates_that_are_replaced_are_read_again() {
    let certificates = CertificateSet::make((2020, 2100));
    let others = CertificateSet::make((2020, 2100));
    let (server, port) = certificates.server();
    let store = open(with(port, &certificates, &certificates));
    let limits = prepare(&store, &[10]);
    until_up(&store).await;
    let again = async |round: u64| {
        server.restart().unwrap();
        wait_async("it is asked again", Duration::from_secs(5), async || {
            store.report().servers[0].connected == round && limits.charge(&one("a")).await.is_ok()
        })
        .await;
    };
    certificates.replace(&others);
    again(2).await;
    // They are not there, or half written: those from before still do.
    let own = &certificates.files.client_cert_file;
    std::fs::remove_file(own).unwrap();
    again(3).await;
    std::fs::write(own, "-----BEGIN CERTIFICATE-----\nnonsense").unwrap();
    again(4).await;
}
