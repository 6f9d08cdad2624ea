//! TLS, to clients and to servers.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use tollgate_testkit::{Directory, wait};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tollgate_config::{Protocol, UpstreamSpec};
use tollgate_server::gateway::CertificateFiles;

use crate::support::{OPEN, TestGateway, server, settings, text, timed};
use crate::upstream::Upstream;

/// A certificate that vouches for itself, for `localhost` and its address.
pub(crate) fn certificate(dir: &Directory, name: &str) -> CertificateFiles {
    let config = "[req]\ndistinguished_name = dn\nx509_extensions = ext\nprompt = no\n[dn]\nCN = localhost\n[ext]\nbasicConstraints = critical, CA:FALSE\nsubjectAltName = DNS:localhost, IP:127.0.0.1\n";
    let config = dir.write("openssl.cnf", config);
    let files = CertificateFiles {
        cert: dir.file(&format!("{name}.cert.pem")),
        key: dir.file(&format!("{name}.key.pem")),
    };
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"]);
    command.args(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-config"]);
    command.arg(config).arg("-keyout").arg(&files.key);
    let made = command.arg("-out").arg(&files.cert).output();
    let made = made.expect("openssl runs; install it");
    assert!(made.status.success(), "{made:?}");
    files
}

fn gateway(policy: &str, files: &CertificateFiles, port: u16) -> TestGateway {
    let upstream = UpstreamSpec::new("app", vec![server(port)]);
    let mut settings = settings(text(policy), vec![upstream]);
    settings.tls = Some(files.clone());
    TestGateway::start(settings)
}

/// What curl says, or the number of its error.
fn curl(gateway: &TestGateway, ca: &PathBuf, flag: &str) -> Result<String, i32> {
    let url = format!("https://localhost:{}/", gateway.address().port());
    let mut command = Command::new("curl");
    command.args([
        "-sS",
        "-4",
        flag,
        "-w",
        " %{http_code} %{http_version}",
        "--cacert",
    ]);
    let ran = command.arg(ca).arg(url).output();
    let ran = ran.expect("curl runs; install it");
    match ran.status.success() {
        true => Ok(String::from_utf8_lossy(&ran.stdout).into_owned()),
        false => Err(ran.status.code().unwrap()),
    }
}

#[test]
fn clients_use_both_http_versions_over_tls_and_sighup_reloads_the_certificate() {
    let upstream = Upstream::start();
    let dir = Directory::new();
    let files = certificate(&dir, "first");
    let first = dir.file("first.ca.pem");
    std::fs::copy(&files.cert, &first).unwrap();
    let gateway = gateway(OPEN, &files, upstream.port);
    let via = |ca: &PathBuf, flag: &str| curl(&gateway, ca, flag);
    assert_eq!(via(&first, "--http2"), Ok("<> 200 2".into()));
    assert_eq!(via(&first, "--http1.1"), Ok("<> 200 1.1".into()));
    let proto = upstream.last().header("x-forwarded-proto");
    assert_eq!(proto.unwrap(), "https");

    let hang_up = || {
        let id = std::process::id().to_string();
        let sent = Command::new("kill").args(["-HUP", &id]).status();
        assert!(sent.unwrap().success());
    };
    // A key that does not belong to it changes nothing.
    let other = certificate(&dir, "other");
    std::fs::copy(&other.cert, &files.cert).unwrap();
    hang_up();
    crate::support::pause(200);
    assert_eq!(via(&first, "--http2"), Ok("<> 200 2".into()));
    std::fs::copy(&other.key, &files.key).unwrap();
    hang_up();
    // 60: it cannot be verified.
    wait("it is another", || via(&first, "--http2") == Err(60));
    assert_eq!(via(&other.cert, "--http2"), Ok("<> 200 2".into()));
}

#[test]
fn a_stalled_handshake_is_closed() {
    use std::io::{Read, Write};
    let upstream = Upstream::start();
    let dir = Directory::new();
    let files = certificate(&dir, "first");
    let policy = "default: pass\ngateway: { timeouts: { head: 500ms } }\n";
    let gateway = gateway(policy, &files, upstream.port);
    for begins in [
        &b""[..],
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/1.1\r\n\r\n",
    ] {
        let mut stream = gateway.connect();
        stream.write_all(begins).unwrap();
        let (_, took) = timed(|| stream.read_to_end(&mut Vec::new()));
        assert!(took.as_millis() < 1500, "{begins:?}: {took:?}");
    }
    assert_eq!(upstream.count(), 0);
}

/// A server of either HTTP, and what it was asked: the version, and the host name.
struct Modern {
    port: u16,
    asked: Arc<Mutex<Vec<(Version, String)>>>,
    _events: tokio::runtime::Runtime,
}

impl Modern {
    fn start(tls: Option<&CertificateFiles>) -> Modern {
        let acceptor = tls.map(|files| {
            let chain = CertificateDer::from_pem_file(&files.cert).unwrap();
            let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let mut config = rustls::ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![chain], key)
                .unwrap();
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            TlsAcceptor::from(Arc::new(config))
        });
        let events = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listening = tokio::net::TcpListener::bind("127.0.0.1:0");
        let listener = events.block_on(listening).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::<Mutex<Vec<_>>>::default();
        let kept = Arc::clone(&asked);
        events.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, kept) = (acceptor.clone(), Arc::clone(&kept));
                tokio::spawn(async move {
                    let service =
                        service_fn(move |request| Modern::answer(Arc::clone(&kept), request));
                    let both = auto::Builder::new(TokioExecutor::new());
                    match acceptor {
                        Some(acceptor) => {
                            let Ok(stream) = acceptor.accept(stream).await else {
                                return;
                            };
                            let _ = both.serve_connection(TokioIo::new(stream), service).await;
                        }
                        None => {
                            let _ = both.serve_connection(TokioIo::new(stream), service).await;
                        }
                    }
                });
            }
        });
        Modern {
            port,
            asked,
            _events: events,
        }
    }

    async fn answer(
        kept: Arc<Mutex<Vec<(Version, String)>>>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, hyper::Error> {
        let host = match request.uri().authority() {
            Some(authority) => authority.to_string(),
            None => request.headers()["host"].to_str().unwrap().to_owned(),
        };
        let version = request.version();
        let body = request.into_body().collect().await?.to_bytes();
        kept.lock().unwrap().push((version, host));
        Ok(Response::new(Full::new(body)))
    }
}

