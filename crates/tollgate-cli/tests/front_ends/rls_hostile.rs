//! An untrusted client of the Envoy front end gets a clear status or loses its connection; the process does not
//! grow, and others are answered all the while.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use h2::client::Builder;
use prost::Message;
use tokio::task::JoinSet;
use tollgate_server::rls::messages::{
    Code, LimitOverrideMessage, RateLimitDescriptor, RateLimitRequest,
};

use crate::harness::grpc::{CallResult, Grpc, descriptor, framed, framed_as, run};
use tollgate_testkit::tollgate::Tollgate;
use tollgate_testkit::{Signal, wait};

use crate::harness::serve_with;

const POLICY: &str = "
default: pass
limits: [{ name: a, match: { domain: edge }, key: descriptor.k, allow: 1000000/s }]
";
/// What all of it may cost. What is meant to be endless is thousands of times as much.
const GROWTH: u64 = 64 << 20;

fn service() -> Tollgate {
    serve_with(POLICY, &["--rls", "127.0.0.1:0"])
}

/// Does something to a service while another client asks it, which is answered every time; then looks at how
/// much the service has grown.
fn beside_others<F: Future<Output = ()>>(does: impl FnOnce(u16) -> F) {
    let service = service();
    let port = service.port_of("envoy").unwrap();
    run(async {
        let other = Grpc::to(port).await;
        let asked = [descriptor("k", "other")];
        for _ in 0..100 {
            assert_eq!(other.edge(&asked).await.code(), Code::Ok);
        }
        let before = service.resident().unwrap();
        let (over, answered) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
        let asking = {
            let (other, over) = (other.clone(), Arc::clone(&over));
            tokio::spawn(async move {
                while !over.load(Relaxed) {
                    assert_eq!(other.edge(&asked).await.code(), Code::Ok);
                    answered.fetch_add(1, Relaxed);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                answered.load(Relaxed)
            })
        };
        does(port).await;
        let after = service.resident().unwrap();
        over.store(true, Relaxed);
        let answered = asking.await.unwrap_or_else(|error| panic!("{error}"));
        assert!(answered > 0, "no other client was answered");
        let grown = after.saturating_sub(before);
        assert!(grown < GROWTH, "it grew by {grown} bytes");
        // A new client is served, too.
        let late = Grpc::to(port).await;
        assert_eq!(late.edge(&[descriptor("k", "late")]).await.code(), Code::Ok);
    });
}

fn asked(descriptors: Vec<RateLimitDescriptor>) -> Vec<u8> {
    let asked = RateLimitRequest {
        domain: "edge".into(),
        descriptors,
        hits_addend: 0,
    };
    asked.encode_to_vec()
}

// Numbers of gRPC.
const INVALID_ARGUMENT: u32 = 3;
const RESOURCE_EXHAUSTED: u32 = 8;
const OUT_OF_RANGE: u32 = 11;
const UNIMPLEMENTED: u32 = 12;
const INTERNAL: u32 = 13;

#[test]
fn what_is_no_request_gets_a_status_that_says_so() {
    beside_others(async |port| {
        let good = asked(vec![descriptor("k", "v")]);
        let cut = good.get(..good.len() - 1).unwrap_or_default();
        let too_large = [OUT_OF_RANGE, RESOURCE_EXHAUSTED, INVALID_ARGUMENT];
        let not_packed_so = [UNIMPLEMENTED, INTERNAL, INVALID_ARGUMENT];
        let malformed = [INVALID_ARGUMENT];
        let no_message = [INVALID_ARGUMENT, INTERNAL, OUT_OF_RANGE, 2];
        let cases: Vec<(&str, Bytes, &[u32])> = vec![
            ("a message that ends too early", framed(cut), &malformed),
            ("a message of noise", framed(&[0xff; 100]), &malformed),
            (
                "a text that is none",
                framed(&[0x0a, 2, 0xc3, 0x28]),
                &malformed,
            ),
            ("groups in groups", framed(&[0x7b; 60_000]), &malformed),
            (
                "ten thousand descriptors",
                framed(&asked(vec![RateLimitDescriptor::default(); 10_000])),
                &malformed,
            ),
            ("nothing in it", framed(&[]), &malformed),
            ("more than is read", framed(&vec![0; 70_000]), &too_large),
            (
                "four gigabytes, it says",
                framed_as(0, u32::MAX, &good),
                &too_large,
            ),
            (
                "compressed, it says",
                framed_as(1, 20, &[0; 20]),
                &not_packed_so,
            ),
            (
                "an unknown flag",
                framed_as(7, 20, &[0; 20]),
                &not_packed_so,
            ),
            ("half a prefix", Bytes::from_static(&[0, 0]), &no_message),
            ("no message at all", Bytes::new(), &[UNIMPLEMENTED]),
            ("less than it says", framed_as(0, 1_000, &good), &no_message),
        ];
        let client = Grpc::to(port).await;
        for (what, bytes, codes) in cases {
            match client.sends(bytes, None).await {
                CallResult::Status(code, words) => {
                    assert!(codes.contains(&code), "{what}: {code} {words}");
                    assert!(!words.is_empty(), "{what}: {code} without a word");
                }
                said => panic!("{what}: {said:?}"),
            }
        }
        // Enumerations grow: what is not known is no mistake. Fields that are not known are skipped.
        let mut strange = descriptor("k", "v");
        strange.limit = Some(LimitOverrideMessage {
            requests_per_unit: 1,
            unit: 4_711,
        });
        let mut bytes = asked(vec![strange]);
        bytes.extend([0x78, 0x01]);
        assert_eq!(client.sends(framed(&bytes), None).await.code(), Code::Ok);
    });
}

#[test]
fn messages_that_never_end_and_calls_that_are_never_finished_do_not_pile_up() {
    beside_others(async |port| {
        let mut held = Vec::new();
        for _ in 0..4 {
            let client = Grpc::to(port).await;
            for _ in 0..100 {
                let Ok((answer, mut to)) = client.opens(None).await else {
                    break;
                };
                // It promises four gigabytes, and sends what it is let.
                let _ = to.send_data(framed_as(0, u32::MAX, &[0; 1_000]), false);
                to.reserve_capacity(1 << 20);
                let _ = to.send_data(Bytes::from(vec![0; 200_000]), false);
                held.push((answer, to));
            }
        }
        let whole = Grpc::to(port).await;
        for _ in 0..100 {
            // Half a message of a size that is fine, and then silence.
            if let Ok((answer, mut to)) = whole.opens(None).await {
                let _ = to.send_data(framed_as(0, 60_000, &[0; 30_000]), false);
                held.push((answer, to));
            }
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(held.len() > 100, "{}", held.len());
    });
}

#[test]
fn a_client_that_does_not_read_its_responses_delays_no_other() {
    beside_others(async |port| {
        let mut held = Vec::new();
        for _ in 0..4 {
            // No room for a single byte of an answer.
            let mut settings = Builder::new();
            settings.initial_window_size(0);
            let client = Grpc::with(port, settings).await;
            let body = framed(&asked(vec![descriptor("k", "deaf"); 16]));
            for _ in 0..500 {
                let Ok((answer, mut to)) = client.opens(None).await else {
                    break;
                };
                let _ = to.send_data(body.clone(), true);
                held.push((answer, to));
            }
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(held.len() > 1_000, "{}", held.len());
    });
}

#[test]
fn output_for_a_client_that_never_reads_is_bounded() {
    beside_others(async |port| {
        let deaf = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
            let soon = Some(Duration::from_millis(500));
            stream.set_write_timeout(soon).expect("a socket");
            stream
                .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
                .expect("a server that reads");
            // A ping wants an answer, and so do settings.
            let ping = b"\0\0\x08\x06\0\0\0\0\0tollgate";
            let settings = b"\0\0\0\x04\0\0\0\0\0";
            let mut wave = Vec::new();
            for _ in 0..10_000 {
                wave.extend_from_slice(ping);
                wave.extend_from_slice(settings);
            }
            // Until it is closed, or does not read any more either, or has read 64 megabytes.
            let waves = (0..250).take_while(|_| stream.write_all(&wave).is_ok());
            (waves.count(), stream)
        });
        let _ = deaf.await.expect("a thread");
    });
}

#[test]
fn calls_that_are_opened_and_reset_at_once_are_forgotten() {
    beside_others(async |port| {
        let mut clients = JoinSet::new();
        for _ in 0..10 {
            clients.spawn(async move {
                let client = Grpc::to(port).await;
                let body = framed(&asked(vec![descriptor("k", "fickle")]));
                let mut opened = 0;
                for _ in 0..1_000 {
                    let Ok((answer, mut to)) = client.opens(None).await else {
                        // It got ENHANCE_YOUR_CALM.
                        break;
                    };
                    let _ = to.send_data(body.clone(), true);
                    to.send_reset(h2::Reason::CANCEL);
                    drop(answer);
                    opened += 1;
                }
                opened
            });
        }
        let opened: usize = clients.join_all().await.into_iter().sum();
        assert!(opened > 1_000, "{opened}");
    });
}

#[test]
fn heads_without_end_are_not_kept() {
    beside_others(async |port| {
        let deaf = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
            let soon = Some(Duration::from_millis(500));
            stream.set_write_timeout(soon).expect("a socket");
            let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
            stream.write_all(preface).expect("a server that reads");
            // A head that does not end: one frame of HEADERS, then CONTINUATION for ever. Each brings a field of
            // sixteen thousand bytes that is kept in no table.
            let field = {
                let mut field = vec![0x10, 1, b'x', 0x7f, 0x81, 0x7c];
                // 127 + 1 + 124 * 128
                field.extend(std::iter::repeat_n(b'y', 16_000));
                field
            };
            let frame = |kind: u8| {
                let mut frame = vec![0, 0, 0, kind, 0, 0, 0, 0, 1];
                let length = field.len().to_be_bytes();
                for (place, byte) in frame.iter_mut().zip(length.iter().skip(5)) {
                    *place = *byte;
                }
                frame.extend_from_slice(&field);
                frame
            };
            let mut sent = usize::from(stream.write_all(&frame(1)).is_ok());
            let more = frame(9);
            // 320 megabytes, if it is let.
            sent += (0..20_000)
                .take_while(|_| stream.write_all(&more).is_ok())
                .count();
            sent
        });
        let sent = deaf.await.expect("a thread");
        assert!(sent < 20_000, "it read {sent} frames of one head");
    });
}

