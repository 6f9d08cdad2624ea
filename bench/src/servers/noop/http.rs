//! The no-op HTTP server: reads what the HTTP front end reads and decides nothing.
//!
//! It is hyper on one thread, as its guide has it. A POST is parsed into the fields that
//! `/v1/check` has, borrowed from the body, and answered with a constant that looks the same;
//! a GET is answered at once. The rest of the time of the front end is its own.

use std::convert::Infallible;
use std::fmt;
use std::hint::black_box;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use tokio::net::TcpListener;

/// The answer of `/v1/check` when a request passes.
const ANSWER: &str = r#"{"verdict":"pass","limit":"per-rider","reason":"limit","remaining":999999,"reset_after_ms":1,"limits":[{"name":"per-rider","role":"enforced","cost":1}],"policy_version":1}"#;

/// The fields of the requests of this load.
#[allow(dead_code, reason = "read from the body, and that is all")]
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Check<'a> {
    method: Option<&'a str>,
    path: Option<&'a str>,
    #[serde(borrow, default)]
    headers: Headers<'a>,
    ip: Option<IpAddr>,
    limit: Option<&'a str>,
    key: Option<&'a str>,
    cost: Option<u64>,
}

/// Names and values in the order in which they came: hashing them would already be work.
#[allow(dead_code, reason = "as above")]
#[derive(Debug, Default)]
struct Headers<'a>(Vec<(&'a str, &'a str)>);

impl<'de: 'a, 'a> Deserialize<'de> for Headers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Headers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Headers(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// Serves until the process is killed.
pub(crate) fn run(port: u16) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(serve(port))
}

async fn serve(port: u16) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let served = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(answer))
                .await;
            // Every pass ends with a client that disconnects in the middle of a request.
            drop(served);
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() == Method::GET {
        return Ok(Response::new(Full::default()));
    }
    let body = request.into_body().collect().await;
    let is_check = body.is_ok_and(|body| is_check(&body.to_bytes()));
    let mut response = Response::new(Full::new(Bytes::from_static(ANSWER.as_bytes())));
    if !is_check {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    Ok(response)
}

fn is_check(body: &[u8]) -> bool {
    // The compiler must not remove the parsing.
    black_box(serde_json::from_slice::<Check<'_>>(body)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_borrowed_from_its_body() {
        let body = br#"{"path":"/api/rides","headers":{"x-rider-id":"k1"},"ip":"::1"}"#;
        let check: Check<'_> = serde_json::from_slice(body).unwrap();
        assert_eq!(check.path, Some("/api/rides"));
        assert_eq!(check.headers.0, [("x-rider-id", "k1")]);
        assert!(check.ip.is_some_and(|ip| ip.is_loopback()));
        assert!(check.method.or(check.limit).or(check.key).is_none());
        assert_eq!(check.cost, None);
    }

    #[test]
    fn invalid_checks_are_rejected() {
        assert!(is_check(br#"{"limit":"per-rider","key":"k000123"}"#));
        assert!(!is_check(br#"{"limit":7}"#));
        assert!(!is_check(b"{"));
    }
}
