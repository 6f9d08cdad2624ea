//! Connections over real sockets.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use super::*;
use crate::rls::messages::{DescriptorStatus, RateLimitRequest};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A connection with this handler, and its client.
async fn connected<F>(
    respond: impl FnMut(RateLimitRequest, Option<Instant>) -> F,
) -> (
    Connection<HealthServer<HealthService>, impl Handler<Response = RateLimitResponse>>,
    TcpStream,
)
where
    F: Future<Output = Result<RateLimitResponse, tonic::Status>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await;
    let (stream, _) = listener.accept().await.unwrap();
    let health = HealthServer::new(HealthService::from_health_reporter(HealthReporter::new()));
    let session = Session::new(METHOD, respond, health);
    let connection = Connection::new(stream, session, Arc::new(ConnectionState::default()));
    (connection, client.unwrap())
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// The type, flags and length of each complete frame.
fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, usize)> {
    let mut frames = Vec::new();
    while let Some(([a, b, c, kind, flags, ..], rest)) = bytes.split_first_chunk::<9>() {
        let length = usize::try_from(u32::from_be_bytes([0, *a, *b, *c])).unwrap();
        let Some(rest) = rest.get(length..) else {
            break;
        };
        frames.push((*kind, *flags, length));
        bytes = rest;
    }
    frames
}

/// The preface with settings, and the header block of a call.
fn preface() -> (Vec<u8>, Vec<u8>) {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(&mut bytes, SETTINGS, 0, 0, &[]);
    // `:method: POST`, `:scheme: http`, and the path as a literal.
    let mut block = vec![
        0x83,
        0x86,
        0x04,
        u8::try_from(SHOULD_RATE_LIMIT.len()).unwrap(),
    ];
    block.extend_from_slice(SHOULD_RATE_LIMIT.as_bytes());
    (bytes, block)
}

#[tokio::test]
async fn responses_that_are_ready_together_are_all_sent_though_they_exceed_the_output() {
    const CALLS: u32 = 500;
    let status = DescriptorStatus {
        limit_remaining: 77,
        ..DescriptorStatus::default()
    };
    let response = RateLimitResponse {
        statuses: vec![status; 200],
        ..RateLimitResponse::default()
    };
    let (release, released) = watch::channel(false);
    let respond = move |_, _| {
        let (mut released, response) = (released.clone(), response.clone());
        async move {
            let _ = released.wait_for(|released| *released).await;
            Ok(response)
        }
    };
    let (mut connection, mut client) = connected(respond).await;
    // The client sends everything at once and nothing more: nothing else wakes the connection.
    let (mut bytes, block) = preface();
    let window = 0x3fff_ffff_u32.to_be_bytes();
    frame(&mut bytes, WINDOW_UPDATE, 0, 0, &window);
    let ids: Vec<u32> = (0..CALLS).map(|number| number * 2 + 1).collect();
    for id in &ids {
        frame(&mut bytes, HEADERS, END_HEADERS, *id, &block);
        frame(&mut bytes, DATA, END_STREAM, *id, &[0; 5]);
    }
    client.write_all(&bytes).await.unwrap();
    let running = tokio::spawn(async move { poll_fn(|cx| connection.poll(cx)).await });
    // Every pending call has a receiver of its own.
    while release.receiver_count() <= ids.len() {
        tokio::task::yield_now().await;
    }
    release.send(true).unwrap();
    let mut received = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut ends = 0;
    while ends < usize::try_from(CALLS).unwrap() {
        let read = tokio::time::timeout(Duration::from_secs(5), client.read(&mut buffer));
        let count = read.await.expect("every call gets a response").unwrap();
        received.extend_from_slice(&buffer[..count]);
        let is_end =
            |(kind, flags, _): &(u8, u8, usize)| *kind == HEADERS && flags & END_STREAM > 0;
        ends = frames(&received).iter().filter(|f| is_end(f)).count();
    }
    running.abort();
}

#[tokio::test]
async fn calls_that_are_reset_leave_nothing_behind() {
    const CALLS: u32 = 20_000;
    // A store that does not answer.
    let never =
        |_: RateLimitRequest, _| std::future::pending::<Result<RateLimitResponse, tonic::Status>>();
    let (mut connection, mut client) = connected(never).await;
    let (mut bytes, block) = preface();
    for number in 0..CALLS {
        let id = number * 2 + 1;
        frame(&mut bytes, HEADERS, END_HEADERS, id, &block);
        frame(&mut bytes, DATA, END_STREAM, id, &[0; 5]);
        frame(&mut bytes, RST_STREAM, 0, id, &[0; 4]);
    }
    // The PING's acknowledgement shows that everything before it was read.
    frame(&mut bytes, PING, 0, 0, b"the last");
    let pong = tokio::spawn(async move {
        client.write_all(&bytes).await.unwrap();
        let (mut received, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
        while !received.windows(8).any(|bytes| bytes == b"the last") {
            let count = client.read(&mut buffer).await.unwrap();
            assert!(count > 0, "the connection was closed");
            received.extend_from_slice(&buffer[..count]);
        }
        client
    });
    let mut pong = pin!(pong);
    let over = poll_fn(|cx| match pong.as_mut().poll(cx) {
        Poll::Ready(client) => Poll::Ready(client),
        Poll::Pending => {
            assert!(connection.poll(cx).is_pending(), "it stays open");
            Poll::Pending
        }
    });
    let over = tokio::time::timeout(Duration::from_secs(30), over).await;
    let _client = over.expect("everything is read").unwrap();
    // Aborted tasks report their end when they are next polled.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let _ = poll_fn(|cx| Poll::Ready(connection.poll(cx).is_pending())).await;
    assert!(connection.session.is_idle());
    assert_eq!(connection.events.len(), 0);
}
