//! The kinds of abuse, as bytes.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::super::panicked;
use crate::http::HttpConnection;
use tollgate_testkit::Result;
use tollgate_testkit::http2::{
    self as frames, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, NONE,
};

/// Connections at once of every kind but the slow one.
const CONNECTIONS: usize = 8;
/// Slow connections of one address.
const OF_ONE_ADDRESS: usize = 200;
/// Time between two messages of a slow client.
const DRIBBLE: Duration = Duration::from_millis(700);
/// Frames that are sent in one piece.
const VOLLEY: u32 = 100;
/// How long a blocked abuser waits for the peer.
const STUCK: Duration = Duration::from_millis(200);
/// Time between the starts of two abusers.
const STAGGER: Duration = Duration::from_micros(200);
/// Time before a rejected client reconnects.
const RECONNECT_AFTER: Duration = Duration::from_millis(20);

/// A kind of abuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attack {
    Slowloris,
    HeaderFlood,
    RapidReset,
    ContinuationFlood,
    EmptyData,
    PingFlood,
    SettingsFlood,
    ZeroWindow,
}

/// The attack with the most connections comes last: memory that the allocator keeps would hide the growth of others.
pub(super) const ALL: [Attack; 8] = [
    Attack::HeaderFlood,
    Attack::RapidReset,
    Attack::ContinuationFlood,
    Attack::EmptyData,
    Attack::PingFlood,
    Attack::SettingsFlood,
    Attack::ZeroWindow,
    Attack::Slowloris,
];

impl Attack {
    pub(super) fn name(self) -> &'static str {
        match self {
            Attack::Slowloris => "slowloris",
            Attack::HeaderFlood => "header flood",
            Attack::RapidReset => "rapid reset",
            Attack::ContinuationFlood => "CONTINUATION flood",
            Attack::EmptyData => "empty DATA",
            Attack::PingFlood => "PING flood",
            Attack::SettingsFlood => "SETTINGS flood",
            Attack::ZeroWindow => "zero window",
        }
    }

    /// What a connection begins with.
    fn opening(self) -> Vec<u8> {
        let post = || frames::request_block("POST", "/sink", &[]);
        let with = |more: &[Vec<u8>]| [frames::hello(&[]), more.concat()].concat();
        match self {
            Attack::Slowloris => b"GET /slow HTTP/1.1\r\nhost: app.test\r\n".to_vec(),
            Attack::HeaderFlood => b"GET /flood HTTP/1.1\r\nhost: app.test\r\n".to_vec(),
            Attack::ContinuationFlood => with(&[frames::frame(HEADERS, NONE, 1, &post())]),
            Attack::EmptyData => with(&[frames::frame(HEADERS, END_HEADERS, 1, &post())]),
            Attack::ZeroWindow => frames::hello(&[(frames::INITIAL_WINDOW, 0)]),
            Attack::RapidReset | Attack::PingFlood | Attack::SettingsFlood => with(&[]),
        }
    }

    /// What follows, again and again; `turn` counts from 0.
    fn volley(self, turn: u32) -> Vec<u8> {
        let repeat = |frame: Vec<u8>| {
            let times = usize::try_from(VOLLEY).unwrap_or_default();
            frame.repeat(times)
        };
        match self {
            Attack::Slowloris => format!("x-slow-{turn}: a\r\n").into_bytes(),
            Attack::HeaderFlood => {
                let line = |place: u32| format!("x-flood-{turn}-{place}: {:a<60}\r\n", "");
                (0..VOLLEY).map(line).collect::<String>().into_bytes()
            }
            Attack::RapidReset => {
                let block = frames::request_block("GET", "/work/5", &[]);
                let one = |place: u32| {
                    let stream = (turn * VOLLEY + place) * 2 + 1;
                    let flags = END_HEADERS | END_STREAM;
                    let head = frames::frame(HEADERS, flags, stream, &block);
                    [head, frames::reset(stream)].concat()
                };
                (0..VOLLEY).flat_map(one).collect()
            }
            Attack::ContinuationFlood => {
                let block = frames::field("x-flood", &"a".repeat(100));
                repeat(frames::frame(CONTINUATION, NONE, 1, &block))
            }
            Attack::EmptyData => repeat(frames::frame(DATA, NONE, 1, &[])),
            Attack::PingFlood => repeat(frames::ping()),
            Attack::SettingsFlood => repeat(frames::settings(&[])),
            Attack::ZeroWindow => {
                // Responses that cannot be delivered, as many as a connection may request.
                let block = frames::request_block("GET", "/stream", &[]);
                let one = |place: u32| {
                    let flags = END_HEADERS | END_STREAM;
                    frames::frame(HEADERS, flags, place * 2 + 1, &block)
                };
                (0..VOLLEY).flat_map(one).collect()
            }
        }
    }

    /// How long is waited between two volleys.
    fn pause(self) -> Duration {
        match self {
            Attack::Slowloris => DRIBBLE,
            // All requests at once, and then held.
            Attack::ZeroWindow => Duration::from_secs(3600),
            // As fast as the peer reads.
            _ => Duration::ZERO,
        }
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) connections: usize,
    /// Volleys, or messages of slow clients.
    pub(super) messages: usize,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicUsize,
    messages: AtomicUsize,
}