#[test]
fn a_client_that_does_not_end_a_frame_or_a_head_loses_its_connection() {
    const BEGINS: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    // Half the head of a frame; half its content; a head that continues elsewhere; half of what comes first.
    let half: [&[u8]; 4] = [
        b"\0\0\x08\x06",
        b"\0\0\x08\x06\0\0\0\0\0toll",
        b"\0\0\x01\x01\0\0\0\0\x01\x83",
        b"PRI * HT",
    ];
    let service = service();
    let connect = |said: &[u8]| {
        let mut stream = TcpStream::connect(("127.0.0.1", service.port_of("envoy").unwrap()))
            .expect("a connection");
        let timeout = Some(Duration::from_secs(60));
        stream.set_read_timeout(timeout).expect("a socket");
        stream.write_all(said).expect("a server that reads");
        stream
    };
    let mut whole = connect(BEGINS);
    let halves = half.map(|said| {
        let begins = if said.starts_with(b"PRI") {
            &[]
        } else {
            BEGINS
        };
        connect(&[begins, said].concat())
    });
    for mut stream in halves {
        // To its end, which comes although the test closes nothing. A reset is an end, too.
        let mut received = Vec::new();
        if let Err(error) = stream.read_to_end(&mut received) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
        }
    }
    // Who has said nothing half is still there.
    let ping = b"\0\0\x08\x06\0\0\0\0\0tollgate";
    whole.write_all(ping).expect("a server that reads");
    let pong = b"\0\0\x08\x06\x01\0\0\0\0tollgate";
    let (mut received, mut room) = (Vec::new(), [0; 1024]);
    while !received.ends_with(pong) {
        let count = whole.read(&mut room).expect("an answer");
        assert_ne!(count, 0, "it was closed");
        received.extend_from_slice(room.get(..count).unwrap_or_default());
    }
}

#[test]
fn the_service_stops_in_time_although_clients_stay_connected() {
    let service = service();
    let port = service.port_of("envoy").unwrap();
    run(async {
        let client = Grpc::to(port).await;
        let held = client.opens(None).await;
        assert!(held.is_ok());
        service.signal(Signal::TERM).unwrap();
        wait("it ends", || !service_is_up(port));
        drop(held);
    });
    assert!(service.wait_for_exit().unwrap().success());
}

fn service_is_up(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}
