//! Tests of a session: pending and reset calls, trailers, windows, stalled streams, arbitrary bytes.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::Notify;
use tonic::Status;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use super::*;
use crate::frame::{END_HEADERS, END_STREAM};
use crate::test_client::{METHOD, Request, Response, call, preface};
use crate::{MAX_BUFFERED_BYTES, hpack};

type Health = HealthServer<HealthService>;

/// A session on which calls named `slow` wait for the notification, those named `panic` panic then, and `quick` ones are ready at
/// once.
fn session(
    notify: &Arc<Notify>,
) -> (
    Session<Health, impl Handler<Response = Response> + use<>>,
    Events<Response>,
) {
    let notify = Arc::clone(notify);
    let make = move |request: Request, _: Option<Instant>| {
        let notify = Arc::clone(&notify);
        async move {
            if request.name.is_empty() {
                return Err(Status::invalid_argument("no name"));
            }
            if request.name != "quick" {
                notify.notified().await;
            }
            assert!(request.name != "panic", "the test's panic");
            Ok(request.response())
        }
    };
    let health = HealthServer::new(HealthService::from_health_reporter(HealthReporter::new()));
    Session::new(METHOD, make, health)
}

async fn receive<H: Handler>(session: &mut Session<Health, H>, bytes: &[u8]) {
    let consumed = poll_fn(|cx| Poll::Ready(session.receive(cx, bytes))).await;
    assert_eq!(consumed, bytes.len());
}

/// The streams whose ends were written, and those that were reset. Clears the output.
fn ended<H: Handler>(session: &mut Session<Health, H>) -> (Vec<u32>, Vec<u32>) {
    let (mut ended, mut reset) = (Vec::new(), Vec::new());
    let output = std::mem::take(&mut session.output);
    let mut rest = output.as_slice();
    while let Next::Frame(frame, behind) = Frame::next(rest) {
        match frame.kind {
            HEADERS if frame.has(END_STREAM) => ended.push(frame.stream),
            RST_STREAM => reset.push(frame.stream),
            _ => {}
        }
        rest = behind;
    }
    (ended, reset)
}

#[tokio::test]
async fn a_pending_call_delays_no_other() {
    let notify = Arc::new(Notify::new());
    let (mut session, mut events) = session(&notify);
    let calls = [
        preface(),
        call(1, "slow", 1),
        call(3, "quick", 1),
        call(5, "slow", 1),
        call(7, "quick", 1),
    ];
    receive(&mut session, &calls.concat()).await;
    assert_eq!(ended(&mut session), (vec![3, 7], vec![]));
    assert!(!session.is_idle());
    let mut late = Vec::new();
    while late.len() < 2 {
        notify.notify_one();
        let (id, event) = events.recv().await.unwrap();
        session.on_event(id, event);
        late.extend(ended(&mut session).0);
    }
    late.sort_unstable();
    assert_eq!(late, [1, 5]);
    assert!(session.is_idle());
}

#[tokio::test]
async fn a_reset_call_is_dropped() {
    let notify = Arc::new(Notify::new());
    let (mut session, mut events) = session(&notify);
    let before = Arc::strong_count(&notify);
    let bytes = [preface(), call(1, "slow", 1)].concat();
    receive(&mut session, &bytes).await;
    assert_eq!(Arc::strong_count(&notify), before + 1, "it is pending");
    let mut reset = Vec::new();
    frame::write_reset(&mut reset, 1, Code::NoError);
    receive(&mut session, &reset).await;
    assert!(session.is_idle());
    let (id, event) = events.recv().await.unwrap();
    assert!(matches!((id, &event), (1, Event::Closed)), "{event:?}");
    session.on_event(id, event);
    assert_eq!(Arc::strong_count(&notify), before);
    assert_eq!(ended(&mut session), (vec![], vec![]));
}

#[tokio::test]
async fn a_panic_resets_its_stream_and_no_other() {
    let notify = Arc::new(Notify::new());
    let (mut session, mut events) = session(&notify);
    let bytes = [preface(), call(1, "panic", 1)].concat();
    receive(&mut session, &bytes).await;
    assert_eq!(ended(&mut session), (vec![], vec![]));
    notify.notify_one();
    let (id, event) = events.recv().await.unwrap();
    session.on_event(id, event);
    assert_eq!(ended(&mut session), (vec![], vec![1]));
    receive(&mut session, &call(3, "quick", 1)).await;
    assert_eq!(ended(&mut session), (vec![3], vec![]));
}

#[tokio::test]
async fn trailers_end_a_body_unless_they_are_malformed() {
    let notify = Arc::new(Notify::new());
    let (mut session, _events) = session(&notify);
    receive(&mut session, &preface()).await;
    for (stream, name, is_valid) in [
        (1, ":path", false),
        (3, "connection", false),
        (5, "x-a", true),
    ] {
        // A call whose DATA does not end the stream.
        let mut bytes = call(stream, "quick", 1);
        let head = match Frame::next(&bytes) {
            Next::Frame(_, behind) => bytes.len() - behind.len(),
            _ => panic!("no frame"),
        };
        bytes[head + 4] = 0;
        let mut block = Vec::new();
        hpack::write(&mut block, name.as_bytes(), b"/");
        let flags = END_HEADERS | END_STREAM;
        frame::write(&mut bytes, HEADERS, flags, stream, &block);
        receive(&mut session, &bytes).await;
        let expected = match is_valid {
            true => (vec![stream], vec![]),
            false => (vec![], vec![stream]),
        };
        assert_eq!(ended(&mut session), expected, "{name}");
    }
}

