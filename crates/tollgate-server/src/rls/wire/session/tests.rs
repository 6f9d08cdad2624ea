//! Decisions that have to wait. With a store on a network they do; here they wait for a word of the test.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use prost::Message;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use super::*;
use crate::engine::for_tests;
use crate::rls::Limits;
use crate::rls::domains::Domains;
use crate::rls::messages::{Entry, RateLimitDescriptor, RateLimitRequest, SHOULD_RATE_LIMIT};
use crate::rls::wire::calls::Calls;
use crate::rls::wire::elsewhere::Event;
use crate::rls::wire::frame::{END_HEADERS, END_STREAM};
use crate::rls::wire::hpack;

type Health = HealthServer<HealthService>;

/// A connection on which calls in the domain `slow` wait for the word, and those in `broken` fail then.
fn begun(
    word: &Arc<Notify>,
) -> (
    Session<Health>,
    impl Decides,
    UnboundedReceiver<(u32, Event)>,
) {
    begun_by("default: pass\n", word)
}

/// The same by this policy.
fn begun_by(
    policy: &str,
    word: &Arc<Notify>,
) -> (
    Session<Health>,
    impl Decides + use<>,
    UnboundedReceiver<(u32, Event)>,
) {
    let limits = Arc::new(Limits {
        engine: for_tests(policy),
        domains: Domains::default(),
    });
    let (to, events) = unbounded_channel();
    let word = Arc::clone(word);
    let make = move |request: RateLimitRequest, until: Option<Instant>| {
        let (limits, word) = (Arc::clone(&limits), Arc::clone(&word));
        async move {
            if request.domain != "quick" {
                word.notified().await;
            }
            assert!(request.domain != "broken", "as the test wants it");
            limits.answer(request, until).await
        }
    };
    let calls = Calls::new(make, to.clone());
    let health = HealthServer::new(HealthService::from_health_reporter(HealthReporter::new()));
    (
        Session::new(health, Teller { stream: 0, to }),
        calls,
        events,
    )
}

fn first() -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    frame::write(&mut bytes, SETTINGS, 0, 0, &[]);
    bytes
}

fn call(stream: u32, domain: &str) -> Vec<u8> {
    call_of(stream, domain, 1)
}

/// A call with so many descriptors.
fn call_of(stream: u32, domain: &str, descriptors: usize) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    hpack::write(&mut block, b":path", SHOULD_RATE_LIMIT.as_bytes());
    let entry = Entry {
        key: "k".into(),
        value: "v".into(),
    };
    let request = RateLimitRequest {
        domain: domain.into(),
        descriptors: vec![
            RateLimitDescriptor {
                entries: vec![entry],
                ..RateLimitDescriptor::default()
            };
            descriptors
        ],
        hits_addend: 0,
    };
    let message = request.encode_to_vec();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    let mut bytes = Vec::new();
    frame::write(&mut bytes, HEADERS, END_HEADERS, stream, &block);
    frame::write(&mut bytes, DATA, END_STREAM, stream, &body);
    bytes
}

async fn receive(session: &mut Session<Health>, calls: &mut impl Decides, bytes: &[u8]) {
    let taken = poll_fn(|cx| Poll::Ready(session.receive(cx, calls, bytes))).await;
    assert_eq!(taken, bytes.len());
}