/// Runs until `stop` is set. Closed connections are opened again.
pub(super) async fn run(
    attack: Attack,
    port: u16,
    slow_ones: usize,
    stop: &Arc<AtomicBool>,
) -> Result<Done> {
    let counts = Arc::new(Counts::default());
    let abusers = match attack {
        Attack::Slowloris => slow_ones,
        _ => CONNECTIONS,
    };
    let mut all = JoinSet::new();
    for place in 0..abusers {
        let (stop, counts) = (Arc::clone(stop), Arc::clone(&counts));
        let source = address(place / OF_ONE_ADDRESS);
        all.spawn(async move {
            // Not all at once: the accept queue of the system is not under test.
            let turn = u32::try_from(place).unwrap_or(u32::MAX);
            sleep(STAGGER.saturating_mul(turn)).await;
            while !stop.load(Ordering::Relaxed) {
                let talk = abuse(attack, source, port, &stop, &counts);
                if talk.await.is_err() && !stop.load(Ordering::Relaxed) {
                    sleep(RECONNECT_AFTER).await;
                }
            }
        });
    }
    while !stop.load(Ordering::Relaxed) {
        sleep(RECONNECT_AFTER).await;
    }
    // Abusers stop in the middle of a message.
    all.abort_all();
    while let Some(done) = all.join_next().await {
        match done {
            Err(error) if !error.is_cancelled() => return Err(panicked(error)),
            _ => {}
        }
    }
    Ok(Done {
        connections: counts.connections.load(Ordering::Relaxed),
        messages: counts.messages.load(Ordering::Relaxed),
    })
}

/// One connection, until it is closed.
async fn abuse(
    attack: Attack,
    source: Ipv4Addr,
    port: u16,
    stop: &AtomicBool,
    counts: &Counts,
) -> io::Result<()> {
    let mut connection = HttpConnection::open_from(source, port).await?;
    counts.connections.fetch_add(1, Ordering::Relaxed);
    connection.send(&attack.opening()).await?;
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        // Responses are not read: the peer has to bound them.
        match timeout(STUCK, connection.send(&attack.volley(turn))).await {
            Ok(sent) => sent?,
            // The peer reads no more: reconnect.
            Err(_) => return Ok(()),
        }
        counts.messages.fetch_add(1, Ordering::Relaxed);
        turn = turn.wrapping_add(1) % 1_000_000;
        match attack.pause() {
            // A pause of nothing would be one of a millisecond.
            Duration::ZERO => tokio::task::yield_now().await,
            pause => sleep(pause).await,
        }
    }
    Ok(())
}

/// An address of this machine other than the well-behaved client's.
fn address(number: usize) -> Ipv4Addr {
    let number = u16::try_from(number).unwrap_or(u16::MAX);
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(127, 1, high, low.saturating_add(1))
}
