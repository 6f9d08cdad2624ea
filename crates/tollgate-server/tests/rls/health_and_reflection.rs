//! Health and reflection.

use tonic::client::Grpc;
use tonic::{Code, Request, Streaming};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
use tonic_prost::ProstCodec;

use super::client::{Server, edge, of};

const POLICY: &str = "default: pass\n";

#[tokio::test]
async fn health_is_answered_for_the_server_and_the_service() {
    let server = Server::start(POLICY).await;
    let mut client = HealthClient::new(server.channel.clone());
    let ask = |service: &str| HealthCheckRequest {
        service: service.into(),
    };
    for service in [
        "",
        "envoy.service.ratelimit.v3.RateLimitService",
        "ratelimit",
    ] {
        let answer = client.check(ask(service)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving);
    }
    let missing = client.check(ask("other")).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
}

#[tokio::test]
async fn a_health_watch_reports_the_shutdown() {
    let server = Server::start(POLICY).await;
    let mut client = HealthClient::new(server.channel.clone());
    let ask = HealthCheckRequest::default();
    let mut watched = client.watch(ask).await.unwrap().into_inner();
    let mut next = async || watched.message().await.unwrap().unwrap().status();
    assert_eq!(next().await, ServingStatus::Serving);
    server.stop.send(true).unwrap();
    assert_eq!(next().await, ServingStatus::NotServing);
}

/// `grpc.reflection.v1.ServerReflectionRequest`, as far as it is asked here.
#[derive(Clone, PartialEq, prost::Message)]
struct Reflect {
    #[prost(string, optional, tag = "4")]
    symbol: Option<String>,
    #[prost(string, optional, tag = "7")]
    list: Option<String>,
}

/// Its answer, of which only the bytes are looked at.
#[derive(Clone, PartialEq, prost::Message)]
struct Reflected {
    #[prost(bytes, tag = "4")]
    files: Vec<u8>,
    #[prost(bytes, tag = "6")]
    services: Vec<u8>,
}

async fn reflected(server: &Server, version: &str, ask: Reflect) -> Reflected {
    let mut client = Grpc::new(server.channel.clone());
    client.ready().await.unwrap();
    let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
    let codec = ProstCodec::<Reflect, Reflected>::default();
    let asked = Request::new(tokio_stream::iter([ask]));
    let answer = client.streaming(asked, path.parse().unwrap(), codec);
    let mut answers: Streaming<Reflected> = answer.await.unwrap().into_inner();
    answers.message().await.unwrap().unwrap()
}

#[tokio::test]
async fn both_versions_of_reflection_describe_the_service() {
    let server = Server::start(POLICY).await;
    let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    for version in ["v1", "v1alpha"] {
        let list = Reflect {
            symbol: None,
            list: Some(String::new()),
        };
        let services = reflected(&server, version, list).await.services;
        assert!(has(
            &services,
            "envoy.service.ratelimit.v3.RateLimitService"
        ));
        assert!(has(&services, "grpc.health.v1.Health"));
        let symbol = Reflect {
            symbol: Some("envoy.service.ratelimit.v3.RateLimitService".into()),
            list: None,
        };
        let files = reflected(&server, version, symbol).await.files;
        assert!(has(&files, "ShouldRateLimit"), "{version}");
    }
}

#[tokio::test]
async fn an_unknown_service_is_unimplemented() {
    let server = Server::start(POLICY).await;
    let mut client = Grpc::new(server.channel.clone());
    client.ready().await.unwrap();
    let codec = ProstCodec::<Reflect, Reflected>::default();
    let path = "/example.Other/Call".parse().unwrap();
    let asked = Request::new(Reflect::default());
    let error = client.unary(asked, path, codec).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
}

#[tokio::test]
async fn a_call_in_flight_is_answered_when_the_server_stops() {
    let server = Server::start("default: pass\n").await;
    assert!(server.ask(edge(&[of(&[("k", "v")])])).await.is_ok());
    server.stop.send(true).unwrap();
    // No connection is accepted any more.
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(5);
    while tokio::net::TcpStream::connect(("127.0.0.1", server.port))
        .await
        .is_ok()
    {
        assert!(tokio::time::Instant::now() < until);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