/// The streams whose ends were written, and those that were reset; nothing is left to be written.
fn ended(session: &mut Session<Health>) -> (Vec<u32>, Vec<u32>) {
    let (mut ended, mut reset) = (Vec::new(), Vec::new());
    let out = std::mem::take(&mut session.out);
    let mut rest = out.as_slice();
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
async fn a_decision_that_waits_keeps_no_other_waiting() {
    let word = Arc::new(Notify::new());
    let (mut session, mut calls, mut events) = begun(&word);
    let asked = [
        first(),
        call(1, "slow"),
        call(3, "quick"),
        call(5, "slow"),
        call(7, "quick"),
    ];
    receive(&mut session, &mut calls, &asked.concat()).await;
    assert_eq!(ended(&mut session), (vec![3, 7], vec![]));
    assert!(!session.is_idle());
    let mut late = Vec::new();
    while late.len() < 2 {
        word.notify_one();
        let (id, event) = events.recv().await.unwrap();
        session.tell(id, event);
        late.extend(ended(&mut session).0);
    }
    late.sort_unstable();
    assert_eq!(late, [1, 5]);
    assert!(session.is_idle());
}

#[tokio::test]
async fn a_call_that_is_taken_back_is_decided_no_more() {
    let word = Arc::new(Notify::new());
    let (mut session, mut calls, mut events) = begun(&word);
    let before = Arc::strong_count(&word);
    receive(
        &mut session,
        &mut calls,
        &[first(), call(1, "slow")].concat(),
    )
    .await;
    assert_eq!(Arc::strong_count(&word), before + 1, "it waits");
    let mut reset = Vec::new();
    frame::write_reset(&mut reset, 1, Code::NoError);
    receive(&mut session, &mut calls, &reset).await;
    assert!(session.is_idle());
    let (id, event) = events.recv().await.unwrap();
    assert!(matches!((id, &event), (1, Event::Over)), "{event:?}");
    session.tell(id, event);
    assert_eq!(Arc::strong_count(&word), before);
    assert_eq!(ended(&mut session), (vec![], vec![]));
}

#[tokio::test]
async fn a_decision_that_fails_resets_its_call_and_no_other() {
    let word = Arc::new(Notify::new());
    let (mut session, mut calls, mut events) = begun(&word);
    receive(
        &mut session,
        &mut calls,
        &[first(), call(1, "broken")].concat(),
    )
    .await;
    assert_eq!(ended(&mut session), (vec![], vec![]));
    word.notify_one();
    let (id, event) = events.recv().await.unwrap();
    session.tell(id, event);
    assert_eq!(ended(&mut session), (vec![], vec![1]));
    receive(&mut session, &mut calls, &call(3, "quick")).await;
    assert_eq!(ended(&mut session), (vec![3], vec![]));
}

#[tokio::test]
async fn fields_behind_a_body_end_it_unless_they_are_those_of_a_head() {
    let word = Arc::new(Notify::new());
    let (mut session, mut calls, _events) = begun(&word);
    receive(&mut session, &mut calls, &first()).await;
    for (stream, name, is_fine) in [
        (1, ":path", false),
        (3, "connection", false),
        (5, "x-a", true),
    ] {
        // A call whose body is not its end.
        let mut asked = call(stream, "quick");
        let head = match Frame::next(&asked) {
            Next::Frame(_, behind) => asked.len() - behind.len(),
            _ => panic!("no frame"),
        };
        asked[head + 4] = 0;
        let mut block = Vec::new();
        hpack::write(&mut block, name.as_bytes(), b"/");
        let flags = END_HEADERS | END_STREAM;
        frame::write(&mut asked, HEADERS, flags, stream, &block);
        receive(&mut session, &mut calls, &asked).await;
        let expected = match is_fine {
            true => (vec![stream], vec![]),
            false => (vec![], vec![stream]),
        };
        assert_eq!(ended(&mut session), expected, "{name}");
    }
}

/// A connection whose client makes no room for answers, after so many calls.
async fn deaf(calls: u32) -> Session<Health> {
    let word = Arc::new(Notify::new());
    let policy = "default: pass
limits: [{ name: requests-of-an-address-for-a-route, match: { domain: quick }, key: descriptor.k, algorithm: fixed-window, allow: 1000000/d }]
";
    let (mut session, mut decides, _events) = begun_by(policy, &word);
    let mut said = PREFACE.to_vec();
    let mut settings = frame::INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
    settings.extend_from_slice(&0_u32.to_be_bytes());
    frame::write(&mut said, SETTINGS, 0, 0, &settings);
    receive(&mut session, &mut decides, &said).await;
    for number in 0..calls {
        let asked = call_of(number * 2 + 1, "quick", 64);
        receive(&mut session, &mut decides, &asked).await;
        session.send();
        session.out.clear();
    }
    session
}

#[tokio::test]
async fn answers_that_wait_for_room_are_bounded() {
    let mut session = deaf(1_000).await;
    let sending = session.streams.iter_mut().map(|stream| {
        let sending = stream.sending.as_ref();
        sending.map_or(0, |sending| sending.data.len())
    });
    let kept: usize = sending.sum();
    let most = crate::rls::wire::HELD_BYTES;
    assert!((most / 2..=most).contains(&kept), "{kept}");
    assert!(session.streams.len() < 1_000, "the others were ended");
    assert_eq!(session.streams.held(), kept);
}

#[tokio::test]
async fn calls_that_wait_for_their_client_from_one_look_to_the_next_are_ended() {
    let mut session = deaf(2).await;
    // Half a message.
    let word = Arc::new(Notify::new());
    let (_, mut decides, _events) = begun(&word);
    let half = call(5, "quick");
    let mut block = Vec::new();
    if let Next::Frame(head, behind) = Frame::next(&half) {
        frame::write(&mut block, HEADERS, END_HEADERS, 5, head.payload);
        frame::write(&mut block, DATA, 0, 5, behind.get(9..12).unwrap());
    }
    receive(&mut session, &mut decides, &block).await;
    session.end_what_is_stuck();
    assert_eq!(ended(&mut session), (vec![], vec![]), "the first look");
    // One of them gets some room.
    let mut more = Vec::new();
    frame::write_window(&mut more, 3, 10);
    receive(&mut session, &mut decides, &more).await;
    session.send();
    session.out.clear();
    session.end_what_is_stuck();
    assert_eq!(ended(&mut session), (vec![], vec![1, 5]));
    session.end_what_is_stuck();
    assert_eq!(ended(&mut session), (vec![], vec![3]));
    assert!(session.is_idle());
    assert_eq!(session.streams.held(), 0);
}

/// Numbers that look like chance and are the same every time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    /// A frame that may be right, or nearly.
    fn frame(&mut self, out: &mut Vec<u8>) {
        let begins = out.len();
        let stream = [0, 1, 1, 3, 3, 5, 7, 9, 2][self.below(9)];
        match self.below(4) {
            0 => out.extend(call(stream, "quick")),
            _ => {
                let kind = [0, 1, 1, 2, 3, 4, 6, 8, 8, 9, 9, 77][self.below(12)];
                let flags = [0, 1, 4, 5, 8, 12, 0x2c, 0xff][self.below(8)];
                let length = [0, 4, 4, 5, 6, 8, 12, 40][self.below(8)];
                let payload: Vec<u8> = match self.below(3) {
                    0 => vec![0; length],
                    1 => call(1, "quick").into_iter().skip(9).take(length).collect(),
                    _ => (0..length)
                        .map(|_| [0, 1, 0x20, 0x7f, 0x82, 0xbe, 0xff][self.below(7)])
                        .collect(),
                };
                frame::write(out, kind, flags, stream, &payload);
            }
        }
        if self.below(20) == 0 {
            let at = begins + self.below(out.len() - begins);
            out[at] ^= 1 << self.below(8);
        }
    }
}

