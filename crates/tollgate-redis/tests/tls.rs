//! TLS, with certificates of our own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{
    Server, codes, free_port, new_dir, one, open, passes, prepare, settings, until, until_up,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tollgate::store::shared::SharedStore;
use tollgate_redis::{Settings, Tls};

struct Certificates {
    dir: PathBuf,
}

impl Certificates {
    fn make(years: std::ops::Range<i32>) -> Certificates {
        let dir = new_dir();
        let write = |name: &str, text: String| std::fs::write(dir.join(name), text).unwrap();
        let mut authority = CertificateParams::new(vec![]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority
            .distinguished_name
            .push(DnType::CommonName, "an authority");
        let authority =
            CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        write("ca.pem", authority.pem());
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let mut own =
                CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
            own.not_before = rcgen::date_time_ymd(years.start, 1, 1);
            own.not_after = rcgen::date_time_ymd(years.end, 1, 1);
            write(
                &format!("{name}.pem"),
                own.signed_by(&key, &authority).unwrap().pem(),
            );
            write(&format!("{name}.key"), key.serialize_pem());
        }
        Certificates { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Others are put in their place.
    fn replace(&self, others: &Certificates) {
        for name in [
            "ca.pem",
            "server.pem",
            "server.key",
            "client.pem",
            "client.key",
        ] {
            std::fs::copy(others.path(name), self.path(name)).unwrap();
        }
    }

    fn server(&self) -> Server {
        let path = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let port = free_port().to_string();
        let (certificate, key, ca) = (path("server.pem"), path("server.key"), path("ca.pem"));
        let args = [
            "--tls-port",
            &port,
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &ca,
        ];
        let mut server = Server::start(&args);
        server.port = port.parse().unwrap();
        server
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn with(port: u16, ca: &Path, shows: Option<&Certificates>) -> Settings {
    let mut wanted = settings(port);
    wanted.tls = Some(Tls {
        ca_file: Some(ca.to_owned()),
        cert_file: shows.map(|own| own.path("client.pem")),
        key_file: shows.map(|own| own.path("client.key")),
    });
    wanted
}

#[tokio::test]
async fn a_server_is_asked_over_tls() {
    let certificates = Certificates::make(2020..2100);
    let server = certificates.server();
    let store = open(with(
        server.port,
        &certificates.path("ca.pem"),
        Some(&certificates),
    ));
    let limits = prepare(&store, &[1]);
    until_up(&store).await;
    assert!(passes(&limits.charge(&one("a")).await.unwrap()));
    assert!(!passes(&limits.charge(&one("a")).await.unwrap()));
}

#[tokio::test]
async fn a_server_that_cannot_show_who_it_is_is_not_asked() {
    let certificates = Certificates::make(2020..2100);
    let others = Certificates::make(2020..2100);
    let expired = Certificates::make(2020..2021);
    for (server, ca) in [(&certificates, &others), (&expired, &expired)] {
        let running = server.server();
        let store = open(with(running.port, &ca.path("ca.pem"), Some(server)));
        let limits = prepare(&store, &[1]);
        until("it is said", Duration::from_secs(5), async || {
            codes(&store) == ["bad-certificate"]
        })
        .await;
        assert!(limits.charge(&one("a")).await.is_err());
    }
}

#[tokio::test]
async fn certificates_that_are_replaced_are_read_again() {
    let certificates = Certificates::make(2020..2100);
    let others = Certificates::make(2020..2100);
    let mut server = certificates.server();
    let ca = certificates.path("ca.pem");
    let store = open(with(server.port, &ca, Some(&certificates)));
    let limits = prepare(&store, &[10]);
    until_up(&store).await;
    let again = async |server: &mut Server, round: u64| {
        server.kill();
        server.restart();
        until("it is asked again", Duration::from_secs(5), async || {
            store.report().servers[0].connected == round && limits.charge(&one("a")).await.is_ok()
        })
        .await;
    };
    certificates.replace(&others);
    again(&mut server, 2).await;
    // They are not there, or half written: those from before still do.
    let own = certificates.path("client.pem");
    std::fs::remove_file(&own).unwrap();
    again(&mut server, 3).await;
    std::fs::write(&own, "-----BEGIN CERTIFICATE-----\nnonsense").unwrap();
    again(&mut server, 4).await;
}
