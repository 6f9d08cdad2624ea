//! All three protocols over TLS, with trusted certificates and with others.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tollgate_load::{AdmitRule, LoadError, LoadPlan, LoadReport, Target, run};

/// Who signs, and a server's configuration signed by it.
fn certificate(name: &str) -> (Vec<u8>, ServerConfig) {
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let own = own.signed_by(&key, &authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![own.der().clone()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
        .unwrap();
    (authority.pem().into_bytes(), config)
}

/// A server that does this with every connection; its port.
fn server<F>(mut config: ServerConfig, protocol: &str, serve: fn(TlsStream<TcpStream>) -> F) -> u16
where
    F: Future<Output = ()> + Send + 'static,
{
    if !protocol.is_empty() {
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    }
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            send.send(listener.local_addr().unwrap().port()).unwrap();
            let acceptor = TlsAcceptor::from(Arc::new(config));
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // A client that rejects the certificate closes the connection.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream).await;
                    }
                });
            }
        });
    });
    receive.recv().unwrap()
}

/// Every line that is empty ends a request.
async fn http(stream: TlsStream<TcpStream>) {
    let is_http = stream.get_ref().1.alpn_protocol() == Some(b"http/1.1");
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
        if line == "\r\n" {
            let status = if is_http { 200 } else { 500 };
            let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        line.clear();
    }
}

/// Every request is `PING` and a key: five lines.
async fn redis(stream: TlsStream<TcpStream>) {
    let mut stream = BufReader::new(stream);
    let (mut line, mut lines) = (String::new(), 0);
    while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
        lines += 1;
        if lines % 5 == 0 && stream.write_all(b"+PONG\r\n").await.is_err() {
            return;
        }
        line.clear();
    }
}

/// Accepts every TLS connection.
async fn envoy(stream: TlsStream<TcpStream>) {
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let is_tls = request.uri().scheme_str() == Some("https");
        let response = http::Response::builder()
            .status(if is_tls { 200 } else { 400 })
            .header("content-type", "application/grpc")
            .body(())
            .unwrap();
        let mut body = respond.send_response(response, false).unwrap();
        body.send_data(Bytes::from_static(b"\0\0\0\0\x02\x08\x01"), false)
            .unwrap();
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
        body.send_trailers(trailers).unwrap();
    }
}

fn plan(target: &str, roots: &[u8]) -> LoadPlan {
    let mut plan = LoadPlan::new(vec![Target::parse(target).unwrap()]);
    plan.connections = 4;
    plan.pipeline = 4;
    plan.command = "PING {key}".into();
    plan.admit_rule = Some(AdmitRule::Any);
    plan.requests = Some(1000);
    plan.timeout = Duration::from_secs(10);
    plan.ca_certificates = Some(roots.to_vec());
    plan
}

fn ran(target: &str, roots: &[u8]) -> Result<LoadReport, LoadError> {
    run(plan(target, roots), &mut |_, _| {})
}

#[test]
fn all_protocols_run_over_tls_with_their_alpn() {
    let (roots, config) = certificate("127.0.0.1");
    let ports = [
        server(config.clone(), "http/1.1", http),
        server(config.clone(), "", redis),
        server(config, "h2", envoy),
    ];
    let [http, redis, envoy] = ports;
    for target in [
        format!("https://127.0.0.1:{http}/{{key}}"),
        format!("resps://127.0.0.1:{redis}"),
        format!("grpcs://127.0.0.1:{envoy}"),
    ] {
        let report = ran(&target, &roots).unwrap();
        assert_eq!(
            (report.admitted, report.error_count()),
            (1000, 0),
            "{target}: {:?}",
            report.errors
        );
    }
}

#[test]
fn other_certificates_are_rejected() {
    let (roots, config) = certificate("elsewhere.example");
    let (others, _) = certificate("127.0.0.1");
    let port = server(config, "", redis);
    for (roots, why) in [
        (&roots, "not valid for name"),
        (&others, "invalid peer certificate"),
    ] {
        let wrong = ran(&format!("resps://127.0.0.1:{port}"), roots).unwrap_err();
        assert!(wrong.problem.contains(why), "{wrong}");
        assert!(wrong.hint.contains("--ca"), "{wrong}");
    }
    let none = ran(&format!("resps://127.0.0.1:{port}"), b"nothing").unwrap_err();
    assert!(none.problem.contains("there is no certificate"), "{none}");
}