/// No bytes make it fail, and how they are cut makes no difference.
#[tokio::test]
async fn whatever_comes_is_borne_and_means_the_same_however_it_is_cut() {
    let word = Arc::new(Notify::new());
    let mut chance = Chance(1);
    let (mut answered, mut failed) = (0, 0);
    for _ in 0..3_000 {
        let mut bytes = first();
        for _ in 0..chance.below(12) {
            chance.frame(&mut bytes);
        }
        let mut outs = Vec::new();
        for cuts in [0, 1, 5] {
            let (mut session, mut calls, _events) = begun(&word);
            let mut ends: Vec<usize> = (0..cuts).map(|_| chance.below(bytes.len())).collect();
            ends.push(bytes.len());
            ends.sort_unstable();
            let mut taken = 0;
            for end in ends {
                let some = bytes.get(taken..end).unwrap_or_default();
                taken += poll_fn(|cx| Poll::Ready(session.receive(cx, &mut calls, some))).await;
                session.send();
            }
            assert!(session.streams.held() <= crate::rls::wire::HELD_BYTES);
            failed += usize::from(session.ends == Ends::Over);
            outs.push(session.out);
        }
        assert!(outs.iter().all(|out| *out == outs[0]), "{bytes:?}");
        answered += usize::from(outs[0].windows(11).any(|w| w == b"grpc-status"));
    }
    // Otherwise it was no test.
    assert!(answered > 500 && failed > 500, "{answered} {failed}");
}
