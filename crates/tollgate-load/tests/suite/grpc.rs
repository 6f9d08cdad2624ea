//! The frames that are written here by hand, against an independent server of HTTP/2.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response};
use tokio::net::{TcpListener, TcpStream};
use tollgate::{Algorithm, Span};
use tollgate_load::{Allowance, LoadError, LoadPlan, LoadReport, Target, run};

/// How a server answers.
#[derive(Clone, Copy, Debug, Default)]
struct Manner {
    /// Calls with the same message that it admits; all of them if 0.
    each: u64,
    /// Streams at once.
    streams: Option<u32>,
    /// It keeps no table of header fields.
    no_table: bool,
    /// A status instead of a message.
    status: Option<&'static str>,
    /// The message comes in two frames.
    in_parts: bool,
    /// Sends GOAWAY after this many calls on a connection.
    leaves_after: Option<usize>,
}

/// What each message was asked.
type Asked = Arc<Mutex<HashMap<Vec<u8>, u64>>>;

/// Starts a server on a free port; it ends with the test.
fn server(manner: Manner) -> (u16, Asked) {
    let asked = Asked::default();
    let count = Arc::clone(&asked);
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, manner, Arc::clone(&count)));
            }
        });
    });
    (port, asked)
}

async fn serve(stream: TcpStream, manner: Manner, asked: Asked) {
    stream.set_nodelay(true).unwrap();
    let mut builder = h2::server::Builder::new();
    if let Some(streams) = manner.streams {
        builder.max_concurrent_streams(streams);
    }
    if manner.no_table {
        builder.header_table_size(0);
    }
    let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else {
        return;
    };
    let mut calls = 0;
    while let Some(Ok((request, respond))) = connection.accept().await {
        assert_eq!(request.method(), "POST");
        assert_eq!(
            request.uri().path(),
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
        );
        assert_eq!(request.headers()["content-type"], "application/grpc");
        assert_eq!(request.headers()["te"], "trailers");
        calls += 1;
        if manner.leaves_after == Some(calls) {
            connection.graceful_shutdown();
        }
        tokio::spawn(answer(
            request.into_body(),
            respond,
            manner,
            Arc::clone(&asked),
        ));
    }
}

async fn answer(
    mut body: h2::RecvStream,
    mut respond: h2::server::SendResponse<Bytes>,
    manner: Manner,
    asked: Asked,
) {
    let mut message = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        message.put(data);
    }
    let count = {
        let mut asked = asked.lock().unwrap();
        let count = asked.entry(message.to_vec()).or_default();
        *count += 1;
        *count
    };
    let head = Response::builder().header("content-type", "application/grpc");
    if let Some(status) = manner.status {
        let head = head.header("grpc-status", status).body(()).unwrap();
        let _ = respond.send_response(head, true);
        return;
    }
    let code = if manner.each == 0 || count <= manner.each {
        1
    } else {
        2
    };
    // overall_code, and a status of one descriptor.
    let bytes = Bytes::from(vec![0, 0, 0, 0, 6, 0x08, code, 0x12, 0x02, 0x08, code]);
    let mut stream = respond
        .send_response(head.body(()).unwrap(), false)
        .unwrap();
    let cut = if manner.in_parts { 3 } else { bytes.len() };
    let _ = stream.send_data(bytes.slice(..cut), false);
    if manner.in_parts {
        tokio::task::yield_now().await;
        let _ = stream.send_data(bytes.slice(cut..), false);
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let _ = stream.send_trailers(trailers);
}

fn plan(port: u16) -> LoadPlan {
    let target = Target::parse(&format!("grpc://127.0.0.1:{port}")).unwrap();
    let mut plan = LoadPlan::new(vec![target]);
    plan.connections = 3;
    plan.pipeline = 8;
    plan.keys = 10;
    plan.requests = Some(3000);
    plan.timeout = Duration::from_secs(2);
    plan
}

fn ran(plan: LoadPlan) -> Result<LoadReport, LoadError> {
    run(plan, &mut |_, _| {})
}

#[test]
fn every_call_is_answered_and_judged_for_any_server() {
    let plain = Manner {
        each: 20,
        ..Manner::default()
    };
    for manner in [
        plain,
        Manner {
            streams: Some(2),
            ..plain
        },
        Manner {
            no_table: true,
            ..plain
        },
        Manner {
            in_parts: true,
            ..plain
        },
    ] {
        let (port, asked) = server(manner);
        let mut plan = plan(port);
        plan.allowance = Some(Allowance {
            algorithm: Algorithm::SlidingLog {
                limit: 20,
                window: Span::from_secs(3600),
            },
            slack: Span::ZERO,
        });
        let report = ran(plan).unwrap();
        assert_eq!(report.error_count(), 0, "{manner:?}: {:?}", report.errors);
        assert_eq!((report.admitted, report.refused), (200, 2800), "{manner:?}");
        let audit = report.audit.unwrap();
        assert_eq!((audit.keys, audit.over, audit.allowed), (10, 0, 200));
        let asked = asked.lock().unwrap();
        assert_eq!((asked.len(), asked.values().sum::<u64>()), (10, 3000));
    }
}

#[test]
fn a_server_that_admits_one_too_many_fails_the_audit() {
    let (port, _) = server(Manner {
        each: 21,
        ..Manner::default()
    });
    let mut plan = plan(port);
    plan.allowance = Some(Allowance {
        algorithm: Algorithm::SlidingLog {
            limit: 20,
            window: Span::from_secs(3600),
        },
        slack: Span::ZERO,
    });
    let audit = ran(plan).unwrap().audit.unwrap();
    assert_eq!(
        (audit.over, audit.keys_over, audit.worst.len()),
        (10, 10, 5)
    );
}

#[test]
fn a_cost_is_sent_as_hits() {
    let (port, asked) = server(Manner::default());
    let mut plan = plan(port);
    (plan.cost, plan.keys, plan.requests) = (300, 1, Some(5));
    plan.grpc.domain = "edge".into();
    assert_eq!(ran(plan).unwrap().admitted, 5);
    let asked = asked.lock().unwrap();
    let (message, _) = asked.iter().next().unwrap();
    assert_eq!(&message[5..11], b"\x0a\x04edge");
    assert!(message.ends_with(&[0x18, 0xac, 0x02]));
}

#[test]
fn a_grpc_status_is_reported_by_its_name() {
    let (port, _) = server(Manner {
        status: Some("12"),
        ..Manner::default()
    });
    let report = ran(plan(port)).unwrap();
    assert_eq!(report.responses(), 0);
    assert_eq!(
        report.errors.get("grpc status 12 UNIMPLEMENTED"),
        Some(&3000)
    );
}

#[test]
fn a_server_that_sends_goaway_is_reconnected() {
    let (port, _) = server(Manner {
        leaves_after: Some(100),
        ..Manner::default()
    });
    let report = ran(plan(port)).unwrap();
    assert!(report.reconnects >= 10, "{report:?}");
    // What was already on its way when the server left.
    assert!(
        report.error_count() <= report.reconnects * 8,
        "{:?}",
        report.errors
    );
    assert_eq!(report.admitted + report.error_count(), 3000);
}
