//! Tests of slow request bodies, and of the routes.

use std::io::{Read, Write};
use std::time::Duration;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_slow_is_408() {
    let engine = crate::engine::for_tests("default: pass\nlimits: []\n");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut limits = ListenLimits::default();
    limits.body.time = Duration::from_millis(50);
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(HttpApi::within(engine, stopped, limits).serve(listener, limits.connections));
    let talk = move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream
            .write_all(b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{")
            .unwrap();
        let mut answer = String::new();
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    let answer = tokio::task::spawn_blocking(talk).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(answer.contains("did not arrive in time"), "{answer}");
}

fn of(target: &str) -> Route {
    route(&Call {
        method: "GET",
        target,
        headers: &Parsed(&[]),
        body: &[],
        peer: [127, 0, 0, 1].into(),
    })
}

#[test]
fn every_path_has_a_route_and_others_have_none() {
    for path in PATHS {
        assert!(!matches!(of(path), Route::Unknown), "{path}");
    }
    for path in ["", "/v1", "/v1/check/", "/V1/check", "/v1/auth/x"] {
        assert!(matches!(of(path), Route::Unknown), "{path}");
    }
    assert!(matches!(
        of("/v1/auth?a=b&deny=403"),
        Route::Auth { nginx: true }
    ));
    assert!(matches!(of("/v1/auth?deny=4031"), Route::UnknownMode));
    assert!(matches!(
        of("/v1/auth?denial=403"),
        Route::Auth { nginx: false }
    ));
}