/// A session whose client opens no window for responses, after this many calls.
async fn without_window(calls: u32) -> Session<Health, impl Handler<Response = Response>> {
    let notify = Arc::new(Notify::new());
    let (mut session, _events) = session(&notify);
    let mut bytes = PREFACE.to_vec();
    let mut settings = frame::INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
    settings.extend_from_slice(&0_u32.to_be_bytes());
    frame::write(&mut bytes, SETTINGS, 0, 0, &settings);
    receive(&mut session, &bytes).await;
    for number in 0..calls {
        let bytes = call(number * 2 + 1, "quick", 2_000);
        receive(&mut session, &bytes).await;
        session.send();
        session.output.clear();
    }
    session
}

#[tokio::test]
async fn unsent_responses_are_bounded() {
    let mut session = without_window(1_000).await;
    let unsent = session.streams.iter_mut().map(|stream| {
        let unsent = stream.unsent.as_ref();
        unsent.map_or(0, |unsent| unsent.data.len())
    });
    let kept: usize = unsent.sum();
    let most = MAX_BUFFERED_BYTES;
    assert!((most / 2..=most).contains(&kept), "{kept}");
    assert!(session.streams.len() < 1_000, "the others were reset");
    assert_eq!(session.streams.buffered(), kept);
}

#[tokio::test]
async fn streams_that_stall_from_one_check_to_the_next_are_reset() {
    let mut session = without_window(2).await;
    // Half a message.
    let half = call(5, "quick", 1);
    let mut bytes = Vec::new();
    if let Next::Frame(head, behind) = Frame::next(&half) {
        frame::write(&mut bytes, HEADERS, END_HEADERS, 5, head.payload);
        frame::write(&mut bytes, DATA, 0, 5, behind.get(9..12).unwrap());
    }
    receive(&mut session, &bytes).await;
    session.reset_stalled();
    assert_eq!(ended(&mut session), (vec![], vec![]), "the first check");
    // One of them gets a window.
    let mut more = Vec::new();
    frame::write_window(&mut more, 3, 10);
    receive(&mut session, &more).await;
    session.send();
    session.output.clear();
    session.reset_stalled();
    assert_eq!(ended(&mut session), (vec![], vec![1, 5]));
    session.reset_stalled();
    assert_eq!(ended(&mut session), (vec![], vec![3]));
    assert!(session.is_idle());
    assert_eq!(session.streams.buffered(), 0);
}

/// A frame that is valid, or nearly.
fn random_frame(rng: &mut fastrand::Rng, out: &mut Vec<u8>) {
    let start = out.len();
    let stream = [0, 1, 1, 3, 3, 5, 7, 9, 2][rng.usize(..9)];
    match rng.usize(..4) {
        0 => out.extend(call(stream, "quick", 1)),
        _ => {
            let kind = [0, 1, 1, 2, 3, 4, 6, 8, 8, 9, 9, 77][rng.usize(..12)];
            let flags = [0, 1, 4, 5, 8, 12, 0x2c, 0xff][rng.usize(..8)];
            let length = [0, 4, 4, 5, 6, 8, 12, 40][rng.usize(..8)];
            let payload: Vec<u8> = match rng.usize(..3) {
                0 => vec![0; length],
                1 => {
                    let call = call(1, "quick", 1);
                    call.into_iter().skip(9).take(length).collect()
                }
                _ => (0..length)
                    .map(|_| [0, 1, 0x20, 0x7f, 0x82, 0xbe, 0xff][rng.usize(..7)])
                    .collect(),
            };
            frame::write(out, kind, flags, stream, &payload);
        }
    }
    if rng.usize(..20) == 0 {
        let at = start + rng.usize(..out.len() - start);
        out[at] ^= 1 << rng.usize(..8);
    }
}

#[tokio::test]
async fn any_bytes_are_survived_and_mean_the_same_however_they_are_split() {
    let notify = Arc::new(Notify::new());
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut answered, mut failed) = (0, 0);
    for _ in 0..3_000 {
        let mut bytes = preface();
        for _ in 0..rng.usize(..12) {
            random_frame(&mut rng, &mut bytes);
        }
        let mut outputs = Vec::new();
        for splits in [0, 1, 5] {
            let (mut session, _events) = session(&notify);
            let mut ends: Vec<usize> = (0..splits).map(|_| rng.usize(..bytes.len())).collect();
            ends.push(bytes.len());
            ends.sort_unstable();
            let mut consumed = 0;
            for end in ends {
                let chunk = bytes.get(consumed..end).unwrap_or_default();
                consumed += poll_fn(|cx| Poll::Ready(session.receive(cx, chunk))).await;
                session.send();
            }
            assert!(session.streams.buffered() <= MAX_BUFFERED_BYTES);
            failed += usize::from(session.shutdown == Shutdown::Closed);
            outputs.push(session.output);
        }
        assert!(outputs.iter().all(|out| *out == outputs[0]), "{bytes:?}");
        answered += usize::from(outputs[0].windows(11).any(|w| w == b"grpc-status"));
    }
    // Both kinds occur often enough.
    assert!(answered > 500 && failed > 500, "{answered} {failed}");
}