fn before(modern: &Modern, protocol: Protocol, ca: Option<&PathBuf>) -> TestGateway {
    let change = |spec: &mut UpstreamSpec| {
        spec.protocol = protocol;
        spec.servers[0].tls = ca.is_some();
        spec.ca_file = ca.cloned();
    };
    TestGateway::with(OPEN, change, &[modern.port])
}

#[test]
fn upstreams_use_both_http_versions_with_and_without_tls() {
    let dir = Directory::new();
    let files = certificate(&dir, "server");
    let large = "y".repeat(300_000);
    let whole = format!(
        "POST /echo HTTP/1.1\r\nHost: app.example\r\nContent-Length: {}\r\n\r\n{large}",
        large.len()
    );
    for tls in [None, Some(&files)] {
        let modern = Modern::start(tls);
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let gateway = before(&modern, protocol, tls.map(|files| &files.cert));
            std::thread::scope(|scope| {
                for _ in 0..5 {
                    scope.spawn(|| {
                        let answer = gateway.ask(whole.as_bytes());
                        assert_eq!(answer.status, 200, "{tls:?} {protocol:?}");
                        assert!(answer.body == large, "{tls:?} {protocol:?}");
                    });
                }
            });
            let asked = std::mem::take(&mut *modern.asked.lock().unwrap());
            let version = match protocol {
                Protocol::Http1 => Version::HTTP_11,
                Protocol::Http2 => Version::HTTP_2,
            };
            assert_eq!(asked, vec![(version, "app.example".to_owned()); 5]);
            assert_eq!(gateway.admitted(), 5);
        }
    }
}

#[test]
fn a_server_with_an_untrusted_certificate_gets_no_request() {
    let dir = Directory::new();
    let modern = Modern::start(Some(&certificate(&dir, "server")));
    let other = certificate(&dir, "other");
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let gateway = before(&modern, protocol, Some(&other.cert));
        assert_eq!(gateway.get("/").status, 502);
    }
    assert!(modern.asked.lock().unwrap().is_empty());
}
