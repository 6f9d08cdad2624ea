//! Untrusted input.

use prost::Message;
use tollgate_server::rls::messages::{Entry, RateLimitDescriptor, RateLimitRequest};
use tonic::{Code, Request};

use super::client::{Server, edge, of};

const POLICY: &str =
    "default: pass\nlimits: [{ name: a, match: { domain: edge }, allow: 1000/s }]\n";

#[tokio::test]
async fn what_is_missing_is_named() {
    let server = Server::start(POLICY).await;
    let no_domain = RateLimitRequest {
        domain: String::new(),
        ..edge(&[of(&[("k", "v")])])
    };
    for (asked, said) in [
        (no_domain, "domain must not be empty"),
        (edge(&[]), "descriptor list must not be empty"),
        (edge(&[of(&[("", "v")])]), "has no key"),
    ] {
        let error = server.ask(asked).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains(said), "{error}");
    }
    assert_eq!(server.metric("tollgate_rls_invalid_requests_total"), 3);
}

#[tokio::test]
async fn ten_thousand_descriptors_and_huge_messages_are_errors() {
    let server = Server::start(POLICY).await;
    let many = vec![RateLimitDescriptor::default(); 10_000];
    let error = server.ask(edge(&many)).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(
        error.message().contains("at most 64 are accepted"),
        "{error}"
    );
    for size in [70_000, 10_000_000] {
        let large = edge(&[RateLimitDescriptor {
            entries: vec![Entry {
                key: "k".into(),
                value: "v".repeat(size),
            }],
            ..RateLimitDescriptor::default()
        }]);
        let error = server.ask(large).await.unwrap_err();
        assert_eq!(error.code(), Code::OutOfRange, "{error}");
        assert!(error.message().contains("65536"), "{error}");
    }
    // Others notice nothing.
    assert!(server.ask(edge(&[of(&[("k", "v")])])).await.is_ok());
}

#[tokio::test]
async fn a_malformed_message_is_an_error_of_the_caller() {
    let server = Server::start(POLICY).await;
    let good = edge(&[of(&[("k", "v")])]).encode_to_vec();
    let mut deep = Vec::new();
    // Groups in groups, as deep as fits.
    deep.extend(std::iter::repeat_n(0x7b, 60_000));
    for bytes in [
        good[..good.len() - 1].to_vec(),
        vec![0xff; 100],
        vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f],
        vec![0x0a, 0x02, 0xc3, 0x28],
        deep,
    ] {
        let error = server.send_bytes(bytes).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        assert!(error.message().contains("cannot be decoded"), "{error}");
    }
    assert!(server.send_bytes(good).await.is_ok());
}

#[tokio::test]
async fn unknown_fields_and_enum_numbers_are_ignored() {
    let server = Server::start(POLICY).await;
    let mut asked = edge(&[of(&[("k", "v")])]);
    asked.descriptors[0].limit = Some(tollgate_server::rls::messages::LimitOverrideMessage {
        requests_per_unit: 1,
        unit: 4_711,
    });
    let mut bytes = asked.encode_to_vec();
    // Field 15, a number.
    bytes.extend([0x78, 0x01]);
    assert!(server.send_bytes(bytes).await.is_ok());
}

#[tokio::test]
async fn silent_and_foreign_connections_do_not_disturb_others() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = Server::start(POLICY).await;
    let address = ("127.0.0.1", server.port);
    let _silent = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut other = tokio::net::TcpStream::connect(address).await.unwrap();
    other
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    // It ends, with or without a word.
    let _ = other.read_to_end(&mut answer).await;
    assert!(server.ask(edge(&[of(&[("k", "v")])])).await.is_ok());
}

#[tokio::test]
async fn a_malformed_deadline_is_ignored() {
    let server = Server::start(POLICY).await;
    for timeout in ["20S", "1H", "x", ""] {
        let mut asked = Request::new(edge(&[of(&[("k", "v")])]));
        let metadata = asked.metadata_mut();
        metadata.insert("grpc-timeout", timeout.parse().unwrap());
        assert!(server.call(asked).await.is_ok(), "{timeout}");
    }
}
